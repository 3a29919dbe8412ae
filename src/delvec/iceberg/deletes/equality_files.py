"""Ordinary equality-delete files: their Parquet bytes, and their entries in a manifest.

A file has key columns only, sorted, delta-encoded and compressed. Columns have field ids, and the
types with which Iceberg's own writers store them.

Planners trust the counts and bounds of an entry: a delete whose bounds exclude the keys of a data
file is not applied to it. So a bound is written only where every engine compares it alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delvec.errors import UnsupportedFeatureError
from delvec.iceberg.client.content_files import hexadecimal
from delvec.iceberg.client.files import values_by_id
from delvec.iceberg.deletes.key_columns import arrow_schema
from delvec.spark.input.key_values import KeyColumn
from delvec.spark.input.keys import Keys

_LONGEST: Final = 64  # characters or bytes of a bound
_BOUNDS: Final = ("lower-bounds", "upper-bounds")
_MOST_KEYS: Final = 20_000_000
_MOST_BYTES: Final = 64 << 20
_MOST_FIXED: Final = 1_000
_GROUP: Final = 1 << 20  # keys
_DELTA: Final = "DELTA_BINARY_PACKED"
_PREFIXES: Final = "DELTA_BYTE_ARRAY"
_LARGEST_INTEGER: Final = 18  # digits of a decimal that Parquet stores as a number


@dataclass(frozen=True)
class Scope:
    """Which data files a delete applies to.

    Attributes:
        spec_id: The partition spec. An unpartitioned one makes the delete global: it applies to
            files of all specs and partitions.
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


@dataclass(frozen=True, eq=False)
class EncodedFile:
    """An equality-delete file that is ready to be written."""

    data: memoryview
    rows: int
    metrics: tuple[ColumnMetrics, ...]
    start: int  # the place of its first row among the rows of all files


def encode_files(
    keys: Keys, *, most_keys: int = _MOST_KEYS, most_bytes: int = _MOST_BYTES
) -> Iterator[EncodedFile]:
    """Yield the files of keys in order, none for no keys; a file is in memory when it is yielded.

    Null keys of a required column are omitted: no row has them, and Iceberg's readers fail on them.
    Each key with a column of type `fixed` is in a file of its own, since Iceberg's readers take the
    last such value of a file for all of them.
    """
    rows = _possible(keys)
    for column in keys.columns:
        if column.type == "uuid":
            _require_uuids()
        if column.type.startswith("fixed"):
            if rows.num_rows > _MOST_FIXED:
                hint = f"delete by a condition instead, or at most {_MOST_FIXED:,} keys at once"
                raise too_many_fixed(column, rows.num_rows, hint)
            most_keys = 1
    start = 0
    while start < rows.num_rows:
        sink, end = BytesIO(), start
        with _writer(sink, keys.columns) as writer:
            while end < rows.num_rows and end - start < most_keys and sink.tell() < most_bytes:
                count = min(_GROUP, most_keys - (end - start), rows.num_rows - end)
                batch = _in_file_schema(rows.slice(end, count), keys.columns)
                writer.write_table(batch, row_group_size=count)
                end += count
        held = rows.slice(start, end - start).columns
        metrics = (
            column_metrics(column, _whole(each))
            for column, each in zip(keys.columns, held, strict=True)
        )
        yield EncodedFile(sink.getbuffer(), end - start, tuple(metrics), start)
        start = end


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
    members = {
        "file-path": path,
        "file-format": "parquet",
        "file-size-in-bytes": size,
        "record-count": rows,
        "value-counts": _by_id({each.id: each.values for each in metrics}),
        "null-value-counts": _by_id({each.id: each.nulls for each in metrics}),
        "lower-bounds": _by_id({each.id: each.lower for each in metrics}),
        "upper-bounds": _by_id({each.id: each.upper for each in metrics}),
    }
    return _object(members, columns, scope)


def as_equality_delete(data_file: str, columns: Sequence[KeyColumn], scope: Scope) -> str:
    """Return the JSON object of a data file of keys as that of an equality-delete file."""
    found: dict[str, Any] = json.loads(data_file)
    for name in ("partition", "first-row-id"):
        found.pop(name, None)
    unsafe = {column.id for column in columns if column.type == "uuid"}
    for name in _BOUNDS:
        bounds = values_by_id(found, name)
        found[name] = _by_id({key: bounds[key] for key in bounds if key not in unsafe})
    return _object(found, columns, scope)


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
    upper = None if _is_long(high) else hexadecimal(high)[0].as_py()
    return replace(counts, lower=hexadecimal(_shortened(low))[0].as_py(), upper=upper)


