"""`spark.readStream.format("delvec")`: the rows of a table, then what commits append to it.

Spark plans in one process of the driver, which lives as long as the query, and reads in tasks. A
batch that is repeated after a crash reads the same rows: its versions are in the checkpoint, as
JSON, and versions do not change.

From 4.2 on, Spark tells a Python source where a batch starts, whether the trigger wants all that is
new, and, with `availableNow`, when the query began: so only then can `maxFilesPerTrigger` and
`maxBytesPerTrigger` end a batch earlier. As in Delta, a batch is 1000 files by default, and one at
least. Appends are cut between files, a change feed between commits: both images of an update are
in one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from delvec.datasource import stream_batch
from delvec.datasource.options import ReadOptions
from delvec.datasource.reader import fenced_in_task, for_spark, lacks_zone, piece_rows, zone_of_task
from delvec.datasource.stream_batch import StreamPiece
from delvec.delta.log.actions import JsonActions
from delvec.delta.log.file_set import DataFile
from delvec.delta.log.history import version_from
from delvec.delta.log.segment import find_segment
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.read.scan import Scan
from delvec.errors import FormatError, InvalidArgumentError
from delvec.storage import Storage

try:
    from pyspark.sql.streaming.datasource import ReadMaxFiles, SupportsTriggerAvailableNow  # type: ignore[import-not-found]
except ImportError:  # before Spark 4.2, which makes a StreamReader

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands for Spark's class of this name."""


_WINDOW: Final = 500  # commits that are in memory at once
_DEFAULT_FILES: Final = 1000
_MAX_VERSIONS: Final = 1000  # of a batch: commits without files count for nothing else
_FIRST_WINDOW: Final = 16  # commits that are read at first: their files may be more than a batch


@dataclass(frozen=True)
class Offset:
    """The end of a batch: all of a version is read, and maybe some files of what follows.

    Spark asks for the beginning of a stream again if its first batch has to be repeated. So the
    beginning is the same for all streams, and the end of the first batch says where it began.
    """

    version: int  # the last that is read; -1 before the first batch
    table: str | None = None  # the id of the table, by which one that replaced it is known
    since: int | None = None  # in the end of the first batch, the version where the stream began
    # Whether it began with all rows of that version, and not with its changes. Both are kept while
    # these rows are being read, with a version before `since`.
    snapshot: bool = False
    # How many files are read of the rows at the beginning, or else of the next version; in the
    # order of `stream_batch.initial_order` and of their paths.
    files: int = 0

    @property
    def in_snapshot(self) -> bool:
        """Whether the rows at the beginning are not yet read completely."""
        return self.snapshot and self.since is not None and self.version < self.since

    def to_json(self) -> dict[str, Any]:
        """Return the form that is kept in the checkpoint.

        >>> Offset(7, "5f3a", since=7, snapshot=True).to_json()
        {'table': '5f3a', 'version': 7, 'since': 7, 'snapshot': True}
        >>> Offset(7, "5f3a", files=3).to_json()
        {'table': '5f3a', 'version': 7, 'files': 3}
        """
        if self == INITIAL:
            return {"version": -1}
        value: dict[str, Any] = {"table": self.table, "version": self.version}
        if self.since is not None:
            value |= {"since": self.since, "snapshot": self.snapshot}
        if self.files:
            value["files"] = self.files
        return value

    @classmethod
    def from_json(cls, value: Any) -> Offset:  # noqa: ANN401 - whatever the checkpoint has
        found = value if isinstance(value, dict) else {}
        version, table = found.get("version"), found.get("table")
        since, files = found.get("since"), found.get("files", 0)
        numbers = (version, 0 if since is None else since, files)
        if not all(type(each) is int for each in numbers) or not isinstance(table, str | None):
            raise FormatError(
                "the checkpoint holds an offset of another source",
                expected='such as {"table": "...", "version": 7}',
                found=repr(value)[:200],
                hint="begin again with another checkpointLocation",
            )
        return cls(int(version or 0), table, since, bool(found.get("snapshot")), files)


INITIAL: Final = Offset(-1)
"""The beginning of every stream."""


def beginning(stop: Offset) -> Offset:
    """Return where the first batch begins, which its end tells."""
    if stop.since is None:
        raise InvalidArgumentError(
            "the checkpoint does not say where the stream began",
            hint="begin again with another checkpointLocation",
        )
    if stop.snapshot:
        return Offset(-1, stop.table, stop.since, snapshot=True)
    return Offset(stop.since - 1, stop.table)


@dataclass(repr=False)
class StreamPartition(InputPartition):
    """All that one task needs: it knows nothing else of the query."""

    storage: Storage
    scan: Scan
    columns: Sequence[str]
    names: Sequence[str]
    zoned: Sequence[str]
    pieces: Sequence[StreamPiece]


