"""The adds of a checkpoint: whole, with statistics as JSON, as columns or both.

They are made piece by piece: memory grows with the largest row group of the previous checkpoint and
the largest commit since, not with the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.action_columns import ADD
from delvec.delta.schema.arrow import arrow_type
from delvec.delta.schema.partition_values import partition_column
from delvec.delta.schema.properties import CHECKPOINT_STATS_AS_JSON, CHECKPOINT_STATS_AS_STRUCT
from delvec.delta.schema.types import PrimitiveType, StructType
from delvec.delta.schema.walk import walk
from delvec.delta.stats.columns import StatisticPath, statistics_columns
from delvec.delta.stats.indexed_columns import indexed_columns
from delvec.delta.stats.to_json import statistics_to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata

__all__ = ["AddForm", "checkpoint_adds"]

_ROWS: Final = 50_000
# For these types, statistics have the null count alone.
_UNORDERED: Final = frozenset({"binary", "boolean", "variant", "void"})


@dataclass(frozen=True)
class AddForm:
    """The form of adds that the properties of a table ask for."""

    metadata: Metadata

    @property
    def as_columns(self) -> bool:
        """Whether statistics are columns: by default, as in delta-spark."""
        return self._flag(CHECKPOINT_STATS_AS_STRUCT)

    @property
    def as_json(self) -> bool:
        """Whether statistics are JSON; also where both are off, so that no row count is lost."""
        return self._flag(CHECKPOINT_STATS_AS_JSON) or not self.as_columns

    @property
    def typed_partitions(self) -> bool:
        """Whether partition values are columns too.

        Not if one is a timestamp: the string may lack the zone, which is then the session's, and a
        wrong one would make readers prune files.
        """
        fields = self.metadata.partition_fields
        zoned = any(field.type == PrimitiveType("timestamp") for field in fields)
        return self.as_columns and bool(fields) and not zoned

    @cached_property
    def statistics(self) -> Mapping[StatisticPath, pa.DataType]:
        """The columns of the statistics."""
        wanted: dict[StatisticPath, pa.DataType] = {
            ("numRecords",): pa.int64(),
            ("tightBounds",): pa.bool_(),
        }
        for fields in walk(indexed_columns(self.metadata), structs_only=True):
            kind = fields[-1].type
            if isinstance(kind, StructType):
                continue
            path = tuple(each.physical_name for each in fields)
            if isinstance(kind, PrimitiveType) and kind.name not in _UNORDERED:
                bound = arrow_type(kind)
                wanted |= {("minValues", *path): bound, ("maxValues", *path): bound}
            wanted |= {("nullCount", *path): pa.int64()}
        return wanted

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of an add."""
        fields = list(ADD) if self.as_json else [field for field in ADD if field.name != "stats"]
        if self.as_columns:
            fields.append(pa.field("stats_parsed", _nested_type(self.statistics)))
        if self.typed_partitions:
            partitions = self.metadata.partition_fields
            kinds = [(field.physical_name, arrow_type(field.type)) for field in partitions]
            fields.append(pa.field("partitionValues_parsed", pa.struct(kinds)))
        return pa.struct(fields)

    def _flag(self, name: str) -> bool:
        return self.metadata.configuration.get(name, "true").lower() == "true"


def checkpoint_adds(snapshot: Snapshot, form: AddForm) -> Iterator[pa.StructArray]:
    """Yield the live files as adds of a checkpoint, some ten thousand at a time."""
    files, names = snapshot.files, snapshot.partition_names
    for number, source in enumerate(files.sources):
        live, start = files.row[files.source == number], 0
        if not len(live):
            continue
        for piece in source.pieces("add", names, ["stats_parsed"]):
            low, high = np.searchsorted(live, [start, start + len(piece)])
            kept = piece.take(live[low:high] - start)
            for first in range(0, len(kept), _ROWS):
                yield _formed(kept.slice(first, _ROWS), form)
            start += len(piece)


def _formed(piece: pa.StructArray, form: AddForm) -> pa.StructArray:
    fields = {field.name: pc.struct_field(piece, [field.name]) for field in piece.type}
    fields["dataChange"] = pa.repeat(pa.scalar(False), len(piece))
    parsed = fields.get("stats_parsed")
    if form.as_columns:
        columns = statistics_columns(_Piece(fields, form.statistics), form.statistics)
        fields["stats_parsed"] = _nested(columns, form.statistics, len(piece))
    if parsed is not None and fields["stats"].null_count:
        fields["stats"] = pc.coalesce(fields["stats"], statistics_to_json(parsed))
    if form.typed_partitions:
        fields["partitionValues_parsed"] = _typed_partitions(fields["partitionValues"], form)
    kinds = list(form.type)
    return pa.StructArray.from_arrays([fields[field.name] for field in kinds], fields=kinds)


@dataclass
class _Piece:
    """Some adds, as a source of statistics."""

    fields: Mapping[str, pa.Array]

    wanted: Mapping[StatisticPath, pa.DataType]

    def json_statistics(self) -> pa.Array | None:
        # A writer that has all columns, and the row count of every file, has parsed the JSON.
        counts = self.parsed_statistics("numRecords")
        is_counted = counts is not None and not counts.null_count
        if is_counted and all(self.parsed_statistics(*path) is not None for path in self.wanted):
            return None
        return self.fields["stats"]

    def parsed_statistics(self, *path: str) -> pa.Array | None:
        value: Any = self.fields.get("stats_parsed")
        for name in path:
            if value is None or not pa.types.is_struct(value.type):
                return None
            place = value.type.get_field_index(name)
            value = pc.struct_field(value, [place]) if place >= 0 else None
        return value


def _nested_type(columns: Mapping[StatisticPath, pa.DataType]) -> pa.DataType:
    return pa.struct(
        [
            (name, inner[()] if () in inner else _nested_type(inner))
            for name, inner in _by_head(columns).items()
        ]
    )


def _nested(
    columns: Mapping[StatisticPath, pa.Array | None],
    kinds: Mapping[StatisticPath, pa.DataType],
    rows: int,
) -> pa.StructArray:
    inner_kinds = _by_head(kinds)
    arrays = []
    for name, inner in _by_head(columns).items():
        if () not in inner:
            arrays.append(_nested(inner, inner_kinds[name], rows))
        else:
            known = inner[()]
            arrays.append(pa.nulls(rows, inner_kinds[name][()]) if known is None else known)
    return pa.StructArray.from_arrays(arrays, fields=list(_nested_type(kinds)))


def _by_head(columns: Mapping[StatisticPath, Any]) -> dict[str, dict[StatisticPath, Any]]:
    heads: dict[str, dict[StatisticPath, Any]] = {}
    for (head, *rest), value in columns.items():
        heads.setdefault(head, {})[tuple(rest)] = value
    return heads


def _typed_partitions(texts: pa.MapArray, form: AddForm) -> pa.StructArray:
    fields = form.metadata.partition_fields
    columns = [
        partition_column(pc.map_lookup(texts, field.physical_name, "first"), field.type)
        for field in fields
    ]
    return pa.StructArray.from_arrays(columns, [field.physical_name for field in fields])
