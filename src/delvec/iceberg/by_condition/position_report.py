"""What a delete by row positions did, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.report.figures import counted, listed, size, visible
from delvec.report.rendered import ChangeReport, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.report.rendered import Line

__all__ = ["PositionDeleteReport"]


@dataclass(frozen=True)
class PositionDeleteReport(ChangeReport):
    """What a delete by row positions did; prints as text, on terminals and in notebooks.

    >>> print(PositionDeleteReport("lake.db.t", "main", 12, rows_deleted=3, vectors_added=1))
    DELETE on lake.db.t: snapshot 12, 3 rows deleted by position
      vectors  1 added

    Attributes, beside those of all reports (`ChangeReport`):
        table: The table.
        branch: The branch.
        snapshot_id: The new snapshot; None if nothing was committed.
        reason: Why rows were deleted by position and not by key.
        rows_deleted: Rows that were deleted; None if files were removed whose rows were not
            counted.
        files_removed: Data files all of whose rows were deleted.
        vectors_added: Data files that got a vector, or a position-delete file in a table of
            format 2.
        vectors_replaced: Those whose earlier vector or position-delete file it replaces.
        attempts: How often a commit was attempted.
        dry_run: Whether nothing was written: rows, files and vectors are those that would be.
    """

    table: str
    branch: str
    snapshot_id: int | None = None
    reason: str = ""
    rows_deleted: int | None = 0
    files_removed: int = 0
    vectors_added: int = 0
    vectors_replaced: int = 0
    attempts: int = 1
    dry_run: bool = False

    def _lines(self) -> Iterator[Line]:
        vectors = listed(added=self.vectors_added, replaced=self.vectors_replaced)
        if self.vector_files:
            in_files = f"{size(self.vector_bytes)} in {counted(self.vector_files, 'file')}"
            vectors += f" ({in_files})"
        facts = {
            "files": listed(removed=self.files_removed),
            "vectors": vectors,
            "why": visible(self.reason),
            "commit": counted(self.attempts, "attempt") if self.attempts > 1 else "",
        }
        notes = self.notes
        return Summary(_headline(self), facts, self.phases, has_shares=True, notes=notes).lines()


def _headline(report: PositionDeleteReport) -> str:
    where = visible(report.table)
    if report.branch != "main":
        where += f", branch {visible(report.branch)}"
    rows = "all rows" if report.rows_deleted is None else counted(report.rows_deleted, "row")
    if report.dry_run:
        told = "dry run: nothing was written"
        return f"DELETE on {where}: {told}, {rows} would be deleted by position"
    if report.snapshot_id is None:
        return f"DELETE on {where}: nothing to do, nothing was written"
    return f"DELETE on {where}: snapshot {report.snapshot_id}, {rows} deleted by position"
