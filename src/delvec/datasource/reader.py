"""The rows of a version, in parts of similar size; each task loads the vectors of its own files.

The time zone and the fence are those of the session, as far as Spark tells them: tasks have the
settings that were set explicitly as local properties. The processes that plan a read have none of
them, in Spark 4.0 to 4.3.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition

from delvec.datasource.options import ReadOptions, names_zone
from delvec.delta.read.change_feed import CHANGE_TYPE, FEED_COLUMNS
from delvec.delta.read.data_file import open_data_file
from delvec.delta.read.footer_statistics import row_count
from delvec.delta.read.scan import read_file
from delvec.delta.read.vectors import load_vectors
from delvec.delta.schema.partition_values import is_null_text
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.errors import DelvecError, InvalidArgumentError, UnsupportedFeatureError
from delvec.storage.fence import ALLOWED_PATHS, lists_of
from delvec.storage.listed_files import open_listed_file
from delvec.storage.parallel import gather
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from delvec.datasource.stream_batch import Constants, StreamPiece
    from delvec.delta.log.file_set import DataFile
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.read.scan import Scan
    from delvec.storage import Storage

MAX_SPLIT_BYTES: Final = 128 << 20  # Spark's spark.sql.files.maxPartitionBytes
OPEN_COST: Final = 4 << 20  # and its spark.sql.files.openCostInBytes
_SETTING: Final = "spark.sql.session.timeZone"
_TIMESTAMP: Final = PrimitiveType("timestamp")
ZONE_HINT: Final = f'set the option timeZone to spark.conf.get("{_SETTING}")'
_VECTORS_AT_ONCE: Final = 64
Item = TypeVar("Item")


@dataclass(repr=False)
class TablePartition(InputPartition):
    """What one task reads: pieces, or files."""

    items: tuple[Any, ...]


@dataclass(eq=False, repr=False)
class TableReader(DataSourceReader):
    """Plans on the driver, reads in tasks; what it has is pickled for them, except the log."""

    snapshot: Snapshot | None
    storage: Storage
    options: ReadOptions
    columns: Sequence[str]
    names: Sequence[str]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "snapshot": None}

    @abstractmethod
    def _planned(self, snapshot: Snapshot) -> Sequence[Sequence[Any]]:
        """Return what each task reads."""

    @abstractmethod
    def _batches(self, items: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, under the names of the table."""

    def partitions(self) -> Sequence[InputPartition]:
        if self.snapshot is None:
            raise AssertionError("the read is planned before it is pickled")
        try:
            # For an empty list Spark would create a partition that was not planned.
            return [TablePartition(tuple(items)) for items in self._planned(self.snapshot) or [[]]]
        except UnsupportedFeatureError as error:
            # It is a NotImplementedError, which Spark takes for: no partitions.
            raise DelvecError(error.describe(), hint=error.hint) from error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TablePartition):
            raise AssertionError(f"Spark asks for a partition that was not planned: {partition!r}")  # noqa: TRY004
        self.storage = fenced_in_task(self.storage)
        batches = self._batches(partition.items)
        return (for_spark(batch, self.columns, self.names) for batch in batches)


