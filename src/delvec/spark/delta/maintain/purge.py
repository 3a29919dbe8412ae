"""PURGE: files with deletion vectors become files without.

Afterwards deleted rows are in no live file. The old files stay until VACUUM, for readers of older
versions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from delvec.delta.maintain.compaction import CompactionRule
from delvec.spark.delta.maintain.optimize import compact

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    from delvec.delta.write.transaction import Attempt, Outcome

__all__ = ["purge"]


def purge(
    where: str | Column | None = None, *, target_size: int | None = None
) -> Callable[[Attempt], Outcome]:
    """Prepare to rewrite exactly the files that have a vector.

    Args:
        where: Only files that may have rows that satisfy it, live or deleted.
        target_size: The most live bytes of files that become one.
    """
    return compact("REORG", partial(CompactionRule.of, target_size=target_size), where)
