"""What resolving equality deletes did, or would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delvec.report.figures import counted, listed, size
from delvec.report.rendered import Rendered, Summary, document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delvec.report.rendered import Line

__all__ = ["ResolveReport"]


@dataclass(frozen=True)
class ResolveReport(Rendered):
    """What resolving equality deletes did.

    >>> print(ResolveReport("lake.db.orders", "main", snapshot_id=7, delete_files=2, keys=30,
    ...                     absent=4, rows_deleted=26, vectors_added=3, vector_bytes=900))
    RESOLVE on lake.db.orders: snapshot 7 of main
      equality deletes  2 files, 30 keys, 4 of them absent
      deleted rows      26
      vectors           3, 900 B

    Attributes:
        table: The name of the table.
        target: The branch that the vectors were committed to.
        staging: The branch that changes were taken from; None if resolved in place.
        snapshot_id: The newest snapshot that was committed; None if there was nothing to do.
        commits: How many snapshots were committed.
        staged_snapshots: Snapshots of the staging branch that were taken over.
        waiting_snapshots: Those that are left to be taken over.
        oldest_staged_ms: When the oldest of those taken over was committed to the staging branch,
            in milliseconds since 1970.
        delete_files: Ordinary equality-delete files that were resolved.
        key_vectors: Equality delete vectors that were resolved.
        keys: Deleted keys in these, each counted once a commit.
        absent: Those of them that no row had.
        rows_deleted: Live rows that had a deleted key.
        data_files_added: Data files that were taken over from the staging branch.
        rows_added: Their live rows.
        data_files_removed: Data files that had no live row left.
        vectors_added: Data files with a new deletion vector, or position-delete file.
        vectors_replaced: Those of them that had one before.
        vector_bytes: The size of the files of the new ones.
        strategy: How rows were found: `join` or `index`; empty if none were looked for.
        reason: Why so.
        index_rows: Rows of the primary-key index; None if there is none.
        conflicts: Concurrent commits after which something was done again.
        verified: What was verified before each commit: `counts`, `rows` or `none`.
        dry_run: Whether nothing was written.
        phases: Seconds by phase.
        notes: What else there is to know, in sentences.
    """

    table: str
    target: str
    staging: str | None = None
    snapshot_id: int | None = None
    commits: int = 0
    staged_snapshots: int = 0
    waiting_snapshots: int = 0
    oldest_staged_ms: int | None = None
    delete_files: int = 0
    key_vectors: int = 0
    keys: int = 0
    absent: int = 0
    rows_deleted: int = 0
    data_files_added: int = 0
    rows_added: int = 0
    data_files_removed: int = 0
    vectors_added: int = 0
    vectors_replaced: int = 0
    vector_bytes: int = 0
    strategy: str = ""
    reason: str = ""
    index_rows: int | None = None
    conflicts: int = 0
    verified: str = "none"
    dry_run: bool = False
    phases: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""
        return document(self)

    def brief(self) -> str:
        """Return one line for a log."""
        counts = {"rows deleted": self.rows_deleted, "rows added": self.rows_added}
        found = listed(**counts, absent=self.absent)
        return f"{self._outcome()}: {found or 'no row has a deleted key'}"

    def _lines(self) -> Iterator[Line]:
        facts = {
            "staged": counted(self.staged_snapshots, "snapshot") if self.staged_snapshots else "",
            "waiting": counted(self.waiting_snapshots, "snapshot")
            if self.waiting_snapshots
            else "",
            "equality deletes": self._deletes(),
            "deleted rows": f"{self.rows_deleted:,}" if self.rows_deleted else "",
            "data files": listed(added=self.data_files_added, removed=self.data_files_removed),
            "added rows": f"{self.rows_added:,}" if self.rows_added else "",
            "vectors": self._vectors(),
            "found by": f"{self.strategy}: {self.reason}" if self.reason else self.strategy,
            "index": counted(self.index_rows, "row") if self.index_rows else "",
            "verified": "" if self.verified == "none" else self.verified,
            "concurrent commits": f"{self.conflicts:,}" if self.conflicts else "",
        }
        headline = f"RESOLVE on {self.table}: {self._outcome()}"
        return Summary(headline, facts, self.phases, notes=self.notes).lines()

    def _outcome(self) -> str:
        where = self.target if self.staging is None else f"{self.staging} to {self.target}"
        if self.dry_run:
            return f"{where}, dry run, nothing was written"
        if self.snapshot_id is None:
            return f"{where}, nothing to do"
        of = self.target if self.staging is None else f"{self.target}, from {self.staging}"
        return f"snapshot {self.snapshot_id} of {of}"

    def _deletes(self) -> str:
        parts = []
        if self.delete_files:
            parts.append(counted(self.delete_files, "file"))
        if self.key_vectors:
            parts.append(counted(self.key_vectors, "equality delete vector"))
        if self.keys:
            parts.append(counted(self.keys, "key"))
        if self.absent:
            parts.append(f"{self.absent:,} of them absent")
        return ", ".join(parts)

    def _vectors(self) -> str:
        if not self.vectors_added:
            return ""
        replaced = f", {self.vectors_replaced:,} replaced" if self.vectors_replaced else ""
        written = f", {size(self.vector_bytes)}" if self.vector_bytes else ""
        return f"{self.vectors_added:,}{replaced}{written}"
