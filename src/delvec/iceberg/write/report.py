"""What a write to an Iceberg table did, for people and for programs."""

from __future__ import annotations

from typing import ClassVar

from delvec.report.format import format_count, format_size, nonzero
from delvec.report.rendering import ChangeReport, doc, documented, required


@documented()
class KeyDeleteReport(ChangeReport):
    """What an append, a delete by key or an upsert did.

    >>> print(KeyDeleteReport("DELETE KEYS", "lake.db.orders", "main", 7, keys=3, delete_files=1))
    DELETE KEYS on lake.db.orders: snapshot 7 of main, 3 keys deleted
      deletes  1 equality-delete file, 0 B
    """

    operation: str = required("APPEND, DELETE KEYS or UPSERT.")
    table: str = required("The table.")
    branch: str = required("The branch.")
    snapshot_id: int | None = doc(
        "The snapshot committed; None if nothing was to be written.", None
    )
    replayed: bool = doc(
        "Whether the transaction was committed before: nothing was written.", False
    )
    keys: int = doc("Distinct keys that are deleted, whether rows have them or not.", 0)
    null_keys: int = doc("Keys with a null among them.", 0)
    rows_added: int = doc("Rows that were added.", 0)
    files_added: int = doc("Data files.", 0)
    bytes_added: int = doc("Their size.", 0)
    delete_files: int = doc("Ordinary equality-delete files.", 0)
    delete_bytes: int = doc("Their size.", 0)
    key_vectors: int = doc("Equality delete vectors; their size is `vector_bytes`.", 0)
    scope: str = doc("The partition that the deletes apply to, or `global`.", "global")
    duplicates: int = doc("Rows of the batch that a later row with the same key replaced.", 0)
    forms: tuple[str, ...] = doc("In which form keys were written and why, in sentences.", ())
    dry_run: bool = doc("Whether nothing was written: keys and rows are what would be.", False)

    def _headline(self) -> str:
        if self.replayed:
            told = "this transaction was committed before, nothing was written"
        elif self.dry_run:
            told = "dry run: nothing was written" + self._changes("would be ")
        elif self.snapshot_id is None:
            told = "nothing to do, nothing was written"
        else:
            told = f"snapshot {self.snapshot_id} of {self.branch}" + self._changes()
        return f"{self.operation} on {self.table}: {told}"

    def _changes(self, would: str = "") -> str:
        keys = f", {format_count(self.keys, 'key')} {would}deleted" if self.keys else ""
        rows = f", {format_count(self.rows_added, 'row')} {would}added" if self.rows_added else ""
        return keys + rows

    def _facts(self) -> dict[str, str]:
        files = _sized(self.delete_files, "equality-delete file", self.delete_bytes)
        vectors = _sized(self.key_vectors, "equality delete vector", self.vector_bytes)
        return {
            "deletes": "; ".join(filter(None, (files, vectors))),
            "scope": "" if self.scope == "global" else self.scope,
            "added": _sized(self.files_added, "data file", self.bytes_added),
            "duplicates": nonzero(self.duplicates, "row"),
            "null keys": nonzero(self.null_keys) if self.dry_run else "",
        }

    def _notes(self) -> tuple[str, ...]:
        return (*self.forms, *self.notes)


@documented()
class PositionDeleteReport(ChangeReport):
    """What a delete by row positions did; prints as text, on terminals and in notebooks.

    >>> print(PositionDeleteReport("lake.db.t", "main", 12, rows_deleted=3, vectors_added=1))
    DELETE on lake.db.t: snapshot 12, 3 rows deleted by position
      vectors  1 added
    """

    _has_shares: ClassVar = True

    table: str = required("The table.")
    branch: str = required("The branch.")
    snapshot_id: int | None = doc("The new snapshot; None if nothing was committed.", None)
    reason: str = doc("Why rows were deleted by position and not by key.", "")
    rows_deleted: int | None = doc(
        "Rows that were deleted; None if files were removed whose rows were not counted.", 0
    )
    files_removed: int = doc("Data files all of whose rows were deleted.", 0)
    vectors_added: int = doc(
        "Data files that got a vector, or a position-delete file in a table of format 2.", 0
    )
    vectors_replaced: int = doc(
        "Those whose earlier vector or position-delete file is replaced.", 0
    )
    attempts: int = doc("How often a commit was attempted.", 1)
    dry_run: bool = doc("Whether nothing was written: figures are those that would be.", False)

    def _headline(self) -> str:
        where = self.table if self.branch == "main" else f"{self.table}, branch {self.branch}"
        rows = "all rows" if self.rows_deleted is None else format_count(self.rows_deleted, "row")
        if self.dry_run:
            told = f"dry run: nothing was written, {rows} would be deleted by position"
        elif self.snapshot_id is None:
            told = "nothing to do, nothing was written"
        else:
            told = f"snapshot {self.snapshot_id}, {rows} deleted by position"
        return f"DELETE on {where}: {told}"

    def _facts(self) -> dict[str, str]:
        return {
            "files": self._counts("files", "removed"),
            "vectors": self._vectors("added", "replaced"),
            "why": self.reason,
            "commit": format_count(self.attempts, "attempt") if self.attempts > 1 else "",
        }


def _sized(count: int, noun: str, size: int) -> str:
    return f"{format_count(count, noun)}, {format_size(size)}" if count else ""
