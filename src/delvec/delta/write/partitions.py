"""Partitions of a table: which files belong to some of them, and which rows would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from delvec.delta.pruning.predicate import And, Comparison, IsNull, Or
from delvec.delta.schema.partition_values import parse_partition_value, partition_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.pruning.predicate import Predicate
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.partition_values import PartitionValue

__all__ = ["Partitions"]


@dataclass(frozen=True)
class Partitions:
    """Some partitions of a table, by their values.

    Attributes:
        metadata: The table's.
        time_zone: The time zone of timestamps that name none.
        values: For each partition the values of the partition columns, in their order; by their
            texts, since NaN is not equal to itself, and -0.0 and 0.0 are two partitions.
    """

    metadata: Metadata
    time_zone: str
    values: Mapping[tuple[str, ...], tuple[PartitionValue | None, ...]]

    @classmethod
    def of(
        cls, metadata: Metadata, time_zone: str, entries: Iterable[Mapping[str, str | None]]
    ) -> Partitions:
        """Return the partitions of files, by the partition values of their log entries."""
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
        """Return the indexes of the files that belong to these partitions."""
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
        return Or(
            tuple(
                And(
                    tuple(
                        IsNull((name,)) if value is None else Comparison((name,), "=", value)
                        for name, value in zip(names, values, strict=True)
                    )
                )
                for values in self.values.values()
            )
        )


def _key(values: tuple[PartitionValue | None, ...]) -> tuple[str, ...]:
    return tuple(map(repr, values))
