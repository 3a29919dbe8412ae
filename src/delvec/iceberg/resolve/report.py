"""What resolving equality deletes did, or would do."""

from __future__ import annotations

from delvec.report.format import format_counts, format_list, format_outcome, format_size, nonzero
from delvec.report.rendering import OperationReport, doc, documented, required


@documented()
class ResolveReport(OperationReport):
    """What resolving equality deletes did.

    >>> print(ResolveReport("lake.db.orders", "main", snapshot_id=7, delete_files=2, keys=30,
    ...                     absent=4, rows_deleted=26, vectors_added=3, vector_bytes=900))
    RESOLVE on lake.db.orders: snapshot 7 of main
      equality deletes  2 files, 30 keys, 4 of them absent
      deleted rows      26
      vectors           3, 900 B
    """

    table: str = required("The name of the table.")
    target: str = required("The branch that the vectors were committed to.")
    staging: str | None = doc("The branch that changes came from; None if in place.", None)
    snapshot_id: int | None = doc("The newest snapshot committed; None if nothing was to do.", None)
    commits: int = doc("How many snapshots were committed.", 0)
    staged_snapshots: int = doc("Snapshots of the staging branch that were taken over.", 0)
    waiting_snapshots: int = doc("Those that are left to be taken over.", 0)
    oldest_staged_ms: int | None = doc(
        "When the oldest of those taken over was staged, in milliseconds since 1970.", None
    )
    delete_files: int = doc("Ordinary equality-delete files that were resolved.", 0)
    key_vectors: int = doc("Equality delete vectors that were resolved.", 0)
    keys: int = doc("Deleted keys in these, each counted once a commit.", 0)
    absent: int = doc("Those of them that no row had.", 0)
    rows_deleted: int = doc("Live rows that had a deleted key.", 0)
    data_files_added: int = doc("Data files that were taken over from the staging branch.", 0)
    rows_added: int = doc("Their live rows.", 0)
    data_files_removed: int = doc("Data files that had no live row left.", 0)
    vectors_added: int = doc("Data files with a new deletion vector, or position-delete file.", 0)
    vectors_replaced: int = doc("Those of them that had one before.", 0)
    vector_bytes: int = doc("The size of the files of the new ones.", 0)
    strategy: str = doc("How rows were found: `join` or `index`; empty if none were sought.", "")
    reason: str = doc("Why so.", "")
    index_rows: int | None = doc("Rows of the primary-key index; None if there is none.", None)
    conflicts: int = doc("Concurrent commits after which something was done again.", 0)
    verified: str = doc("What was verified before each commit: `counts`, `rows` or `none`.", "none")
    dry_run: bool = doc("Whether nothing was written.", False)

    def brief(self) -> str:
        counts = {"rows deleted": self.rows_deleted, "rows added": self.rows_added}
        found = format_list(**counts, absent=self.absent)
        return f"{self._outcome()}: {found or 'no row has a deleted key'}"

    def _headline(self) -> str:
        return f"RESOLVE on {self.table}: {self._outcome()}"

    def _facts(self) -> dict[str, str]:
        nouns = ("file", "equality delete vector", "key")
        counts = dict(zip(nouns, (self.delete_files, self.key_vectors, self.keys), strict=True))
        absent = f"{self.absent:,} of them absent" if self.absent else ""
        return {
            "staged": nonzero(self.staged_snapshots, "snapshot"),
            "waiting": nonzero(self.waiting_snapshots, "snapshot"),
            "equality deletes": ", ".join(filter(None, (format_counts(counts), absent))),
            "deleted rows": nonzero(self.rows_deleted),
            "data files": self._counts("data_files", "added", "removed"),
            "added rows": nonzero(self.rows_added),
            "vectors": self._vectors() if self.vectors_added else "",
            "found by": f"{self.strategy}: {self.reason}" if self.reason else self.strategy,
            "index": nonzero(self.index_rows, "row"),
            "verified": "" if self.verified == "none" else self.verified,
            "concurrent commits": nonzero(self.conflicts),
        }

    def _outcome(self) -> str:
        where = self.target
        if self.staging is not None:
            is_new = self.snapshot_id is not None and not self.dry_run
            where = f"{where}, from {self.staging}" if is_new else f"{self.staging} to {where}"
        return format_outcome(where, self.snapshot_id, dry_run=self.dry_run)

    def _vectors(self) -> str:
        replaced = f", {self.vectors_replaced:,} replaced" if self.vectors_replaced else ""
        written = f", {format_size(self.vector_bytes)}" if self.vector_bytes else ""
        return f"{self.vectors_added:,}{replaced}{written}"
