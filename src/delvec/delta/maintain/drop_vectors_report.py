"""What a downgrade did to a table, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delvec.report.figures import counted, size, visible
from delvec.report.rendered import Rendered, Summary, document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.delta.schema.protocol import Protocol
    from delvec.report.rendered import Line

__all__ = ["DowngradeReport", "shown_protocol"]


@dataclass(frozen=True)
class DowngradeReport(Rendered):
    """What a downgrade did, or would do.

    >>> print(DowngradeReport("/lake/t", 9, "reader 3, writer 7", "reader 1, writer 2"))
    DOWNGRADE of /lake/t: version 9, reader 1, writer 2
      before  reader 3, writer 7

    Attributes:
        table: Where the table is.
        version: The version that has the new protocol; None if there is none.
        before: The protocol before.
        after: The protocol after.
        dry_run: Whether it was only planned.
        files_with_vectors: Files that had a vector and were rewritten.
        bytes_rewritten: Their size.
        vector_files: Files of vectors that older versions need; tombstones of their own keep them
            from the VACUUM of engines that do not know vectors.
        checkpoints: Checkpoints that were written.
        log_files_deleted: Files of the log that were deleted.
        commits: The versions that were committed, and the operation of each.
        notes: What users should know, in sentences.
    """

    table: str
    version: int | None
    before: str
    after: str
    dry_run: bool = False
    files_with_vectors: int = 0
    bytes_rewritten: int = 0
    vector_files: int = 0
    checkpoints: int = 0
    log_files_deleted: int = 0
    commits: tuple[tuple[int, str], ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""
        commits = [{"version": version, "operation": name} for version, name in self.commits]
        return {**document(self), "commits": commits}

    def _lines(self) -> Iterator[Line]:
        if self.dry_run:
            told = f"dry run: nothing was written, would be {self.after}"
        elif self.version is None:
            told = "nothing to do, nothing was written"
        else:
            told = f"version {self.version:,}, {self.after}"
        files = counted(self.files_with_vectors, "file")
        facts = {
            "before": self.before if self.before != self.after else "",
            "rewritten": f"{files} with vectors ({size(self.bytes_rewritten)})"
            if self.files_with_vectors
            else "",
            "kept": f"{counted(self.vector_files, 'vector file')} for older versions"
            if self.vector_files
            else "",
            "written": counted(self.checkpoints, "checkpoint") if self.checkpoints else "",
            "deleted": f"{counted(self.log_files_deleted, 'file')} of the log"
            if self.log_files_deleted
            else "",
            "commits": ", ".join(f"{version} {name}" for version, name in self.commits),
        }
        headline = f"DOWNGRADE of {visible(self.table)}: {told}"
        return Summary(headline, facts, notes=self.notes).lines()


def shown_protocol(protocol: Protocol) -> str:
    """Return a protocol in words.

    >>> from delvec.delta.schema.protocol import Protocol
    >>> shown_protocol(Protocol(1, 7, frozenset(), frozenset({"rowTracking", "appendOnly"})))
    'reader 1, writer 7 with appendOnly, rowTracking'
    """
    versions = f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}"
    features = ", ".join(sorted(protocol.features))
    return f"{versions} with {features}" if features else versions
