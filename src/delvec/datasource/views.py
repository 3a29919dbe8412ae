"""Views of a table's metadata as rows: files, vectors, deleted positions, history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from delvec.datasource.options import View
from delvec.datasource.reader import MAX_SPLIT_BYTES, TableReader, pack
from delvec.delta.log.file_set import DataFile, FileSet
from delvec.delta.log.history import SCHEMA as HISTORY
from delvec.delta.log.history import history
from delvec.delta.log.snapshot import Snapshot, files_table, open_snapshot
from delvec.delta.read.vectors import load_vectors

_STRINGS: Final = pa.map_(pa.string(), pa.string())
_STATISTICS: Final = pa.struct(
    [("null_count", pa.int64()), ("minimum", pa.string()), ("maximum", pa.string())]
)
VIEWS: Final[Mapping[View, pa.Schema]] = {
    "files": pa.schema(
        [
            ("path", pa.string()),
            ("partition_values", _STRINGS),
            ("size", pa.int64()),
            ("modified", pa.timestamp("us", "UTC")),
            ("row_count", pa.int64()),
            ("deleted_rows", pa.int64()),
            ("vector", pa.string()),
            ("vector_bytes", pa.int64()),
            ("tight_bounds", pa.bool_()),
            ("statistics", pa.map_(pa.string(), _STATISTICS)),
        ]
    ),
    "vectors": pa.schema(
        [
            ("path", pa.string()),
            ("storage_type", pa.string()),
            ("vector_file", pa.string()),
            ("offset", pa.int64()),
            ("size_in_bytes", pa.int64()),
            ("cardinality", pa.int64()),
        ]
    ),
    "positions": pa.schema([("path", pa.string()), ("_pos", pa.int64())]),
    "history": HISTORY,
}
"""The columns of each view."""

_BATCH_ROWS: Final = 1 << 16
_POSITION_BYTES: Final = 16  # the weight of a deleted row when positions are divided among tasks


@dataclass(eq=False, repr=False)
class ViewReader(TableReader):
    """Reads a view; tasks read the log themselves, so that nothing large is pickled."""

    version: int

    def _planned(self, snapshot: Snapshot) -> Sequence[Sequence[DataFile]]:
        if self.options.view != "positions":
            return []  # one task lists it
        chosen = snapshot.files.data_files(np.flatnonzero(snapshot.files.has_vector))
        limit = (self.options.split_bytes or MAX_SPLIT_BYTES) // _POSITION_BYTES
        return pack(chosen, lambda file: file.descriptor.cardinality, limit)  # type: ignore[union-attr]

    def _batches(self, items: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        view = self.options.view
        if view == "positions":
            yield from self._positions(items)
            return
        if view == "history":
            table = history(self.storage)
        else:
            files = open_snapshot(self.storage, self.version).files
            table = _files(files) if view == "files" else _vectors(files)
        yield from table.to_batches(_BATCH_ROWS)

    def _positions(self, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        for file in files:
            [vector] = load_vectors(self.storage, [file])
            positions = np.empty(0, dtype=np.int64) if vector is None else vector.to_numpy()
            for start in range(0, len(positions), _BATCH_ROWS):
                some = positions[start : start + _BATCH_ROWS]
                path = pa.repeat(pa.scalar(file.path), len(some))
                yield pa.record_batch([path, pa.array(some)], schema=VIEWS["positions"])


def _files(files: FileSet) -> pa.Table:
    table = files_table(files)
    statistics = _as_map(table.column("statistics").combine_chunks())
    index = table.column_names.index("statistics")
    return table.set_column(index, "statistics", statistics).cast(VIEWS["files"])


def _as_map(statistics: pa.StructArray) -> pa.MapArray:
    """Return statistics as a map, with bounds as strings, since column types differ."""
    names = [field.name for field in statistics.type]
    count = len(statistics)
    parts = [_as_strings(statistics.field(index)) for index in range(len(names))]
    values = pa.concat_arrays(parts) if parts else pa.array([], _STATISTICS)
    # From column by column to file by file, as in a map.
    order = np.arange(len(values)).reshape(len(names), count).T.ravel()
    return pa.MapArray.from_arrays(
        pa.array(np.arange(count + 1) * len(names), pa.int32()),
        pa.array(names * count, pa.string()),
        values.take(pa.array(order)),
    )


def _as_strings(column: pa.StructArray) -> pa.StructArray:
    found = {field.name: column.field(index) for index, field in enumerate(column.type)}
    parts = [
        found[field.name].cast(field.type)
        if field.name in found
        else pa.nulls(len(column), field.type)
        for field in _STATISTICS
    ]
    return pa.StructArray.from_arrays(parts, fields=list(_STATISTICS))


def _vectors(files: FileSet) -> pa.Table:
    rows = []
    for file in files.select(files.has_vector).data_files():
        descriptor = file.descriptor
        if descriptor is None:
            raise AssertionError(f"{file.path} has no vector")
        row = {
            "path": file.path,
            "storage_type": descriptor.storage_type,
            "vector_file": descriptor.file_path,
            "offset": descriptor.offset,
            "size_in_bytes": descriptor.size_in_bytes,
            "cardinality": descriptor.cardinality,
        }
        rows.append(row)
    return pa.Table.from_pylist(rows, VIEWS["vectors"])
