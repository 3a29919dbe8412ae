"""Which files an operation is about, by the log alone: before any row is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from delvec.delta.parquet.footer_statistics import row_count
from delvec.delta.pruning.predicate import Always
from delvec.delta.pruning.skipping import may_match, must_match
from delvec.delta.read.snapshot_reader import is_understood
from delvec.delta.write.change import LiveFile
from delvec.spark.delta.scan.conditions import predicate_of
from delvec.spark.session.settings import time_zone
from delvec.storage.listed_files import open_listed_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from pyspark.sql import Column, SparkSession

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.pruning.predicate import Predicate
    from delvec.delta.pruning.skipping import ColumnBounds

__all__ = ["Targets", "live_files", "plan_targets", "row_counts", "targets_of"]


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


def plan_targets(spark: SparkSession, snapshot: Snapshot, where: str | Column | None) -> Targets:
    """Sort the files of a version by partition values and statistics; reads no row."""
    predicate = Always() if where is None else predicate_of(spark, snapshot.metadata.schema, where)
    return targets_of(spark, snapshot, predicate)


def targets_of(spark: SparkSession, snapshot: Snapshot, predicate: Predicate) -> Targets:
    """Sort the files of a version by a predicate."""
    files, zone = snapshot.files, time_zone(spark)

    def bounds(column: tuple[str, ...]) -> ColumnBounds | None:
        return files.bounds(column, zone)

    may = may_match(predicate, bounds, len(files))
    surely = np.zeros(len(files), dtype=np.bool_)
    if is_understood(predicate, snapshot.metadata.schema):
        surely = must_match(predicate, bounds, len(files)) & may
    return Targets(predicate, np.flatnonzero(surely), np.flatnonzero(may & ~surely), len(files))


def live_files(files: FileSet, indexes: Sequence[int] | NDArray[np.int64]) -> list[LiveFile]:
    """Give some files with their whole entries."""
    chosen = [int(index) for index in indexes]
    paths = files.paths.take(chosen).to_pylist() if chosen else []
    return [LiveFile(*each) for each in zip(paths, files.entries(chosen), strict=True)]


def row_counts(
    snapshot: Snapshot, files: FileSet, indexes: Sequence[int] | NDArray[np.int64]
) -> list[int]:
    """Give the physical rows of some files; where the log does not say, their footers do."""
    chosen = [int(index) for index in indexes]
    counts = [files.row_counts[index].as_py() for index in chosen]
    paths, sizes = files.paths, files.sizes
    for place, index in enumerate(chosen):
        if counts[place] is None:
            storage, key = open_listed_file(snapshot.storage, paths[index].as_py())
            counts[place] = row_count(storage, key, int(sizes[index]))
    return counts
