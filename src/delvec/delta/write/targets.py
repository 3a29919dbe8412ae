"""Which files an operation has to read, by partition values and statistics of the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delvec.delta.log.file_set import FileSet
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.scan import is_understood
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.partition_values import (
    PartitionValue,
    parse_partition_value,
    partition_column,
)
from delvec.delta.skipping.predicate import And, Comparison, IsNull, Or, Predicate


@dataclass(frozen=True)
class Targets:
    """The files of a version, by how a condition matches them."""

    predicate: Predicate  # what pruning understands of the condition
    whole: NDArray[np.int64]  # indexes of files all of whose rows match
    open: NDArray[np.int64]  # indexes of files whose rows have to be read
    total: int  # files of the version

    @property
    def figures(self) -> dict[str, int]:
        return {
            "files_scanned": len(self.open),
            "files_pruned": self.total - len(self.whole) - len(self.open),
            "scans": int(len(self.open) > 0),
        }


def find_targets(snapshot: Snapshot, predicate: Predicate, zone: str) -> Targets:
    """Divide the files of a version by partition values and statistics; reads no data file."""
    files = snapshot.files
    may = files.may_match(predicate, zone)
    surely = np.zeros(len(files), dtype=np.bool_)
    if is_understood(predicate, snapshot.metadata.schema):
        surely = files.must_match(predicate, zone) & may
    return Targets(predicate, np.flatnonzero(surely), np.flatnonzero(may & ~surely), len(files))


@dataclass(frozen=True)
class Partitions:
    """Some partitions of a table: for each the values of the partition columns, in their order.

    They are found by their texts, since NaN is not equal to itself, and -0.0 and 0.0 are two
    partitions.
    """

    metadata: Metadata
    time_zone: str  # of timestamps that name none
    values: Mapping[tuple[str, ...], tuple[PartitionValue | None, ...]]

    @classmethod
    def of(
        cls, metadata: Metadata, time_zone: str, entries: Iterable[Mapping[str, str | None]]
    ) -> Partitions:
        fields = metadata.partition_fields
        parsed = (
            tuple(
                parse_partition_value(entry.get(field.physical_name), field.type, time_zone)
                for field in fields
            )
            for entry in entries
        )
        return cls(metadata, time_zone, {_key(values): values for values in parsed})

    def files(self, files: FileSet) -> NDArray[np.int64]:
        columns = [
            partition_column(
                files.partition_strings(field.physical_name), field.type, self.time_zone
            ).to_pylist()
            for field in self.metadata.partition_fields
        ]
        keys = map(_key, zip(*columns, strict=True))
        return np.array([i for i, key in enumerate(keys) if key in self.values], dtype=np.int64)

    @property
    def predicate(self) -> Predicate:
        """The rows of these partitions; of timestamps and floats perhaps some more."""
        names = [field.name for field in self.metadata.partition_fields]

        def equal(name: str, value: PartitionValue | None) -> Predicate:
            return IsNull((name,)) if value is None else Comparison((name,), "=", value)

        return Or(tuple(And(tuple(map(equal, names, values))) for values in self.values.values()))


def _key(values: tuple[PartitionValue | None, ...]) -> tuple[str, ...]:
    return tuple(map(repr, values))
