"""What a compaction of data files did, or would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delvec.report.figures import counted, size
from delvec.report.rendered import Rendered, Summary, document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delvec.report.rendered import Line

__all__ = ["CompactReport"]


@dataclass(frozen=True)
class CompactReport(Rendered):
    """What a compaction of data files did.

    >>> print(CompactReport("lake.db.orders", snapshot_id=7, files_rewritten=40, files_added=2,
    ...                     bytes_rewritten=5_000_000, delete_files_removed=3))
    COMPACT of lake.db.orders: snapshot 7 of main
      data files       40 -> 2
      rewritten        4.8 MiB
      removed deletes  3 files

    Attributes:
        table: The name of the table.
        branch: The branch.
        snapshot_id: The newest snapshot that was committed; None if there was nothing to do.
        files_rewritten: Data files that were replaced.
        files_added: Data files in their place; in a dry run those that are expected.
        bytes_rewritten: The size of those that were replaced.
        groups: File groups that would be rewritten, each in one job; only known in a dry run.
        files_failed: Data files that could not be rewritten, with `partial-progress` only.
        delete_files_removed: Delete files and vectors that went with the rows that they delete;
            not known in a dry run.
        dry_run: Whether nothing was written.
        phases: Seconds by phase.
        notes: What users should know, in sentences.
    """

    table: str
    branch: str = "main"
    snapshot_id: int | None = None
    files_rewritten: int = 0
    files_added: int = 0
    bytes_rewritten: int = 0
    groups: int | None = None
    files_failed: int = 0
    delete_files_removed: int | None = 0
    dry_run: bool = False
    phases: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""
        return document(self)

    def _lines(self) -> Iterator[Line]:
        files = f"{self.files_rewritten:,} -> {self.files_added:,}" if self.files_rewritten else ""
        removed = self.delete_files_removed
        return Summary(
            f"COMPACT of {self.table}: {self._outcome()}",
            {
                "data files": files,
                "rewritten": size(self.bytes_rewritten) if self.bytes_rewritten else "",
                "groups": f"{self.groups:,}" if self.groups else "",
                "failed": counted(self.files_failed, "file") if self.files_failed else "",
                "removed deletes": counted(removed, "file") if removed else "",
            },
            self.phases,
            notes=self.notes,
        ).lines()

    def _outcome(self) -> str:
        if self.dry_run:
            return f"{self.branch}, dry run, nothing was written"
        if self.snapshot_id is None:
            return f"{self.branch}, nothing to do"
        return f"snapshot {self.snapshot_id} of {self.branch}"
