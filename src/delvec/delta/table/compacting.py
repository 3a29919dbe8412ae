"""Rewriting the files of a Delta table without changing its rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from delvec.calls import explained_calls
from delvec.delta.maintain.compaction import CompactionRule
from delvec.delta.table.arguments import require_condition
from delvec.delta.table.handle import TableHandle
from delvec.delta.table.named_columns import by_name
from delvec.delta.write.options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column
    from typing_extensions import Unpack

    from delvec.delta.write.report import WriteReport

__all__ = ["TableCompaction"]


@explained_calls(WriteOptions)
@dataclass(frozen=True)
class TableCompaction(TableHandle):
    """The commands that rewrite files; all take the keywords of `WriteOptions`.

    Other writers need not wait: rows that they append stay, and rows that they delete meanwhile are
    deleted in the new files as well. Files that others rewrite meanwhile are left to them. The old
    files stay for readers of older versions until `vacuum()`.
    """

    def optimize(
        self,
        where: str | Column | None = None,
        *,
        target_file_size: int | None = None,
        max_deleted_ratio: float = 0.05,
        min_file_size: int | None = None,
        zorder_by: Sequence[str] = (),
        **options: Unpack[WriteOptions],
    ) -> WriteReport:
        """Put small files together, and rewrite files with many deleted rows without these.

            t.optimize(where="day = '2026-01-31'")

        Args:
            where: Only files that may have rows that satisfy it.
            target_file_size: Live bytes of files that become one, at most; by default what
                `delta.targetFileSize` says, else 256 MiB.
            max_deleted_ratio: A file with a larger share of deleted rows is rewritten, even alone.
            min_file_size: Files with fewer live bytes are put together; half of the target by
                default.
            zorder_by: Sort the rows by several columns at once, so that filters on any of them
                rule out most files. All files are rewritten, with one shuffle.
            options: See `WriteOptions`.
        """
        require_condition("optimize({})", where)
        rule = partial(
            CompactionRule.of,
            target_size=target_file_size,
            min_size=min_file_size,
            max_deleted_ratio=max_deleted_ratio,
        )
        rule(self.snapshot().metadata)  # wrong numbers are refused even if there is nothing to do
        self._session("optimize()")
        chosen = by_name(self, where)
        if zorder_by:
            from delvec.spark.delta.maintain.zorder import zorder  # noqa: PLC0415

            return self.run("OPTIMIZE", zorder(tuple(zorder_by), rule, chosen), options)
        from delvec.spark.delta.maintain.optimize import compact  # noqa: PLC0415

        return self.run("OPTIMIZE", compact("OPTIMIZE", rule, chosen), options)

    def purge(
        self, where: str | Column | None = None, **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Rewrite exactly the files that have a deletion vector, without the deleted rows.

        Afterwards no live file holds rows that were deleted before; those that others delete
        meanwhile may be in a new one, and the report says so. Old files hold them until `vacuum()`
        removes these, which `traces()` shows.

        Args:
            where: Only files that may have rows that satisfy it, live or deleted.
            options: See `WriteOptions`.
        """
        from delvec.spark.delta.maintain.purge import purge  # noqa: PLC0415

        require_condition("purge({})", where)
        self._session("purge()")
        return self.run("REORG", purge(by_name(self, where)), options)
