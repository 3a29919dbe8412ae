"""`spark.readStream.format("delvec")`: the rows of a table, then what commits append to it.

Spark plans in one process of the driver, which lives as long as the query, and reads in tasks. A
batch that is repeated after a crash reads the same rows: its versions are in the checkpoint, and
versions do not change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from delvec.datasource.offsets import INITIAL, Offset, beginning
from delvec.datasource.rows import for_spark, piece_rows
from delvec.datasource.session_zone import fenced_in_task, lacks_zone, zone_of_task
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
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from delvec.datasource.options import ReadOptions
    from delvec.datasource.stream_plan import StreamPiece
    from delvec.delta.log.file_set import DataFile
    from delvec.delta.log.json_actions import JsonActions
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.read.scan import Scan
    from delvec.storage import Storage

__all__ = ["StreamReader", "gone"]

_WINDOW: Final = 500  # commits that are in memory at once


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
        self._initial: Snapshot | None = None

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
            self._last = self.first_end(newest)
        elif newest < last.version:
            raise gone(storage, newest, last)
        elif newest > last.version:
            self._last = Offset(newest, self._snapshot.metadata.id)
        return self._last.to_json()  # type: ignore[union-attr]

    def first_end(self, newest: int) -> Offset:
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
            if (newest.version, newest.files) < (begin.version, begin.files):
                raise gone(self._snapshot.storage, newest.version, begin)

    def _tasks(self, begin: Offset, stop: Offset) -> list[list[StreamPiece]]:
        start = begin if begin != INITIAL else beginning(stop)
        if not start.in_snapshot or start.since is None:
            return self._changes(start, stop)
        snapshot = self.initial_snapshot(start.since)
        self._checked = snapshot.version
        options = self._options
        whole = snapshot_pieces(
            snapshot,
            options.split_bytes,
            with_changes=options.stream.change_feed,
            first=start.files,
            end=stop.files if stop.in_snapshot else None,
        )
        if stop.in_snapshot:
            return whole
        self._initial = None
        return whole + self._changes(Offset(start.since), stop)

    def initial_snapshot(self, version: int) -> Snapshot:
        """Open the version whose rows are the beginning of the stream; the last one is kept."""
        if self._initial is None or self._initial.version != version:
            self._initial = open_snapshot(self._snapshot.storage, version)
            require_columns(self._snapshot, version, self._initial.metadata)
        return self._initial

    def _changes(self, start: Offset, stop: Offset) -> list[list[StreamPiece]]:
        """Plan the versions after `start`, without the files of the first that are read already."""
        first, last = start.version + 1, stop.version + bool(stop.files)
        if first > last:
            return []
        storage, options = self._snapshot.storage, self._options
        if options.stream.change_feed and (start.files or stop.files):
            raise InvalidArgumentError(
                f"the stream stopped inside of version {first} when it read appends, and its change"
                " feed cannot go on there",
                hint="omit readChangeFeed, or begin anew with another checkpointLocation",
            )
        feed: list[list[StreamPiece]] = []
        files: list[DataFile] = []
        for commits in self.windows(first, last):
            if options.stream.change_feed:
                feed += feed_pieces(storage, commits[0][0], commits[-1][0], options.split_bytes)
                continue
            found = appended_files(self._snapshot, commits, options.stream)
            files += _between(found, start, stop)
        # Only now: what was read before is of this table then.
        require_still_there(self._snapshot, last)
        self._checked = last
        return feed or row_pieces(storage, files, options.split_bytes)

    def windows(
        self, first: int, last: int, size: int = _WINDOW
    ) -> Iterator[list[tuple[int, JsonActions]]]:
        """Read the commits of versions, not too many at once; both ends are included.

        So many as `size` says, and then ever more. Those before one that the stream cannot return
        are read as well.
        """
        start, refused = first, None
        while start <= last:
            follows = start > first or self._checked == first - 1
            end = min(start + min(size, _WINDOW) - 1, last)
            try:
                commits = read_commits(self._snapshot, start, end, follows=follows)
            except InvalidArgumentError as error:
                if start == end:
                    raise refused or error from None
                refused, size = error, 1
                continue
            yield commits
            start, size, refused = end + 1, 2 * size, None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, a batch at a time."""
        if not isinstance(partition, StreamPartition):
            raise AssertionError(f"Spark asks for a partition that was not planned: {partition!r}")  # noqa: TRY004
        storage = fenced_in_task(partition.storage)
        for piece in partition.pieces:
            scan, values = partition.scan, piece.piece.file.partition_values
            if any(lacks_zone(values.get(name)) for name in partition.zoned):
                scan = replace(scan, time_zone=zone_of_task(partition.storage.root))
            for batch in piece_rows(storage, scan, piece):
                yield for_spark(batch, partition.columns, partition.names)


def gone(storage: Storage, newest: int, read: Offset) -> InvalidArgumentError:
    """Return the error for a table whose newest version is older than what was read."""
    return InvalidArgumentError(
        f"{storage.root} has version {newest} as its newest, and the stream has read"
        f" version {read.version}: commits are gone",
        hint="begin anew with another checkpointLocation",
    )


def _between(
    files: Sequence[tuple[int, DataFile]], start: Offset, stop: Offset
) -> Iterator[DataFile]:
    """Yield files of versions, without those before `start` and after `stop`."""
    number, of = 0, None
    for version, file in files:
        number = number + 1 if version == of else 1
        of = version
        is_read = version == start.version + 1 and number <= start.files
        if not is_read and (version <= stop.version or number <= stop.files):
            yield file
