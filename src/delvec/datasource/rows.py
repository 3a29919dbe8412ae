"""The rows of a version, read by tasks; each loads only the vectors of its own files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from delvec.datasource.session_zone import zone_of_task
from delvec.datasource.splits import plan_splits
from delvec.delta.read.file_reader import read_file
from delvec.delta.read.load_vectors import load_vectors
from delvec.errors import DelvecError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delvec.datasource.options import ReadOptions
    from delvec.datasource.splits import Piece
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.read.scan import Scan

__all__ = ["PiecesPartition", "RowsReader", "for_spark"]

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
