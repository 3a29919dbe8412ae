"""Checking a Delta table, and repairing what can be repaired for certain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.calls import explained_calls
from delvec.delta.maintain.check.check import check
from delvec.delta.table.handle import TableHandle

if TYPE_CHECKING:
    from collections.abc import Callable

    from delvec.delta.maintain.check.report import CheckReport

__all__ = ["TableCheck"]


@explained_calls()
@dataclass(frozen=True)
class TableCheck(TableHandle):
    """The check of a table."""

    def check(
        self,
        *,
        repair: bool = False,
        sample: int = 10,
        dry_run: bool = False,
        on_progress: Callable[[str, int, int], None] | None = None,
    ) -> CheckReport:
        """Compare the newest version with its files, vectors and statistics; no session is needed.

            report = t.check()
            assert report.ok, report

        Errors are what makes rows wrong or unreadable: data files and vectors that are gone or
        damaged, files that are live twice, checkpoints that are not what the commits say, vectors
        that readers may ignore, bounds that hide rows. Warnings are what other engines trip over,
        such as vectors in the log itself. Notes, such as orphan files, do not count for `ok`.

        It lists the table's folder and the log, reads the footer of each data file, all deletion
        vectors, and the rows of some files. Memory grows with the files, some hundred bytes each.

        Args:
            repair: Whether to repair what is certain: no row is lost, and no deleted row comes
                back. The report says what (`repairs`), and holds the findings that are left. Files
                that are gone cannot be repaired; their findings say what can be done.
            sample: How many files have their rows compared with their statistics.
            dry_run: With `repair`: whether to report only what would be repaired.
            on_progress: Is called with what is looked at, how many files were, and of how many.

        Raises:
            InvalidArgumentError: `sample` is negative.
            UnsupportedFeatureError: A repair would have to write to a table with a feature that
                delvec does not write.
        """
        return check(
            self.storage,
            lambda operation, prepare: self.run(operation, prepare, {}),
            repair=repair and not dry_run,
            sample=sample,
            on_progress=on_progress,
        )