@dataclass(eq=False, repr=False)
class RowsReader(TableReader):
    """Reads the rows of files that may match."""

    scan: Scan
    needs_zone: bool

    def _planned(self, snapshot: Snapshot) -> Sequence[Sequence[Piece]]:
        files = snapshot.files.prune(self.scan.predicate, self.scan.time_zone)
        if self.options.files == "vectored":
            files = files.select(files.has_vector)
        return plan_splits(self.storage, files.data_files(), self.options.split_bytes)

    def _batches(self, items: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
        scan = self.scan
        if self.needs_zone:
            scan = replace(scan, time_zone=zone_of_task(self.storage.root))
        for start in range(0, len(items), _VECTORS_AT_ONCE):
            window = items[start : start + _VECTORS_AT_ONCE]
            vectors = load_vectors(self.storage, [piece.file for piece in window])
            for piece, vector in zip(window, vectors, strict=True):
                yield from read_file(
                    self.storage, piece.file, scan, vector=vector, row_groups=piece.row_groups
                )


def piece_rows(storage: Storage, scan: Scan, piece: StreamPiece) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece of a stream, with the columns of the change feed if it has one."""
    file, vector = piece.piece.file, piece.vector
    if vector is None:
        [vector] = load_vectors(storage, [file])
    if piece.keep == "selected":
        place, key = open_listed_file(storage, file.path)
        rows = Bitmap.from_ranges([0], [row_count(place, key, file.size)])
        vector = rows - (vector or Bitmap())
    if piece.keep == "recorded":
        # The column has no id under column mapping.
        field = Field(CHANGE_TYPE, PrimitiveType("string"))
        scan = replace(
            scan,
            schema=StructType((*scan.schema.fields, field)),
            columns=None if scan.columns is None else (*scan.columns, CHANGE_TYPE),
            mapping_mode="none" if scan.mapping_mode == "none" else "name",
        )
    for batch in read_file(storage, file, scan, vector=vector, row_groups=piece.piece.row_groups):
        yield batch if piece.constants is None else _with_constants(batch, piece.constants)


def for_spark(
    batch: pa.RecordBatch, columns: Sequence[str], names: Sequence[str]
) -> pa.RecordBatch:
    """Return columns of a batch in the order of Spark's schema and under its names."""
    return pa.record_batch([batch.column(name) for name in columns], names=list(names))


@dataclass(frozen=True, slots=True)
class Piece:
    """A data file, or some of its row groups."""

    file: DataFile
    row_groups: tuple[int, ...] | None
    bytes: int


def plan_splits(
    storage: Storage, files: Sequence[DataFile], split_bytes: int | None
) -> list[list[Piece]]:
    """Return the pieces of each task: small files combined, large ones split by their footers."""
    whole = sum(file.size + OPEN_COST for file in files)
    share = max(OPEN_COST, whole // (os.cpu_count() or 1))
    limit = split_bytes or min(MAX_SPLIT_BYTES, share)
    cut = gather(lambda file: _cut(storage, file, limit), files)
    pieces = [piece for some in cut for piece in some]
    # A limit given by the user counts bytes alone.
    return pack(pieces, lambda piece: piece.bytes, limit, cost=0 if split_bytes else OPEN_COST)


def pack(
    items: Sequence[Item], weight: Callable[[Item], int], limit: int, *, cost: int = 0
) -> list[list[Item]]:
    """Return groups of items whose weight is at most a limit, or of one item; heaviest first.

    >>> pack([1, 9, 5, 3, 2], int, 6)
    [[9], [5], [3, 2, 1]]
    """
    groups: list[list[Item]] = []
    held = 0
    for item in sorted(items, key=weight, reverse=True):
        if not groups or held + weight(item) > limit:
            groups.append([])
            held = 0
        groups[-1].append(item)
        held += weight(item) + cost
    return groups


def lacks_zone(text: str | None) -> bool:
    """Return whether a partition value is a timestamp that names no zone.

    >>> lacks_zone("2026-01-31 10:00:00"), lacks_zone("2026-01-31T09:00:00.000000Z")
    (True, False)
    """
    return bool(text) and not is_null_text(str(text), _TIMESTAMP) and not names_zone(str(text))


def fenced_in_task(storage: Storage) -> Storage:
    """Return the storage with the fence of the session, if it has one; called in a task."""
    context = TaskContext.get()
    text = context.getLocalProperty(ALLOWED_PATHS) if context is not None else None
    return storage if text is None else storage.narrowed(lists_of(text)[0])


def zone_of_task(table: str) -> str:
    """Return the session's time zone; called in a task."""
    context = TaskContext.get()
    zone = context.getLocalProperty(_SETTING) if context is not None else None
    if not zone:
        raise InvalidArgumentError(
            f"a partition column of {table} has timestamps without a zone, and the session does not"
            f" set {_SETTING}",
            hint=f'set {_SETTING} in the session, as to "UTC", or {ZONE_HINT}',
        )
    return zone


def _cut(storage: Storage, file: DataFile, limit: int) -> list[Piece]:
    if file.size <= limit:
        return [Piece(file, None, file.size)]
    with open_data_file(storage, file, StructType(()), mapping_mode="none") as data:
        metadata = data.parquet.metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        sizes = [
            sum(group.column(i).total_compressed_size for i in range(group.num_columns))
            for group in groups
        ]
    return list(_runs(file, sizes, limit))


def _runs(file: DataFile, sizes: Sequence[int], limit: int) -> Iterator[Piece]:
    start, held = 0, 0
    for group, size in enumerate(sizes):
        if held and held + size > limit:
            yield Piece(file, tuple(range(start, group)), held)
            start, held = group, 0
        held += size
    if start < len(sizes):
        yield Piece(file, tuple(range(start, len(sizes))), held)


def _with_constants(batch: pa.RecordBatch, constants: Constants) -> pa.RecordBatch:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for field, value in zip(FEED_COLUMNS, constants, strict=True):
        if value is not None:  # the type of recorded changes is in their file
            columns[field.name] = pa.repeat(pa.scalar(value, field.type), batch.num_rows)
    return pa.record_batch(list(columns.values()), names=list(columns))
