"""What maintenance of an Iceberg table did, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delvec.report.figures import counted, listed
from delvec.report.rendered import Rendered, Summary, document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delvec.report.rendered import Line

__all__ = ["ExpireReport", "OrphanReport"]

_SHOWN = 10


@dataclass(frozen=True)
class ExpireReport(Rendered):
    """What the expiry of snapshots removed.

    >>> print(ExpireReport("lake.db.orders", snapshots=12, snapshots_left=3, data_files=4))
    EXPIRE SNAPSHOTS of lake.db.orders: 12 snapshots expired, 3 left
      deleted files  4 of data

    Attributes:
        table: The name of the table.
        snapshots: Snapshots that expired.
        snapshots_left: Snapshots that are left.
        refs: Branches and tags that expired by their own settings.
        data_files: Data files that were deleted.
        position_delete_files: Position delete files and Puffin files of deletion vectors.
        equality_delete_files: Equality delete files and equality delete vectors.
        manifests: Manifests.
        manifest_lists: Manifest lists.
        statistics_files: Statistics files, equality delete vectors that ride along among them.
        phases: Seconds by phase.
        notes: What users should know, in sentences.
        dry_run: Whether nothing was removed: only the snapshots are counted.
        refused: Files that were not deleted, since they are outside the table's location.
    """

    table: str
    snapshots: int = 0
    snapshots_left: int = 0
    refs: tuple[str, ...] = ()
    data_files: int = 0
    position_delete_files: int = 0
    equality_delete_files: int = 0
    manifests: int = 0
    manifest_lists: int = 0
    statistics_files: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    dry_run: bool = False
    refused: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""
        return document(self)

    def _lines(self) -> Iterator[Line]:
        files = {
            "of data": self.data_files,
            "of position deletes": self.position_delete_files,
            "of equality deletes": self.equality_delete_files,
            "of statistics": self.statistics_files,
        }
        expired = counted(self.snapshots, "snapshot")
        expired += " would be" if self.dry_run else ""
        return Summary(
            f"EXPIRE SNAPSHOTS of {self.table}: {expired} expired, {self.snapshots_left:,} left",
            {
                "refs expired": ", ".join(self.refs),
                "deleted files": listed(**files),
                "metadata": listed(
                    manifests=self.manifests, **{"manifest lists": self.manifest_lists}
                ),
            },
            self.phases,
            notes=self.notes,
        ).lines()


@dataclass(frozen=True)
class OrphanReport(Rendered):
    """Files in a table's location that no snapshot refers to.

    >>> print(OrphanReport("lake.db.orders", ("/lake/orders/data/x.parquet",), dry_run=True))
    REMOVE ORPHAN FILES of lake.db.orders: 1 file would be deleted
      /lake/orders/data/x.parquet

    Attributes:
        table: The name of the table.
        files: Their paths, sorted.
        dry_run: Whether they were only looked for.
        phases: Seconds by phase.
        refused: Files that were not deleted: they are another table's, or links lead to them.
    """

    table: str
    files: tuple[str, ...] = ()
    dry_run: bool = False
    phases: Mapping[str, float] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""
        return document(self)

    def _lines(self) -> Iterator[Line]:
        done = "would be deleted" if self.dry_run else "deleted"
        shown = list(self.files[:_SHOWN])
        if left := len(self.files) - len(shown):
            shown.append(f"… and {left:,} more")
        return Summary(
            f"REMOVE ORPHAN FILES of {self.table}: {counted(len(self.files), 'file')} {done}",
            {"not deleted": ", ".join(self.refused[:_SHOWN])},
            self.phases,
            details=tuple(shown),
        ).lines()