def _possible(keys: Keys) -> pa.Table:
    """Return the keys without those that no row can have."""
    rows = keys.table
    for place, column in enumerate(keys.columns):
        if column.required and rows.column(place).null_count:
            rows = rows.filter(rows.column(place).is_valid())
    return rows


def _in_file_schema(rows: pa.Table, columns: Sequence[KeyColumn]) -> pa.Table:
    schema = arrow_schema(columns)
    arrays = [
        pa.ExtensionArray.from_storage(field.type, _whole(held))
        if isinstance(field.type, pa.BaseExtensionType)
        else held
        for field, held in zip(schema, rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def too_many_fixed(column: KeyColumn, count: int, hint: str) -> UnsupportedFeatureError:
    """Return the error of keys that would each need a file of its own."""
    return UnsupportedFeatureError(
        f"{count:,} keys with column {column.name}, which is {column.type}, would need a file each:"
        " Iceberg's readers take the last one of a file for all of them",
        feature="many keys of type fixed",
        hint=hint,
    )


@cache
def _require_uuids() -> None:
    """Refuse UUIDs if pyarrow stores them as mere bytes, which Iceberg's readers fail on."""
    sink = BytesIO()
    empty: Any = pa.table({"u": pa.array([], pa.uuid())})
    pq.write_table(empty, sink, store_schema=False)
    if pq.ParquetFile(sink).schema.column(0).logical_type.type != "UUID":
        raise UnsupportedFeatureError(
            f"pyarrow {pa.__version__} does not write UUIDs as Iceberg reads them",
            feature="keys of type uuid",
            hint="install pyarrow 21 or newer",
        )


def _writer(sink: BytesIO, columns: Sequence[KeyColumn]) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        arrow_schema(columns),
        compression="zstd",
        use_dictionary=False,
        column_encoding=_encodings(columns),
        store_schema=False,
        store_decimal_as_integer=True,
    )


def _encodings(columns: Sequence[KeyColumn]) -> dict[str, str]:
    found: dict[str, str] = {}
    for column in columns:
        name = column.name
        if column.type in ("string", "binary", "uuid") or column.type.startswith("fixed"):
            found[name] = _PREFIXES
        elif column.type.startswith("decimal"):
            digits = int(column.type[len("decimal(") :].partition(",")[0])
            found[name] = _DELTA if digits <= _LARGEST_INTEGER else _PREFIXES
        else:
            found[name] = "PLAIN" if column.type == "boolean" else _DELTA
    return found


def _object(members: Mapping[str, Any], columns: Sequence[KeyColumn], scope: Scope) -> str:
    """Return a JSON object; the partition is put in as it is, so that numbers stay exact."""
    known = {name: value for name, value in members.items() if value is not None} | {
        "spec-id": scope.spec_id,
        "content": "equality-deletes",
        "equality-ids": [column.id for column in columns],
        "sort-order-id": 0,
    }
    return f'{json.dumps(known)[:-1]}, "partition": {scope.partition_json}}}'


def _by_id(values: Mapping[int, int | str | None]) -> dict[str, list[Any]] | None:
    """Return a map as Iceberg's JSON has it; None for an empty one."""
    known = {key: value for key, value in values.items() if value is not None}
    return {"keys": list(known), "values": list(known.values())} if known else None


def _shortened(low: pa.Array) -> pa.Array:
    """Truncate a long value: a prefix is a lower bound, too."""
    if pa.types.is_large_string(low.type):
        return pc.utf8_slice_codeunits(low, 0, _LONGEST)
    return pc.binary_slice(low, 0, _LONGEST) if pa.types.is_large_binary(low.type) else low


def _is_long(high: pa.Array) -> bool:
    """Tell whether a value is too long for a bound; a prefix is not an upper bound."""
    is_variable = pa.types.is_large_string(high.type) or pa.types.is_large_binary(high.type)
    value = high[0].as_py() if is_variable else None
    return value is not None and len(value) > _LONGEST
