"""Which files an operation is about, by the log alone: before any row is read."""

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
    """The files of a version, by what a condition says of them.

    Attributes:
        predicate: What is understood of the condition.
        whole: Files all of whose rows satisfy it.
        open: Files that have to be looked into.
    """

    predicate: Predicate
    whole: NDArray[np.int64]
    open: NDArray[np.int64]
    total: int

    @property
    def figures(self) -> dict[str, int]:
        """What a report says of them."""
        return {
            "files_scanned": len(self.open),
            "files_pruned": self.total - len(self.whole) - len(self.open),
            "scans": int(len(self.open) > 0),
        }


def targets_of(snapshot: Snapshot, predicate: Predicate, zone: str) -> Targets:
    """Sort the files of a version by partition values and statistics; reads no row.

    Args:
        snapshot: The version.
        predicate: What is understood of the condition.
        zone: The time zone of timestamps that name none.
    """
    files = snapshot.files
    may = files.may_match(predicate, zone)
    surely = np.zeros(len(files), dtype=np.bool_)
    if is_understood(predicate, snapshot.metadata.schema):
        surely = files.must_match(predicate, zone) & may
    return Targets(predicate, np.flatnonzero(surely), np.flatnonzero(may & ~surely), len(files))