@dataclass(eq=False, repr=False)
class StreamReader(DataSourceStreamReader):
    """Plans the batches of a stream."""

    snapshot: Snapshot
    options: ReadOptions
    scan: Scan
    columns: Sequence[str]
    names: Sequence[str]
    zoned: Sequence[str]  # partition columns whose values may name no time zone
    _last: Offset | None = None
    _initial: Snapshot | None = None

    def __post_init__(self) -> None:
        self._checked = self.snapshot.version  # so far the table's columns are known to be these

    def __getstate__(self) -> dict[str, Any]:
        return {}  # tasks get what they need with their partition

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the beginning; see `Offset`."""
        return INITIAL.to_json()

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the newest version as an offset; the same as before if nothing is new."""
        storage = self.snapshot.storage
        newest = find_segment(storage).version
        last = self._last
        if last is None or last == INITIAL:
            self._last = self.first_end(newest)
        elif newest < last.version:
            raise gone(storage, newest, last)
        elif newest > last.version:
            self._last = Offset(newest, self.snapshot.metadata.id)
        return self._last.to_json()  # type: ignore[union-attr]

    def first_end(self, newest: int) -> Offset:
        """Return the end of the first batch.

        After a restart with the trigger `availableNow` this is the end of another batch: then Spark
        has not told yet how far the stream was, and does not ask where it began.
        """
        stream, table = self.options.stream, self.snapshot.metadata.id
        if stream.start == "latest":
            since = newest + 1
        elif stream.start is not None:
            since = stream.start
        elif stream.start_timestamp is not None:
            zone = self.options.time_zone or "UTC"
            since = version_from(self.snapshot.storage, stream.start_timestamp, zone)
        else:
            return Offset(newest, table, newest, snapshot=True)
        if since > newest + 1:
            raise InvalidArgumentError(
                f"{self.snapshot.table} has no version {since}; the newest is {newest}",
                hint="`delvec history` lists the versions",
            )
        return Offset(newest, table, since)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, stop = Offset.from_json(start), Offset.from_json(end)
        for offset in (begin, stop):
            stream_batch.require_same_table(self.snapshot, offset.table)
        # With `availableNow` the end was chosen without the beginning, and may be before it.
        last = self._last
        for newest in (stop, stop if last is None or last == INITIAL else last):
            if (newest.version, newest.files) < (begin.version, begin.files):
                raise gone(self.snapshot.storage, newest.version, begin)
        if self._last is None or self._last == INITIAL or begin == stop:
            # After a restart Spark tells how far the stream was by an empty batch.
            self._last = stop
        read = (self.snapshot.storage, self.scan, self.columns, self.names, self.zoned)
        return [StreamPartition(*read, pieces) for pieces in self._tasks(begin, stop)]

    def _tasks(self, begin: Offset, stop: Offset) -> list[list[StreamPiece]]:
        start = begin if begin != INITIAL else beginning(stop)
        if not start.in_snapshot or start.since is None:
            return self._changes(start, stop)
        snapshot = self.initial_snapshot(start.since)
        self._checked = snapshot.version
        options = self.options
        whole = stream_batch.snapshot_pieces(
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
            self._initial = open_snapshot(self.snapshot.storage, version)
            stream_batch.require_columns(self.snapshot, version, self._initial.metadata)
        return self._initial

    def _changes(self, start: Offset, stop: Offset) -> list[list[StreamPiece]]:
        """Plan the versions after `start`, without the files of the first that are read already."""
        first, last = start.version + 1, stop.version + bool(stop.files)
        if first > last:
            return []
        storage, options = self.snapshot.storage, self.options
        if options.stream.change_feed and (start.files or stop.files):
            raise InvalidArgumentError(
                f"the stream stopped inside of version {first} when it read appends, and its change"
                " feed cannot go on there",
                hint="omit readChangeFeed, or begin again with another checkpointLocation",
            )
        feed: list[list[StreamPiece]] = []
        files: list[DataFile] = []
        for commits in self.windows(first, last):
            if options.stream.change_feed:
                ends = commits[0][0], commits[-1][0]
                feed += stream_batch.feed_pieces(storage, *ends, options.split_bytes)
                continue
            found = stream_batch.appended_files(self.snapshot, commits, options.stream)
            files += _between(found, start, stop)
        # Only now: what was read before is of this table then.
        stream_batch.require_still_there(self.snapshot, last)
        self._checked = last
        return feed or stream_batch.row_pieces(storage, files, options.split_bytes)

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
                commits = stream_batch.read_commits(self.snapshot, start, end, follows=follows)
            except InvalidArgumentError as error:
                if start == end:
                    raise refused or error from None
                refused, size = error, 1
                continue
            yield commits
            start, size, refused = end + 1, 2 * size, None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, StreamPartition):
            raise AssertionError(f"Spark asks for a partition that was not planned: {partition!r}")  # noqa: TRY004
        storage = fenced_in_task(partition.storage)
        for piece in partition.pieces:
            scan, values = partition.scan, piece.piece.file.partition_values
            if any(lacks_zone(values.get(name)) for name in partition.zoned):
                scan = replace(scan, time_zone=zone_of_task(partition.storage.root))
            for batch in piece_rows(storage, scan, piece):
                yield for_spark(batch, partition.columns, partition.names)


