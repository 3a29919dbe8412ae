"""Rows of one task as new data files: one for each partition, more if they grow large.

Columns get the physical names, ids and exact types of the table. A task holds at most 256 MiB of
rows; then the largest partition becomes a file. Only a commit makes files part of the table.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delvec.delta.log.paths import random_prefix
from delvec.delta.read.conform import Conformer
from delvec.delta.read.footer_statistics import file_statistics
from delvec.delta.schema.metadata import Property
from delvec.delta.schema.partition_values import HIVE_NULL
from delvec.delta.schema.traversal import map_fields, nullable
from delvec.delta.schema.types import (
    ArrayType,
    DataType,
    Field,
    MapType,
    PrimitiveType,
    StructType,
    arrow_type,
)
from delvec.delta.skipping.statistics import statistics_json
from delvec.errors import ConstraintError, InvalidArgumentError
from delvec.storage.uncommitted import UncommittedFiles

if TYPE_CHECKING:
    from datetime import date, datetime
    from decimal import Decimal

    from delvec.datasource.target import Target

_ROWS: Final = Conformer("the rows to write")
_FILE_BYTES: Final = 128 << 20
_TASK_BYTES: Final = 256 << 20
_CODECS: Final = {"uncompressed": "none", "lz4_raw": "lz4"}
_Values = tuple[str | None, ...]


def write_files(target: Target, batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Write rows; return the bodies of the add actions. If it fails, no file is left."""
    with UncommittedFiles(target.storage) as uncommitted:
        writer = _Writer(target, uncommitted)
        for batch in batches:
            if batch.num_rows:
                writer.take(batch)
        adds = writer.finish()
        uncommitted.keep()
    return adds


def table_columns(batch: pa.RecordBatch, target: Target) -> list[pa.Array]:
    """Return the columns of the table, in its order and types, under logical names."""
    columns = []
    # Nested fields are found by the names that the rows have, which are the logical ones.
    schema = map_fields(nullable(target.state.schema), lambda f: replace(f, physical_name=f.name))
    for field, place in zip(schema.fields, target.sources, strict=True):
        if place is None:
            columns.append(pa.nulls(batch.num_rows, arrow_type(field.type)))
        else:
            columns.append(_ROWS.conform(batch.column(place), field.type, field.name))
    for field, column in zip(target.state.schema.fields, columns, strict=True):
        if not field.nullable and column.null_count:
            raise _null_found(target, field)
    return columns


