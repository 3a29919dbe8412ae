"""Which files an operation has to read, by partition values and statistics of the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from delvec.delta.read.snapshot_reader import is_understood

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.pruning.predicate import Predicate

__all__ = ["Targets", "targets_of"]


@dataclass(frozen=True)
class Targets:
    """The files of a version, by how a condition matches them.

    Attributes:
        predicate: What pruning understands of the condition.
        whole: Indexes of files all of whose rows match.
        open: Indexes of files whose rows have to be read.
        total: The number of files of the version.
    """

    predicate: Predicate
    whole: NDArray[np.int64]
    open: NDArray[np.int64]
    total: int

    @property
    def figures(self) -> dict[str, int]:
        """Their counts for a report."""
        return {
            "files_scanned": len(self.open),
            "files_pruned": self.total - len(self.whole) - len(self.open),
            "scans": int(len(self.open) > 0),
        }


def targets_of(snapshot: Snapshot, predicate: Predicate, zone: str) -> Targets:
    """Divide the files of a version by partition values and statistics; reads no data file.

    Args:
        snapshot: The version.
        predicate: What pruning understands of the condition.
        zone: The time zone of timestamps that name none.
    """
    files = snapshot.files
    may = files.may_match(predicate, zone)
    surely = np.zeros(len(files), dtype=np.bool_)
    if is_understood(predicate, snapshot.metadata.schema):
        surely = files.must_match(predicate, zone) & may
    return Targets(predicate, np.flatnonzero(surely), np.flatnonzero(may & ~surely), len(files))
