"""The report of cleaning a target, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.report.figures import counted, size, visible
from delvec.report.rendered import Rendered, Summary, document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delvec.report.rendered import Line

__all__ = ["REMOVED_FILES", "CleanReport"]

REMOVED_FILES: Final = pa.schema(
    {
        "path": pa.string(),
        "kind": pa.string(),
        "reason": pa.string(),
        "bytes": pa.int64(),
        "modified": pa.timestamp("ms", "UTC"),
    }
)


@dataclass(frozen=True, eq=False)
class CleanReport(Rendered):
    """What cleaning removed from a target, or would remove.

    Prints as a summary, also on terminals and in notebooks.

    >>> print(CleanReport("ice.db.orders", snapshots=(7, 8), snapshots_kept=3, dry_run=True))
    ice.db.orders: 2 snapshots would expire; nothing was changed
      snapshots  2 expire, 3 are kept

    Attributes:
        target: The Iceberg table.
        dry_run: Whether nothing was changed.
        snapshots: The ids of expired snapshots, oldest first.
        snapshots_kept: How many snapshots the target still has.
        tags: Tags of versions that were removed with their snapshots.
        branches: Staging branches of dead conversions that were removed.
        files: A row for each deleted file: path, kind, reason (`expired` with its snapshots, or
            `orphan`), bytes and modification time.
        files_young: Files that no metadata refers to and that are younger than the orphan age.
        files_unknown: Files in the location that neither Iceberg nor delvec wrote; never deleted.
        phases: Seconds by phase, in order.
        notes: What users should know, in sentences.
    """

    target: str
    dry_run: bool = False
    snapshots: tuple[int, ...] = ()
    snapshots_kept: int = 0
    tags: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    files: pa.Table = field(default_factory=REMOVED_FILES.empty_table)
    files_young: int = 0
    files_unknown: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def bytes_deleted(self) -> int:
        """The size of all deleted files."""
        return int(pc.sum(self.files["bytes"], min_count=0).as_py())

    def count(self, reason: str) -> int:
        """Return how many files were deleted as `expired` or as `orphan`."""
        return int(pc.sum(pc.equal(self.files["reason"], reason), min_count=0).as_py())

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs, with the number of files instead of the files."""
        found = document(self)
        del found["files"]
        return {
            **found,
            "files_expired": self.count("expired"),
            "files_orphaned": self.count("orphan"),
            "bytes_deleted": self.bytes_deleted,
        }

    def _lines(self) -> Iterator[Line]:
        return Summary(_headline(self), _facts(self), self.phases, notes=self.notes).lines()


def _headline(report: CleanReport) -> str:
    would = "would " if report.dry_run else ""
    parts = []
    if report.snapshots:
        verb = "expire" if report.dry_run else "expired"
        parts.append(f"{counted(len(report.snapshots), 'snapshot')} {would}{verb}")
    if len(report.files):
        verb = "would be" if report.dry_run else "were"
        deleted = size(report.bytes_deleted)
        parts.append(f"{counted(len(report.files), 'file')} ({deleted}) {verb} deleted")
    end = "; nothing was changed" if report.dry_run else ""
    return f"{visible(report.target)}: {', '.join(parts) or 'nothing to remove'}{end}"


def _facts(report: CleanReport) -> dict[str, str]:
    snapshots = f"{report.snapshots_kept:,} are kept"
    if report.snapshots:
        snapshots = f"{len(report.snapshots):,} expire, {snapshots}"
    left = [
        f"{counted(count, 'file')} {what}"
        for what, count in {
            "younger than the orphan age": report.files_young,
            "of unknown origin": report.files_unknown,
        }.items()
        if count
    ]
    return {
        "snapshots": snapshots,
        "tags": _names(report.tags),
        "branches": _names(report.branches),
        "expired": _kinds(report, "expired"),
        "orphans": _kinds(report, "orphan"),
        "left": ", ".join(left),
    }


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(map(visible, names[:3]))
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"{len(names):,}: {shown}{more}" if names else ""


def _kinds(report: CleanReport, reason: str) -> str:
    """Return how many files of each kind there are, most first."""
    kinds = report.files.filter(pc.equal(report.files["reason"], reason))["kind"]
    counts = sorted(
        ((each["counts"], each["values"]) for each in pc.value_counts(kinds).to_pylist()),
        reverse=True,
    )
    return ", ".join(counted(count, kind) for count, kind in counts)
