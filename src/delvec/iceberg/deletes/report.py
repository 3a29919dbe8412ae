"""What a write to an Iceberg table did, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.report.figures import counted, size, visible
from delvec.report.rendered import ChangeReport, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.report.rendered import Line

__all__ = ["KeyDeleteReport"]


@dataclass(frozen=True)
class KeyDeleteReport(ChangeReport):
    """What an append, a delete by key or an upsert did.

    >>> print(KeyDeleteReport("DELETE KEYS", "lake.db.orders", "main", 7, keys=3, delete_files=1))
    DELETE KEYS on lake.db.orders: snapshot 7 of main, 3 keys deleted
      deletes  1 equality-delete file, 0 B

    Attributes, beside those of all reports (`ChangeReport`):
        operation: APPEND, DELETE KEYS or UPSERT.
        table: The table.
        branch: The branch.
        snapshot_id: The snapshot that was committed; None if there was nothing to write.
        replayed: Whether nothing was written since the transaction had been committed before.
        keys: Distinct keys that are deleted, whether rows have them or not.
        null_keys: Keys with a null among them.
        rows_added: Rows that were added.
        files_added: Data files.
        bytes_added: Their size.
        delete_files: Ordinary equality-delete files.
        delete_bytes: Their size.
        key_vectors: Equality delete vectors; their size is `vector_bytes`.
        scope: The partition that the deletes apply to, or `global`.
        duplicates: Rows of the batch that a later row with the same key replaced.
        forms: In which form keys were written and why, in sentences.
        dry_run: Whether nothing was written: keys and rows are those that would be.
    """

    operation: str
    table: str
    branch: str
    snapshot_id: int | None = None
    replayed: bool = False
    keys: int = 0
    null_keys: int = 0
    rows_added: int = 0
    files_added: int = 0
    bytes_added: int = 0
    delete_files: int = 0
    delete_bytes: int = 0
    key_vectors: int = 0
    scope: str = "global"
    duplicates: int = 0
    forms: tuple[str, ...] = ()
    dry_run: bool = False

    def _lines(self) -> Iterator[Line]:
        deletes = []
        if self.delete_files:
            files = counted(self.delete_files, "equality-delete file")
            deletes.append(f"{files}, {size(self.delete_bytes)}")
        if self.key_vectors:
            vectors = counted(self.key_vectors, "equality delete vector")
            deletes.append(f"{vectors}, {size(self.vector_bytes)}")
        added = f"{counted(self.files_added, 'data file')}, {size(self.bytes_added)}"
        facts = {
            "deletes": "; ".join(deletes),
            "scope": "" if self.scope == "global" else self.scope,
            "added": added if self.files_added else "",
            "duplicates": counted(self.duplicates, "row") if self.duplicates else "",
            "null keys": f"{self.null_keys:,}" if self.dry_run and self.null_keys else "",
        }
        notes = (*self.forms, *self.notes)
        return Summary(_headline(self), facts, self.phases, notes=notes).lines()


def _headline(report: KeyDeleteReport) -> str:
    told = []
    if report.replayed:
        told.append("this transaction was committed before, nothing was written")
    elif report.dry_run:
        told.append("dry run: nothing was written")
        if report.keys:
            told.append(f"{counted(report.keys, 'key')} would be deleted")
        if report.rows_added:
            told.append(f"{counted(report.rows_added, 'row')} would be added")
    elif report.snapshot_id is None:
        told.append("nothing to do, nothing was written")
    else:
        told.append(f"snapshot {report.snapshot_id} of {visible(report.branch)}")
        if report.keys:
            told.append(f"{counted(report.keys, 'key')} deleted")
        if report.rows_added:
            told.append(f"{counted(report.rows_added, 'row')} added")
    return f"{report.operation} on {visible(report.table)}: {', '.join(told)}"
