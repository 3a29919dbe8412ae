"""The report of cleaning a log, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from delvec.report.figures import counted, size, visible
from delvec.report.rendered import Rendered, Summary, document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delvec.report.rendered import Line

__all__ = ["LogReport"]


@dataclass(frozen=True)
class LogReport(Rendered):
    """What cleaning a log deleted, or would delete.

    >>> files = {"commit": 20, "checkpoint": 2}
    >>> print(LogReport("/lake/orders", 0, 20, files=files, bytes_deleted=2048))
    log of /lake/orders: 22 files (2.0 KiB) deleted, version 20 is the oldest that can be read
      deleted  20 commit files, 2 checkpoint files

    Attributes:
        table: Where the table is.
        before_ms: All versions that were current at this time or later stay readable.
        oldest: The oldest version that can be read; None if nothing could be deleted.
        dry_run: Whether nothing was deleted.
        files: How many files of each kind: commit, checksum, compacted, checkpoint, sidecar.
        bytes_deleted: Their size.
        notes: What users should know, in sentences.
    """

    table: str
    before_ms: int
    oldest: int | None = None
    dry_run: bool = False
    files: Mapping[str, int] = field(default_factory=dict)
    bytes_deleted: int = 0
    notes: tuple[str, ...] = ()

    @property
    def files_deleted(self) -> int:
        """How many files were deleted, or would be."""
        return sum(self.files.values())

    @property
    def before(self) -> datetime:
        """The time since when all versions stay readable."""
        return datetime.fromtimestamp(self.before_ms / 1000, tz=timezone.utc)

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""
        return {**document(self), "files_deleted": self.files_deleted}

    def _lines(self) -> Iterator[Line]:
        what = "nothing to delete"
        if self.files:
            verb = "would be deleted" if self.dry_run else "deleted"
            what = f"{counted(self.files_deleted, 'file')} ({size(self.bytes_deleted)}) {verb}"
        if self.oldest is not None:
            would = "would be" if self.dry_run and self.files else "is"
            what += f", version {self.oldest:,} {would} the oldest that can be read"
        kinds = ", ".join(counted(count, f"{kind} file") for kind, count in self.files.items())
        facts = {"deleted": kinds}
        return Summary(f"log of {visible(self.table)}: {what}", facts, notes=self.notes).lines()
