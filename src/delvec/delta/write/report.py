"""What a write did to a table, for people and for programs.

A report is a few figures, whatever the size of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delvec.report.figures import counted, listed, size, sizes, visible
from delvec.report.rendered import ChangeReport, Summary
from delvec.spellings import explain_name
from delvec.storage.counts import RequestCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.report.rendered import Line

__all__ = ["WriteReport"]


@dataclass(frozen=True)
class WriteReport(ChangeReport):
    """What a write did; prints as text, and renders in terminals and notebooks.

    >>> print(WriteReport("DELETE", "/lake/orders", 12, rows_deleted=1204, vectors_added=3))
    DELETE on /lake/orders: version 12, 1,204 rows deleted
      vectors  3 added

    Attributes, beside those of all reports (`ChangeReport`):
        operation: Its name in the history, such as DELETE or SET TBLPROPERTIES.
        table: Where the table is.
        version: The version that was committed; None if there was none.
        dry_run: Whether it was only planned: the figures are those of the plan.
        rows_deleted: Rows that were deleted.
        rows_updated: Rows that got new values.
        rows_inserted: Rows that were added.
        rows_copied: Unchanged rows that were rewritten to another file.
        files_scanned: Data files whose rows were read.
        files_pruned: Data files that partition values or statistics ruled out.
        files_added: Data files that were written.
        files_removed: Data files that were removed from the table.
        vectors_added: New deletion vectors of files that had none.
        vectors_updated: Vectors that replace older ones; not counted as added or removed.
        vectors_removed: Vectors of removed files.
        bytes_added: The size of the added data files.
        bytes_removed: The size of the removed data files.
        change_files: Files of the change data feed.
        requests: Requests of the driver to the store; those of Spark are not counted.
        attempts: How often a commit was attempted.
        reconciled: Files whose vector was united with that of a concurrent commit.
        scans: How often rows of the table were scanned for matches.
    """

    operation: str
    table: str
    version: int | None = None
    dry_run: bool = False
    rows_deleted: int = 0
    rows_updated: int = 0
    rows_inserted: int = 0
    rows_copied: int = 0
    files_scanned: int = 0
    files_pruned: int = 0
    files_added: int = 0
    files_removed: int = 0
    vectors_added: int = 0
    vectors_updated: int = 0
    vectors_removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0
    change_files: int = 0
    requests: RequestCounts = field(default_factory=RequestCounts)
    attempts: int = 1
    reconciled: int = 0
    scans: int = 0

    if not TYPE_CHECKING:  # to a type checker these names do not exist

        def __getattr__(self, name: str) -> object:
            raise explain_name(type(self), name)

    def _lines(self) -> Iterator[Line]:
        return Summary(
            _headline(self), _facts(self), self.phases, has_shares=True, notes=self.notes
        ).lines()


def _headline(report: WriteReport) -> str:
    rows = {
        "deleted": report.rows_deleted,
        "updated": report.rows_updated,
        "inserted": report.rows_inserted,
    }
    changed = {word: count for word, count in rows.items() if count}
    if report.dry_run:
        told = ["dry run: nothing was written"]
        would = [f"{counted(count, 'row')} would be {word}" for word, count in changed.items()]
        changes_files = report.files_added or report.files_removed or report.vectors_added
        told += would or ([] if changes_files else ["no row would change"])
    elif report.version is None:
        told = ["nothing to do, nothing was written"]
    else:
        told = [f"version {report.version:,}"]
        told += [f"{counted(count, 'row')} {word}" for word, count in changed.items()]
    return f"{report.operation} on {visible(report.table)}: {', '.join(told)}"


def _facts(report: WriteReport) -> dict[str, str]:
    """Return the figures by what they are about; empty where they are zero."""
    requests = report.requests
    vectors = listed(
        added=report.vectors_added, updated=report.vectors_updated, removed=report.vectors_removed
    )
    if report.vector_files:
        in_files = f"{size(report.vector_bytes)} in {counted(report.vector_files, 'file')}"
        vectors += f" ({in_files})" if vectors else in_files
    attempts = [counted(report.attempts, "attempt")] if report.attempts > 1 else []
    if report.reconciled:
        attempts.append(f"vectors of {counted(report.reconciled, 'file')} united with newer ones")
    return {
        "files": listed(
            scanned=report.files_scanned,
            pruned=report.files_pruned,
            added=report.files_added,
            removed=report.files_removed,
        ),
        "data": sizes(added=report.bytes_added, removed=report.bytes_removed),
        "rows": listed(copied=report.rows_copied),
        "vectors": vectors,
        "changes": counted(report.change_files, "file") if report.change_files else "",
        "scans": f"{report.scans:,}" if report.scans > 1 else "",
        "commit": ", ".join(attempts),
        "requests": listed(
            GET=requests.gets,
            HEAD=requests.heads,
            PUT=requests.puts,
            LIST=requests.lists,
            DELETE=requests.deletes,
        ),
        "traffic": sizes(read=requests.bytes_read, written=requests.bytes_written),
    }
