"""Rows of one task as new data files: one for each partition, more if they grow large.

A task holds at most 256 MiB of rows; then the largest partition becomes a file. Only a commit makes
the files part of the table.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delvec.datasource.file_columns import (
    file_fields,
    partition_texts,
    table_columns,
    to_physical,
)
from delvec.delta.parquet.footer_statistics import file_statistics, statistics_json
from delvec.delta.schema.properties import COMPRESSION_CODEC
from delvec.delta.write.store_vectors import random_prefix
from delvec.errors import InvalidArgumentError
from delvec.storage.uncommitted import UncommittedFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from delvec.datasource.target import Target

__all__ = ["write_files"]

_FILE_BYTES: Final = 128 << 20
_TASK_BYTES: Final = 256 << 20
_CODECS: Final = {"uncompressed": "none", "lz4_raw": "lz4"}

_Values = tuple[str | None, ...]


def write_files(target: Target, batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Write rows; return the bodies of the add actions, with statistics.

    If it fails, no file is left.
    """
    with UncommittedFiles(target.storage) as uncommitted:
        writer = _Writer(target, uncommitted)
        for batch in batches:
            if batch.num_rows:
                writer.take(batch)
        adds = writer.finish()
        uncommitted.keep()
    return adds


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
        self._fields = file_fields(target)
        self._partitions = metadata.partition_fields
        names = metadata.schema.names
        self._places = [names.index(field.name) for field in self._partitions]
        self._stored = [place for place in range(len(names)) if place not in self._places]
        if not self._stored:
            raise InvalidArgumentError(
                "the table has partition columns only, and a Parquet file needs at least one other",
                hint="add a column that is no partition column",
            )
        self._waiting: dict[_Values, list[pa.RecordBatch]] = {}
        self._bytes: dict[_Values, int] = {}
        self._adds: list[dict[str, Any]] = []

    def take(self, batch: pa.RecordBatch) -> None:
        """Take rows, and write files of partitions that have become large."""
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
        """Write all that is left; return the files."""
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
        codec = metadata.configuration.get(COMPRESSION_CODEC, "snappy").lower()
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
