"""Ordinary equality-delete files: Parquet, key columns only, sorted, as every engine reads them.

Keys are delta-encoded and compressed. Columns have field ids, and the types with which Iceberg's
own writers store them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from delvec.errors import UnsupportedFeatureError
from delvec.iceberg.deletes.delete_json import ColumnMetrics, column_metrics
from delvec.iceberg.deletes.key_columns import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delvec.iceberg.deletes.key_columns import KeyColumn
    from delvec.iceberg.deletes.keys import Keys

__all__ = ["EncodedFile", "encode_files"]

_MOST_KEYS: Final = 20_000_000
_MOST_BYTES: Final = 64 << 20
_MOST_FIXED: Final = 1_000
_GROUP: Final = 1 << 20  # keys
_DELTA: Final = "DELTA_BINARY_PACKED"
_PREFIXES: Final = "DELTA_BYTE_ARRAY"
_LARGEST_INTEGER: Final = 18  # digits of a decimal that Parquet stores as a number


@dataclass(frozen=True, eq=False)
class EncodedFile:
    """An equality-delete file that is ready to be written.

    Attributes:
        data: Its bytes.
        rows: The number of its rows.
        metrics: Of each key column.
        start: The place of its first row among the rows of all files.
    """

    data: memoryview
    rows: int
    metrics: tuple[ColumnMetrics, ...]
    start: int


def encode_files(
    keys: Keys, *, most_keys: int = _MOST_KEYS, most_bytes: int = _MOST_BYTES
) -> Iterator[EncodedFile]:
    """Yield the files of keys in order, none for no keys; a file is in memory when it is yielded.

    Null keys of a required column are omitted: no row has them, and Iceberg's readers fail on them.
    Each key with a column of type `fixed` is in a file of its own, since Iceberg's readers take the
    last such value of a file for all of them.

    Args:
        keys: The keys.
        most_keys: A new file begins after so many keys.
        most_bytes: A new file begins after so many bytes, at the next million keys.

    Raises:
        UnsupportedFeatureError: There are too many keys for files of their own, or a key column is
            a UUID and this version of pyarrow cannot store those as Iceberg reads them.
    """
    rows = _possible(keys)
    for column in keys.columns:
        if column.type == "uuid":
            _require_uuids()
        if column.type.startswith("fixed"):
            _require_few(column, rows.num_rows)
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


def _require_few(column: KeyColumn, count: int) -> None:
    if count > _MOST_FIXED:
        raise UnsupportedFeatureError(
            f"{count:,} keys with column {column.name}, which is {column.type}, would need a file"
            f" each: Iceberg's readers take the last one of a file for all of them",
            feature="many keys of type fixed",
            hint=f"delete by a condition instead, or at most {_MOST_FIXED:,} keys at once",
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
