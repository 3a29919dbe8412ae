"""Ordinary equality-delete files: Parquet, key columns only, sorted, as every engine reads them.

Keys are delta-encoded and compressed. Columns have field ids at every level, and the types with
which Iceberg's own writers store them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from delvec.errors import UnsupportedFeatureError
from delvec.iceberg.deletes.delete_json import ColumnMetrics, column_metrics
from delvec.iceberg.deletes.key_columns import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from delvec.iceberg.deletes.key_columns import KeyColumn, StructLevel
    from delvec.iceberg.deletes.keys import Keys

__all__ = ["EncodedFile", "encode_files", "optional_structs"]

_MOST_KEYS: Final = 20_000_000
_MOST_BYTES: Final = 64 << 20
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

    Null keys that no row can have are omitted, since Iceberg's readers fail on a null in a required
    column. Where a struct may be null, a null key of its field is written twice: as a null field
    and as a null struct, which Iceberg tells apart.

    Args:
        keys: The keys.
        most_keys: A new file begins after so many keys.
        most_bytes: A new file begins after so many bytes, at the next million keys.

    Raises:
        UnsupportedFeatureError: A key column is a UUID, and this version of pyarrow cannot store
            those as Iceberg reads them.
    """
    if any(column.type == "uuid" for column in keys.columns):
        _require_uuids()
    rows = _FileRows.of(keys)
    start = 0
    while start < len(rows):
        sink, end = BytesIO(), start
        with _writer(sink, keys.columns) as writer:
            while end < len(rows) and end - start < most_keys and sink.tell() < most_bytes:
                count = min(_GROUP, most_keys - (end - start), len(rows) - end)
                writer.write_table(rows.table(end, count), row_group_size=count)
                end += count
        yield EncodedFile(sink.getbuffer(), end - start, rows.metrics(start, end), start)
        start = end


@dataclass(frozen=True, eq=False)
class _FileRows:
    """The rows of files: a flat column for each key column, and where structs are null."""

    columns: tuple[KeyColumn, ...]
    flat: pa.Table
    null_structs: dict[int, NDArray[np.bool_]]

    @classmethod
    def of(cls, keys: Keys) -> _FileRows:
        nullable = [column for column, held in _held(keys) if held.null_count]
        if not nullable:
            return cls(keys.columns, keys.table, {})
        missing = {
            column.id: held.is_null().to_numpy(zero_copy_only=False) for column, held in _held(keys)
        }
        rows = np.arange(len(keys))
        flags: dict[int, NDArray[np.bool_]] = {}
        for level, above, members in optional_structs(keys.columns):
            all_null = np.logical_and.reduce([missing[each.id][rows] for each in members])
            again = all_null & ~_any(flags, above, len(rows))
            rows = np.concatenate([rows, rows[again]])
            flags = {key: np.concatenate([flag, flag[again]]) for key, flag in flags.items()}
            flags[level.id] = np.arange(len(rows)) >= len(again)
        kept = np.ones(len(rows), dtype=np.bool_)
        for column in keys.columns:
            if column.required:
                ids = [level.id for level in column.structs]
                kept &= ~missing[column.id][rows] | _any(flags, ids, len(rows))
        order = np.argsort(rows, kind="stable")
        order = order[kept[order]]
        return cls(
            keys.columns,
            keys.table.take(rows[order]),
            {key: flag[order] for key, flag in flags.items()},
        )

    def __len__(self) -> int:
        return int(self.flat.num_rows)

    def table(self, start: int, count: int) -> pa.Table:
        """Return some rows as a table in the schema of the file."""
        schema = arrow_schema(self.columns)
        flat = self.flat.slice(start, count)
        leaves = {
            column.id: _whole(held) for column, held in zip(self.columns, flat.columns, strict=True)
        }
        span = slice(start, start + count)
        arrays = [self._array(field, leaves, span) for field in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _array(self, field: pa.Field, leaves: dict[int, pa.Array], span: slice) -> pa.Array:
        number = int(field.metadata[b"PARQUET:field_id"])
        if pa.types.is_struct(field.type):
            flag = self.null_structs.get(number)
            return pa.StructArray.from_arrays(
                [self._array(each, leaves, span) for each in field.type],
                fields=list(field.type),
                mask=None if flag is None else pa.array(flag[span]),
            )
        if isinstance(field.type, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(field.type, leaves[number])
        return leaves[number]

    def metrics(self, start: int, end: int) -> tuple[ColumnMetrics, ...]:
        flat = self.flat.slice(start, end - start)
        return tuple(
            column_metrics(column, _whole(held))
            for column, held in zip(self.columns, flat.columns, strict=True)
        )


def _held(keys: Keys) -> list[tuple[KeyColumn, pa.ChunkedArray]]:
    return list(zip(keys.columns, keys.table.columns, strict=True))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    if isinstance(found, pa.ChunkedArray):
        return pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], found.type)
    return found


def _any(flags: dict[int, NDArray[np.bool_]], ids: Sequence[int], length: int) -> NDArray[np.bool_]:
    """Return where one of some structs is null."""
    found = np.zeros(length, dtype=np.bool_)
    for number in ids:
        if number in flags:
            found = found | flags[number]
    return found


def optional_structs(
    columns: Sequence[KeyColumn],
) -> Iterator[tuple[StructLevel, list[int], list[KeyColumn]]]:
    """Yield structs that may be null, outer ones first: the ids of those above, and the columns."""
    seen: set[int] = set()
    for depth in range(max(len(column.structs) for column in columns)):
        for column in columns:
            if len(column.structs) <= depth:
                continue
            level = column.structs[depth]
            if level.required or level.id in seen:
                continue
            seen.add(level.id)
            above = [each.id for each in column.structs[:depth]]
            yield level, above, [each for each in columns if level in each.structs]


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
        name = ".".join(column.path)
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
            hint="install a newer pyarrow",
        )