class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans batches of limited size."""

    _until: int | None = None

    def getDefaultReadLimit(self) -> Any:  # noqa: ANN401, N802
        """Return that batches are limited; how, the options say."""
        return ReadMaxFiles(self.options.stream.max_files or _DEFAULT_FILES)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the newest version, where the query will end."""
        self._until = find_segment(self.snapshot.storage).version

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # type: ignore[override]  # noqa: ANN401, N802
        """Return the end of the batch that begins at an offset; the same if nothing is new."""
        storage, table = self.snapshot.storage, self.snapshot.metadata.id
        begin, newest = Offset.from_json(start), find_segment(storage).version
        stream_batch.require_same_table(self.snapshot, begin.table)
        if newest < begin.version:
            raise gone(storage, newest, begin)
        last = newest if self._until is None else min(newest, self._until)
        if begin == INITIAL:
            end = self.first_end(last)
        elif begin.in_snapshot:
            end = Offset(last, table, begin.since, snapshot=True)
        elif last > begin.version:
            end = Offset(last, table)
        else:
            return start
        if type(limit).__name__ != "ReadAllAvailable":
            end = self._limited(beginning(end) if begin == INITIAL else begin, end)
        self._last = end
        return end.to_json()

    def _limited(self, start: Offset, end: Offset) -> Offset:
        """Return where a batch stops that the limits allow, `end` at the latest."""
        left = _Left(self.options.stream.max_files, self.options.stream.max_bytes)
        if start.in_snapshot and start.since is not None:
            snapshot = self.initial_snapshot(start.since)
            order = stream_batch.initial_order(snapshot)
            sizes = snapshot.files.sizes[order][start.files :].tolist()
            taken = left.take(sizes)
            if taken < len(sizes):
                return replace(end, version=-1, files=start.files + taken)
            return replace(end, version=start.since)
        first, last = start.version + 1, min(end.version, start.version + _MAX_VERSIONS)
        done = start.version
        try:
            windows = self.windows(first, last, _FIRST_WINDOW)
            for version, sizes in chain.from_iterable(map(self._sizes, windows)):
                skipped = start.files if version == first else 0
                is_first, taken = left.is_whole, left.take(sizes[skipped:])
                if skipped + taken < len(sizes):
                    if not self.options.stream.change_feed:
                        return replace(end, version=version - 1, files=skipped + taken)
                    return replace(end, version=version if is_first else version - 1)
                done = version
                if left.is_spent:
                    break
        except InvalidArgumentError:
            # What comes before the commit at which the stream has to end is read; the next batch
            # begins with that.
            if done == start.version:
                raise
        return replace(end, version=done)

    def _sizes(
        self, commits: Sequence[tuple[int, JsonActions]]
    ) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield for each commit the sizes of the files that are read, in their order."""
        stream = self.options.stream
        if stream.change_feed:
            yield from stream_batch.changed_sizes(self.snapshot, commits).items()
            return
        sizes: dict[int, list[int]] = {version: [] for version, _ in commits}
        try:
            files = stream_batch.appended_files(self.snapshot, commits, stream)
        except InvalidArgumentError:
            if len(commits) == 1:
                raise
            # One by one: the commit at which the stream has to end may be behind the limit.
            for commit in commits:
                yield from self._sizes([commit])
            return
        for version, file in files:
            sizes[version].append(file.size)
        yield from sizes.items()


def gone(storage: Storage, newest: int, read: Offset) -> InvalidArgumentError:
    """Return the error for a table whose newest version is older than what was read."""
    return InvalidArgumentError(
        f"{storage.root} has version {newest} as its newest, and the stream has read"
        f" version {read.version}: commits are gone",
        hint="begin again with another checkpointLocation",
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


class _Left:
    """What a batch may still take; bytes are exceeded by the last file, as in Delta."""

    def __init__(self, files: int | None, size: int | None) -> None:
        self._files = files or (_DEFAULT_FILES if size is None else None)
        self._bytes = size
        self.is_whole = True

    @property
    def is_spent(self) -> bool:
        return self._files == 0 or (self._bytes is not None and self._bytes <= 0)

    def take(self, sizes: Sequence[int]) -> int:
        for number, size in enumerate(sizes):
            if self.is_spent:
                return number
            self._files = None if self._files is None else self._files - 1
            self._bytes = None if self._bytes is None else self._bytes - size
            self.is_whole = False
        return len(sizes)
