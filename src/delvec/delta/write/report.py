"""What a write did to a table, for people and for programs.

A report is a few figures, whatever the size of the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from delvec.calls import explain_name
from delvec.report.format import format_count, format_list, nonzero, sizes
from delvec.report.rendering import ChangeReport, doc, documented, required
from delvec.storage.backend import RequestCounts


@documented()
class WriteReport(ChangeReport):
    """What a write did; prints as text, and renders in terminals and notebooks.

    >>> print(WriteReport("DELETE", "/lake/orders", 12, rows_deleted=1204, vectors_added=3))
    DELETE on /lake/orders: version 12, 1,204 rows deleted
      vectors  3 added
    """

    _has_shares: ClassVar = True

    operation: str = required("Its name in the history, such as DELETE or SET TBLPROPERTIES.")
    table: str = required("Where the table is.")
    version: int | None = doc("The version that was committed; None if there was none.", None)
    dry_run: bool = doc("Whether it was only planned: the figures are those of the plan.", False)
    rows_deleted: int = doc("Rows that were deleted.", 0)
    rows_updated: int = doc("Rows that got new values.", 0)
    rows_inserted: int = doc("Rows that were added.", 0)
    rows_copied: int = doc("Unchanged rows that were rewritten to another file.", 0)
    files_scanned: int = doc("Data files whose rows were read.", 0)
    files_pruned: int = doc("Data files that partition values or statistics ruled out.", 0)
    files_added: int = doc("Data files that were written.", 0)
    files_removed: int = doc("Data files that were removed from the table.", 0)
    vectors_added: int = doc("New deletion vectors of files that had none.", 0)
    vectors_updated: int = doc("Vectors that replace older ones; neither added nor removed.", 0)
    vectors_removed: int = doc("Vectors of removed files.", 0)
    bytes_added: int = doc("The size of the added data files.", 0)
    bytes_removed: int = doc("The size of the removed data files.", 0)
    change_files: int = doc("Files of the change data feed.", 0)
    requests: RequestCounts = doc(
        "Requests of the driver to the store; those of Spark are not counted.", RequestCounts
    )
    attempts: int = doc("How often a commit was attempted.", 1)
    reconciled: int = doc("Files whose vector was united with that of a concurrent commit.", 0)
    scans: int = doc("How often rows of the table were scanned for matches.", 0)

    if not TYPE_CHECKING:  # to a type checker these names do not exist

        def __getattr__(self, name: str) -> object:
            if name.startswith("_"):  # as of copies and pickles, which have no fields yet
                raise explain_name(type(self), name)
            before = (self.version or 0) - 1
            undo = f"; restore(version={before}) takes this one back" if before >= 0 else ""
            raise explain_name(type(self), name, done=self._headline(), undo=undo)

    def _headline(self) -> str:
        words = ("deleted", "updated", "inserted")
        rows = {word: getattr(self, f"rows_{word}") for word in words}
        changed = {word: format_count(count, "row") for word, count in rows.items() if count}
        if self.dry_run:
            told = ["dry run: nothing was written"]
            would = [f"{count} would be {word}" for word, count in changed.items()]
            changes_files = self.files_added or self.files_removed or self.vectors_added
            told += would or ([] if changes_files else ["no row would change"])
        elif self.version is None:
            told = ["nothing to do, nothing was written"]
        else:
            told = [f"version {self.version:,}"]
            told += [f"{count} {word}" for word, count in changed.items()]
        return f"{self.operation} on {self.table}: {', '.join(told)}"

    def _facts(self) -> dict[str, str]:
        requests = self.requests
        attempts = [format_count(self.attempts, "attempt")] if self.attempts > 1 else []
        if self.reconciled:
            united = format_count(self.reconciled, "file")
            attempts.append(f"vectors of {united} united with newer ones")
        return {
            "files": self._counts("files", "scanned", "pruned", "added", "removed"),
            "data": sizes(added=self.bytes_added, removed=self.bytes_removed),
            "rows": self._counts("rows", "copied"),
            "vectors": self._vectors("added", "updated", "removed"),
            "changes": nonzero(self.change_files, "file"),
            "scans": f"{self.scans:,}" if self.scans > 1 else "",
            "commit": ", ".join(attempts),
            "requests": format_requests(requests),
            "traffic": sizes(read=requests.bytes_read, written=requests.bytes_written),
        }


def format_requests(made: RequestCounts) -> str:
    """Return how many requests of each kind were made."""
    return format_list(
        GET=made.gets, HEAD=made.heads, PUT=made.puts, LIST=made.lists, DELETE=made.deletes
    )
