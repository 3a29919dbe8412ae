"""Equality-delete files as Iceberg's `ContentFileParser` reads them, with counts and bounds.

Planners trust these: a delete whose bounds exclude the keys of a data file is not applied to it. So
a bound is written only where every engine compares it as it was computed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.iceberg.client.value_bytes import hexadecimal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delvec.iceberg.deletes.key_columns import KeyColumn

__all__ = ["ColumnMetrics", "Scope", "as_equality_delete", "column_metrics", "delete_json"]

_LONGEST: Final = 64  # characters or bytes of a bound
_BOUNDS: Final = ("lower-bounds", "upper-bounds")


@dataclass(frozen=True)
class Scope:
    """Which data files a delete applies to.

    Attributes:
        spec_id: The partition spec. An unpartitioned one makes the delete global: it applies to
            files of all specs and partitions.
        partition_json: The JSON array of partition values.
        description: For reports.
    """

    spec_id: int
    partition_json: str = "[]"
    description: str = "global"


@dataclass(frozen=True)
class ColumnMetrics:
    """Counts and bounds of a key column in one file; bounds are hexadecimal."""

    id: int
    values: int
    nulls: int
    lower: str | None = None
    upper: str | None = None


def column_metrics(column: KeyColumn, values: pa.Array) -> ColumnMetrics:
    """Return the metrics of a column, computed from its values.

    UUIDs have no bounds: Iceberg's Java library compares them as two signed numbers, others as
    bytes.
    """
    counts = ColumnMetrics(column.id, len(values), values.null_count)
    if column.type == "uuid":
        return counts
    extremes = pc.min_max(values)
    ends = [extremes[end] for end in ("min", "max")]
    if pa.types.is_timestamp(values.type):  # not as objects of Python, which lose nanoseconds
        low, high = (pa.array([end.value], pa.int64()).view(values.type) for end in ends)
    else:
        low, high = (pa.array([end.as_py()], values.type) for end in ends)
    return ColumnMetrics(
        column.id,
        len(values),
        values.null_count,
        hexadecimal(_shortened(low))[0].as_py(),
        None if _is_long(high) else hexadecimal(high)[0].as_py(),
    )


def delete_json(
    path: str,
    size: int,
    rows: int,
    columns: Sequence[KeyColumn],
    scope: Scope,
    metrics: Sequence[ColumnMetrics],
) -> str:
    """Return the JSON object of an equality-delete file.

    An Equality Delete Vector is labelled `parquet` like an ordinary file. Stock Iceberg can plan,
    count and remove such an entry, and refuses to read it; entries of the format `puffin` it takes
    for vectors of positions, and can neither read nor remove.
    """
    return _object(
        {
            "spec-id": scope.spec_id,
            "content": "equality-deletes",
            "file-path": path,
            "file-format": "parquet",
            "file-size-in-bytes": size,
            "record-count": rows,
            "value-counts": _by_id({each.id: each.values for each in metrics}),
            "null-value-counts": _by_id({each.id: each.nulls for each in metrics}),
            "lower-bounds": _by_id({each.id: each.lower for each in metrics}),
            "upper-bounds": _by_id({each.id: each.upper for each in metrics}),
            "equality-ids": [column.id for column in columns],
            "sort-order-id": 0,
        },
        scope,
    )


def as_equality_delete(data_file: str, columns: Sequence[KeyColumn], scope: Scope) -> str:
    """Return the JSON object of a data file of keys as that of an equality-delete file."""
    found: dict[str, Any] = json.loads(data_file)
    for name in ("partition", "first-row-id"):
        found.pop(name, None)
    unsafe = {column.id for column in columns if column.type == "uuid"}
    for name in _BOUNDS:
        bounds = _mapping(found.get(name))
        found[name] = _by_id({key: bounds[key] for key in bounds if key not in unsafe})
    found |= {
        "spec-id": scope.spec_id,
        "content": "equality-deletes",
        "equality-ids": [column.id for column in columns],
        "sort-order-id": 0,
    }
    return _object(found, scope)


def _object(members: Mapping[str, Any], scope: Scope) -> str:
    """Return a JSON object; the partition is put in as it is, so that numbers stay exact."""
    known = {name: value for name, value in members.items() if value is not None}
    return f'{json.dumps(known)[:-1]}, "partition": {scope.partition_json}}}'


def _by_id(values: Mapping[int, int | str | None]) -> dict[str, list[Any]] | None:
    """Return a map as Iceberg's JSON has it; None for an empty one."""
    known = {key: value for key, value in values.items() if value is not None}
    return {"keys": list(known), "values": list(known.values())} if known else None


def _mapping(value: Mapping[str, list[Any]] | None) -> dict[int, Any]:
    return dict(zip(value["keys"], value["values"], strict=True)) if value else {}


def _is_variable(values: pa.Array) -> bool:
    return bool(pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type))


def _shortened(low: pa.Array) -> pa.Array:
    """Truncate a long value: a prefix is a lower bound, too."""
    if pa.types.is_large_string(low.type):
        return pc.utf8_slice_codeunits(low, 0, _LONGEST)
    return pc.binary_slice(low, 0, _LONGEST) if pa.types.is_large_binary(low.type) else low


def _is_long(high: pa.Array) -> bool:
    """Tell whether a value is too long for a bound; a prefix is no upper bound."""
    value = high[0].as_py() if _is_variable(high) else None
    return value is not None and len(value) > _LONGEST
