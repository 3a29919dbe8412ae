"""`spark.readStream.format("delvec")`: the rows of a table, then what commits append to it.

Spark plans in one process of the driver, which lives as long as the query, and reads in tasks. A
batch that is repeated after a crash reads the same rows: its versions are in the checkpoint, and
versions do not change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from delvec.datasource.offsets import INITIAL, Offset
from delvec.datasource.rows import for_spark
from delvec.datasource.session_zone import lacks_zone, zone_of_task
from delvec.datasource.stream_commits import (
    appended_files,
    read_commits,
    require_columns,
    require_same_table,
    require_still_there,
)
from delvec.datasource.stream_plan import feed_pieces, row_pieces, snapshot_pieces
from delvec.delta.log.commit_times import version_from
from delvec.delta.log.segment import find_segment
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.parquet.footer_statistics import row_count
from delvec.delta.read.change_feed_schema import CHANGE_TYPE, FEED_COLUMNS
from delvec.delta.read.file_reader import read_file
from delvec.delta.read.load_vectors import load_vectors
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.errors import InvalidArgumentError
from delvec.storage.listed_files import open_listed_file
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delvec.datasource.options import ReadOptions
    from delvec.datasource.stream_plan import StreamPiece
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.read.scan import Scan
    from delvec.storage import Storage

__all__ = ["StreamReader"]


@dataclass(repr=False)
class StreamPartition(InputPartition):
    """All that one task needs: it knows nothing else of the query."""

    storage: Storage
    scan: Scan
    columns: tuple[str, ...]
    names: tuple[str, ...]
    pieces: tuple[StreamPiece, ...]
    zoned: tuple[str, ...]


class StreamReader(DataSourceStreamReader):
    """Plans the batches of a stream."""

    def __init__(
        self,
        snapshot: Snapshot,
        options: ReadOptions,
        scan: Scan,
        columns: Sequence[str],
        names: Sequence[str],
        *,
        zoned: Sequence[str],
    ) -> None:
        self._snapshot, self._options, self._scan = snapshot, options, scan
        self._columns, self._names = tuple(columns), tuple(names)
        self._zoned = tuple(zoned)  # partition columns whose values may name no time zone
        self._last: Offset | None = None
        self._checked = snapshot.version  # so far the table's columns are known to be these

    def __getstate__(self) -> dict[str, Any]:
        return {}  # tasks get what they need with their partition

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the beginning; see `Offset`."""
        return INITIAL.to_json()

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the newest version as an offset; the same as before if nothing is new."""
        storage = self._snapshot.storage
        newest = find_segment(storage).version
        last = self._last
        if last is None or last == INITIAL:
            self._last = self._first(newest)
        elif newest < last.version:
            raise _gone(storage, newest, last)
        elif newest > last.version:
            self._last = Offset(newest, self._snapshot.metadata.id)
        return self._last.to_json()  # type: ignore[union-attr]

    def _first(self, newest: int) -> Offset:
        """Return the end of the first batch.

        After a restart with the trigger `availableNow` this is the end of another batch: then Spark
        has not told yet how far the stream was, and does not ask where it began.
        """
        stream, table = self._options.stream, self._snapshot.metadata.id
        since = newest
        if stream.start == "latest":
            since = newest + 1
        elif stream.start is not None:
            since = stream.start
        elif stream.start_timestamp is not None:
            zone = self._options.time_zone or "UTC"
            since = version_from(self._snapshot.storage, stream.start_timestamp, zone)
        else:
            return Offset(newest, table, newest, snapshot=True)
        if since > newest + 1:
            raise InvalidArgumentError(
                f"{self._snapshot.table} has no version {since}; the newest is {newest}",
                hint="`delvec history` lists the versions",
            )
        return Offset(newest, table, since)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan a batch."""
        begin, stop = Offset.from_json(start), Offset.from_json(end)
        for offset in (begin, stop):
            require_same_table(self._snapshot, offset.table)
        self._require_ahead(begin, stop)
        if self._last is None or self._last == INITIAL or begin == stop:
            # After a restart Spark tells how far the stream was by an empty batch.
            self._last = stop
        return [
            StreamPartition(
                self._snapshot.storage,
                self._scan,
                self._columns,
                self._names,
                tuple(pieces),
                self._zoned,
            )
            for pieces in self._tasks(begin, stop)
        ]

    def _require_ahead(self, begin: Offset, stop: Offset) -> None:
        """Refuse to go backwards: with `availableNow` the end was chosen without the beginning."""
        last = self._last
        for newest in (stop, stop if last is None or last == INITIAL else last):
            if newest.version < begin.version:
                raise _gone(self._snapshot.storage, newest.version, begin)

    def _tasks(self, begin: Offset, stop: Offset) -> list[list[StreamPiece]]:
        if begin != INITIAL:
            return self._changes(begin.version + 1, stop.version)
        if stop.since is None:
            raise InvalidArgumentError(
                "the checkpoint does not say where the stream began",
                hint="begin anew with another checkpointLocation",
            )
        if not stop.snapshot:
            return self._changes(stop.since, stop.version)
        snapshot = open_snapshot(self._snapshot.storage, stop.since)
        require_columns(self._snapshot, snapshot.version, snapshot.metadata)
        self._checked = snapshot.version
        options = self._options
        whole = snapshot_pieces(
            snapshot, options.split_bytes, with_changes=options.stream.change_feed
        )
        return whole + self._changes(stop.since + 1, stop.version)

    def _changes(self, first: int, last: int) -> list[list[StreamPiece]]:
        if first > last:
            return []
        storage, options = self._snapshot.storage, self._options
        follows = self._checked == first - 1
        commits = read_commits(self._snapshot, first, last, follows=follows)
        feed = None
        if options.stream.change_feed:
            feed = feed_pieces(storage, first, last, options.split_bytes)
        # Only now: what was read before is of this table then.
        require_still_there(self._snapshot, last)
        self._checked = last
        if feed is not None:
            return feed
        files = appended_files(self._snapshot, commits, options.stream)
        return row_pieces(storage, files, options.split_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, a batch at a time."""
        if not isinstance(partition, StreamPartition):
            raise AssertionError(f"Spark asks for a partition that was not planned: {partition!r}")  # noqa: TRY004
        for piece in partition.pieces:
            scan, values = partition.scan, piece.piece.file.partition_values
            if any(lacks_zone(values.get(name)) for name in partition.zoned):
                scan = replace(scan, time_zone=zone_of_task(partition.storage.root))
            for batch in _rows(partition.storage, scan, piece):
                yield for_spark(batch, partition.columns, partition.names)


def _gone(storage: Storage, newest: int, read: Offset) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{storage.root} has version {newest} as its newest, and the stream has read"
        f" version {read.version}: commits are gone",
        hint="begin anew with another checkpointLocation",
    )


def _rows(storage: Storage, scan: Scan, piece: StreamPiece) -> Iterator[pa.RecordBatch]:
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