def to_physical(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array under other names of nested fields; nothing is copied but for slices."""
    if array.type == kind or not pa.types.is_nested(kind):
        return array
    if array.offset:
        array = pa.concat_arrays([array])  # children of a slice are not sliced
    if pa.types.is_struct(kind):
        inner = [to_physical(array.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        count = 1
    elif pa.types.is_map(kind):
        pairs = pa.struct([kind.key_field, kind.item_field])
        inner, count = [to_physical(array.values, pairs)], 2
    else:
        inner, count = [to_physical(array.values, kind.value_type)], 2
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[:count], null_count=array.null_count, children=inner
    )


def partition_texts(column: pa.Array, field: Field, target: Target) -> pa.DictionaryArray:
    """Return a partition column as the strings that the log keeps, each distinct one once."""
    encoded = column.dictionary_encode()
    texts = [_text(value, field.type) for value in encoded.dictionary.to_pylist()]
    if None in texts and not field.nullable:
        raise _null_found(target, field)
    # Strings that mean null share a partition with null.
    return pa.array(texts, pa.string()).take(encoded.indices).dictionary_encode()


def _null_found(target: Target, field: Field) -> ConstraintError:
    return ConstraintError(
        f"column {field.name} takes no NULL, and a row to write has one",
        constraint=f"NOT NULL {field.name}",
        table=target.storage.root,
        hint="nothing was written; give the column a value in every row",
    )


def _physical_field(field: Field, *, with_ids: bool) -> pa.Field:
    ids = None
    if with_ids and field.field_id is not None:
        ids = {b"PARQUET:field_id": str(field.field_id).encode()}
    return pa.field(field.physical_name, _physical(field.type, with_ids=with_ids), metadata=ids)


def _physical(kind: DataType, *, with_ids: bool) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([_physical_field(field, with_ids=with_ids) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _physical(kind.element, with_ids=with_ids)))
    if isinstance(kind, MapType):
        key = pa.field("key", _physical(kind.key, with_ids=with_ids), nullable=False)
        return pa.map_(key, pa.field("value", _physical(kind.value, with_ids=with_ids)))
    return arrow_type(kind)


def _text(value: str | int | bool | date | datetime | Decimal, kind: DataType) -> str | None:  # noqa: FBT001
    """Return a value as Spark writes it; an empty string and Hive's name for null are null."""
    name = kind.name if isinstance(kind, PrimitiveType) else str(kind)
    if name == "string":
        return str(value) if value not in ("", HIVE_NULL) else None
    if name == "boolean":
        return str(value).lower()
    if name == "timestamp":
        return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z".rjust(27, "0")
    if name == "timestamp_ntz":
        text = f"{value:%Y-%m-%d %H:%M:%S.%f}".rjust(26, "0")
        return text.rstrip("0").rstrip(".") if text.endswith("0") else text
    return format(value, "f") if name.startswith("decimal") else str(value)


def _measured(table: pa.Table) -> list[str] | bool:
    """Return the columns whose bounds the file holds, True for all.

    Arrow computes bounds without NaN. Spark's reader takes NaN for the largest number, and would
    skip the rows that have it.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(table.schema.empty_table(), sink, store_schema=False)
    leaves = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    columns = [leaves.column(index) for index in range(len(leaves))]
    unknown = {
        column.path
        for column in columns
        if column.physical_type in ("FLOAT", "DOUBLE") and _may_have_nan(table, column.path)
    }
    return [column.path for column in columns if column.path not in unknown] if unknown else True


def _may_have_nan(table: pa.Table, path: str) -> bool:
    """Return whether a column of floats has a NaN; nested ones are not looked at."""
    places = table.schema.get_all_field_indices(path)
    if len(places) != 1 or not pa.types.is_floating(table.schema.field(places[0]).type):
        return True
    return bool(pc.any(pc.is_nan(table.column(places[0]))).as_py())


class _Writer:
    """The rows of each partition that are not in a file yet, and the files so far."""

    def __init__(self, target: Target, uncommitted: UncommittedFiles) -> None:
        self._target, self._uncommitted = target, uncommitted
        metadata = target.state.metadata
        partitions = {field.name for field in metadata.partition_fields}
        # Under column mapping they have physical names, and ids.
        self._fields = [
            _physical_field(field, with_ids=metadata.mapping_mode != "none")
            for field in metadata.schema.fields
            if field.name not in partitions
        ]
        self._partitions = metadata.partition_fields
        names = metadata.schema.names
        self._places = [names.index(field.name) for field in self._partitions]
        self._stored = [place for place in range(len(names)) if place not in self._places]
        if not self._stored:
            raise InvalidArgumentError(
                "the table has partition columns only, and a Parquet file needs at least one other",
                hint="add a column that is not a partition column",
            )
        self._waiting: dict[_Values, list[pa.RecordBatch]] = {}
        self._bytes: dict[_Values, int] = {}
        self._adds: list[dict[str, Any]] = []

    def take(self, batch: pa.RecordBatch) -> None:
        columns = table_columns(batch, self._target)
        stored = pa.record_batch(
            [
                to_physical(columns[place], field.type)
                for place, field in zip(self._stored, self._fields, strict=True)
            ],
            schema=pa.schema(self._fields),
        )
        for values, rows in self._by_partition(columns, stored):
            self._waiting.setdefault(values, []).append(rows)
            self._bytes[values] = self._bytes.get(values, 0) + rows.nbytes
            if self._bytes[values] >= _FILE_BYTES:
                self._write(values)
        while sum(self._bytes.values()) >= _TASK_BYTES:
            self._write(max(self._bytes, key=lambda values: self._bytes[values]))

    def finish(self) -> list[dict[str, Any]]:
        for values in list(self._waiting):
            self._write(values)
        return self._adds

    def _by_partition(
        self, columns: list[pa.Array], stored: pa.RecordBatch
    ) -> Iterator[tuple[_Values, pa.RecordBatch]]:
        if not self._partitions:
            yield (), stored
            return
        texts = [
            partition_texts(columns[place], field, self._target)
            for place, field in zip(self._places, self._partitions, strict=True)
        ]
        codes = np.stack([each.indices.fill_null(-1).to_numpy() for each in texts], axis=1)
        found, inverse = np.unique(codes, axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)  # of numpy 2.0 it has two dimensions
        for number, row in enumerate(found.tolist()):
            values = tuple(
                None if code < 0 else each.dictionary[code].as_py()
                for code, each in zip(row, texts, strict=True)
            )
            yield values, stored.take(pa.array(np.flatnonzero(inverse == number)))

    def _write(self, values: _Values) -> None:
        table = pa.Table.from_batches(self._waiting.pop(values))
        self._bytes.pop(values)
        metadata = self._target.state.metadata
        codec = metadata.configuration.get(Property.COMPRESSION_CODEC, "snappy").lower()
        sink = pa.BufferOutputStream()
        pq.write_table(
            table,
            sink,
            compression=_CODECS.get(codec, codec),
            version="2.6",  # timestamps in microseconds
            store_schema=False,
            write_statistics=_measured(table),
        )
        data = memoryview(sink.getvalue())
        folder = random_prefix(metadata)
        name = f"part-{len(self._adds):05}-{uuid4()}.c000.{codec}.parquet"
        key = f"{folder}/{name}" if folder else name
        self._uncommitted.add(key)
        self._target.storage.write(key, data)
        statistics = file_statistics(
            metadata,
            pq.read_metadata(pa.BufferReader(data)),
            tight_bounds=self._target.state.protocol.has_vectors,
        )
        physical = [field.physical_name for field in self._partitions]
        self._adds.append(
            {
                "path": key,
                "partitionValues": dict(zip(physical, values, strict=True)),
                "size": data.nbytes,
                "modificationTime": int(time.time() * 1000),
                "dataChange": True,
                "stats": statistics_json(statistics),
            }
        )
