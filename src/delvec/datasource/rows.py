"""The rows of a version, read by tasks; each loads only the vectors of its own files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from delvec.datasource.session_zone import fenced_in_task, zone_of_task
from delvec.datasource.splits import plan_splits
from delvec.delta.parquet.footer_statistics import row_count
from delvec.delta.read.change_feed_schema import CHANGE_TYPE, FEED_COLUMNS
from delvec.delta.read.file_reader import read_file
from delvec.delta.read.load_vectors import load_vectors
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.errors import DelvecError, UnsupportedFeatureError
from delvec.storage.listed_files import open_listed_file
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delvec.datasource.options import ReadOptions
    from delvec.datasource.splits import Piece
    from delvec.datasource.stream_plan import StreamPiece
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.read.scan import Scan
    from delvec.storage import Storage

__all__ = ["PiecesPartition", "RowsReader", "for_spark", "piece_rows"]

_VECTORS_AT_ONCE: Final = 64


@dataclass(repr=False)
class PiecesPartition(InputPartition):
    """The pieces that one task reads."""

    pieces: tuple[Piece, ...]


class RowsReader(DataSourceReader):
    """Plans on the driver, reads in tasks; scan and storage are pickled, the log is not."""

    def __init__(
        self,
        snapshot: Snapshot,
        options: ReadOptions,
        scan: Scan,
        columns: Sequence[str],
        names: Sequence[str],
        *,
        needs_zone: bool = False,
    ) -> None:
        self._snapshot: Snapshot | None = snapshot
        self._needs_zone = needs_zone
        self._options = options
        self._storage = snapshot.storage
        self._scan = scan
        self._columns = list(columns)
        self._names = list(names)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_snapshot": None}

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the files that may match among tasks."""
        try:
            return self._planned()
        except UnsupportedFeatureError as error:
            # It is a NotImplementedError, which Spark takes for: no partitions.
            raise DelvecError(error.describe(), hint=error.hint) from error

    def _planned(self) -> list[InputPartition]:
        if self._snapshot is None:
            raise AssertionError("the read is planned before it is pickled")
        files = self._snapshot.files.prune(self._scan.predicate, self._scan.time_zone)
        if self._options.only_vectored:
            files = files.select(files.has_vector)
        splits = plan_splits(self._storage, files.data_files(), self._options.split_bytes)
        # For an empty list Spark would create a partition that was not planned.
        return [PiecesPartition(tuple(pieces)) for pieces in splits or [[]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, a batch at a time."""
        if not isinstance(partition, PiecesPartition):
            raise AssertionError(f"Spark asks for a partition that was not planned: {partition!r}")  # noqa: TRY004
        self._storage = fenced_in_task(self._storage)
        return self._batches(partition.pieces)

    def _batches(self, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        scan = self._scan
        if self._needs_zone:
            scan = replace(scan, time_zone=zone_of_task(self._storage.root))
        for start in range(0, len(pieces), _VECTORS_AT_ONCE):
            window = pieces[start : start + _VECTORS_AT_ONCE]
            vectors = load_vectors(self._storage, [piece.file for piece in window])
            for piece, vector in zip(window, vectors, strict=True):
                batches = read_file(
                    self._storage,
                    piece.file,
                    scan,
                    vector=vector,
                    row_groups=piece.row_groups,
                )
                for batch in batches:
                    yield for_spark(batch, self._columns, self._names)


def for_spark(
    batch: pa.RecordBatch, columns: Sequence[str], names: Sequence[str]
) -> pa.RecordBatch:
    """Return columns of a batch in the order of Spark's schema and under its names."""
    return pa.record_batch([batch.column(name) for name in columns], names=list(names))


def piece_rows(storage: Storage, scan: Scan, piece: StreamPiece) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece of a stream, with the columns of the change feed if it has one."""
    file, recorded = piece.piece.file, piece.keep == "recorded"
    vector = piece.vector
    if vector is None:
        [vector] = load_vectors(storage, [file])
    if piece.keep == "selected":
        place, key = open_listed_file(storage, file.path)
        rows = Bitmap.from_ranges([0], [row_count(place, key, file.size)])
        vector = rows - (vector or Bitmap())
    if recorded:
        scan = _with_change_type(scan)
    for batch in read_file(storage, file, scan, vector=vector, row_groups=piece.piece.row_groups):
        yield _with_constants(batch, piece) if piece.constants is not None else batch


def _with_change_type(scan: Scan) -> Scan:
    """Return the scan of change data files, where the column has no id under column mapping."""
    field = Field(CHANGE_TYPE, PrimitiveType("string"))
    return replace(
        scan,
        schema=StructType((*scan.schema.fields, field)),
        columns=None if scan.columns is None else (*scan.columns, CHANGE_TYPE),
        mapping_mode="none" if scan.mapping_mode == "none" else "name",
    )


def _with_constants(batch: pa.RecordBatch, piece: StreamPiece) -> pa.RecordBatch:
    constants, columns = piece.constants, dict(zip(batch.schema.names, batch.columns, strict=True))
    assert constants is not None  # noqa: S101
    values = [constants.change, constants.version, constants.time_us]
    for field, value in zip(FEED_COLUMNS, values, strict=True):
        if value is not None:  # the type of recorded changes is in their file
            columns[field.name] = pa.repeat(pa.scalar(value, field.type), batch.num_rows)
    return pa.record_batch(list(columns.values()), names=list(columns))
