"""Rows that several jobs use and that must be the same for all of them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

__all__ = ["staged"]


@contextmanager
def staged(rows: DataFrame) -> Iterator[DataFrame]:
    """Compute rows once, with the first job that uses them; later jobs see what that one saw.

    They are kept in the memory of the executors, and on their disks beyond it, until the block
    ends. Unlike those of a cache, lost rows are never computed again, with other random numbers or
    from a source that has changed: the job fails, and with it the operation.
    """
    kept = rows.localCheckpoint(eager=False)
    try:
        yield kept
    finally:
        plan: Any = kept._jdf.logicalPlan()  # noqa: SLF001
        plan.rdd().unpersist(False)
