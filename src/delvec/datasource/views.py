"""Views of a table's metadata as rows: files, vectors, deleted positions, history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from delvec.datasource.rows import for_spark
from delvec.datasource.session_zone import fenced_in_task
from delvec.datasource.splits import MAX_SPLIT_BYTES, pack
from delvec.delta.log.files_table import files_table
from delvec.delta.log.history import SCHEMA as HISTORY
from delvec.delta.log.history import history
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.read.load_vectors import load_vectors
from delvec.errors import DelvecError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from delvec.datasource.options import ReadOptions, View
    from delvec.delta.log.file_set import DataFile, FileSet
    from delvec.delta.log.snapshot import Snapshot

__all__ = ["VIEWS", "ViewReader"]

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


@dataclass(repr=False)
class ViewPartition(InputPartition):
    """The files whose positions one task lists; None for a view of the log."""

    files: tuple[DataFile, ...] | None


class ViewReader(DataSourceReader):
    """Reads a view; tasks read the log themselves, so that nothing large is pickled."""

    def __init__(
        self,
        snapshot: Snapshot,
        options: ReadOptions,
        columns: Sequence[str],
        names: Sequence[str],
    ) -> None:
        self._snapshot: Snapshot | None = snapshot
        self._storage, self._version = snapshot.storage, snapshot.version
        self._options = options
        self._columns = list(columns)
        self._names = list(names)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_snapshot": None}

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the vectors among tasks; other views are listed by one task."""
        if self._options.view != "positions":
            return [ViewPartition(None)]
        if self._snapshot is None:
            raise AssertionError("the read is planned before it is pickled")
        files = self._snapshot.files
        try:
            chosen = files.data_files(np.flatnonzero(files.has_vector))
        except UnsupportedFeatureError as error:  # Spark would take it for: no partitions
            raise DelvecError(error.describe(), hint=error.hint) from error
        limit = (self._options.split_bytes or MAX_SPLIT_BYTES) // _POSITION_BYTES
        groups = pack(chosen, lambda file: file.descriptor.cardinality, limit)  # type: ignore[union-attr]
        return [ViewPartition(tuple(group)) for group in groups or [[]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        if not isinstance(partition, ViewPartition):
            raise AssertionError(f"Spark asks for a partition that was not planned: {partition!r}")  # noqa: TRY004
        self._storage = fenced_in_task(self._storage)
        batches = self._listed() if partition.files is None else self._positions(partition.files)
        return (for_spark(batch, self._columns, self._names) for batch in batches)

    def _listed(self) -> Iterator[pa.RecordBatch]:
        if self._options.view == "history":
            table = history(self._storage)
        else:
            files = open_snapshot(self._storage, self._version).files
            table = _files(files) if self._options.view == "files" else _vectors(files)
        yield from table.to_batches(_BATCH_ROWS)

    def _positions(self, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        for file in files:
            [vector] = load_vectors(self._storage, [file])
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
    chosen = files.select(files.has_vector)
    rows = [_vector_row(file) for file in chosen.data_files()]
    return pa.Table.from_pylist(rows, VIEWS["vectors"])


def _vector_row(file: DataFile) -> dict[str, Any]:
    descriptor = file.descriptor
    if descriptor is None:
        raise AssertionError(f"{file.path} has no vector")
    return {
        "path": file.path,
        "storage_type": descriptor.storage_type,
        "vector_file": descriptor.file_path,
        "offset": descriptor.offset,
        "size_in_bytes": descriptor.size_in_bytes,
        "cardinality": descriptor.cardinality,
    }
