"""A batch of a stream: its commits, none missing, and the files and rows that tasks read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.datasource.options import StreamOptions
from delvec.datasource.reader import MAX_SPLIT_BYTES, Piece, pack, plan_splits
from delvec.delta.log.actions import JsonActions, Kind
from delvec.delta.log.file_set import DataFile
from delvec.delta.log.history import commit_times, read_commit_info
from delvec.delta.log.paths import commit_key
from delvec.delta.log.replay import read_log_file, read_log_files
from delvec.delta.log.segment import list_commits
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.read import change_feed
from delvec.delta.read.change_feed import COMMIT_VERSION, FeedCommit, changed_files_of
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.protocol import Protocol
from delvec.errors import InvalidArgumentError, ObjectNotFoundError, add_location
from delvec.storage import Storage
from delvec.vector import Bitmap

_UNLISTED: Final = 10_000  # versions that are read without a look whether they are there
_KINDS: Final[tuple[Kind, ...]] = ("add", "remove")
_WAYS_OUT: Final = (
    "set skipChangeCommits=true to pass over such commits, or readChangeFeed=true to get every"
    " change (the table needs delta.enableChangeDataFeed)"
)
Keep = Literal["live", "selected", "recorded"]


def require_same_table(snapshot: Snapshot, table: str | None) -> None:
    """Refuse to go on with a table that has replaced the one that the stream began with."""
    if table is not None and table != snapshot.metadata.id:
        raise _replaced(snapshot.table, table, snapshot.metadata.id)


def require_still_there(snapshot: Snapshot, version: int) -> None:
    """Refuse a version of a table that was dropped and created again while the stream ran.

    The commits of such a version do not tell: the new table's id is in its first one.
    """
    found = open_snapshot(snapshot.storage, version).metadata.id
    if found != snapshot.metadata.id:
        raise _replaced(snapshot.table, snapshot.metadata.id, found)


def read_commits(
    snapshot: Snapshot, first: int, last: int, *, follows: bool
) -> list[tuple[int, JsonActions]]:
    storage, versions = snapshot.storage, range(first, last + 1)
    try:
        if len(versions) > _UNLISTED:  # a forged checkpoint may claim any version
            _require_commits(storage, versions)
        read = read_log_files(storage, [commit_key(version) for version in versions])
    except ObjectNotFoundError:
        _require_commits(storage, versions)
        raise
    commits = list(zip(versions, read, strict=True))
    if not follows:
        require_columns(snapshot, first, open_snapshot(storage, first).metadata)
    for version, actions in commits:
        for metadata in _definitions(snapshot.table, actions):
            require_columns(snapshot, version, metadata)
    return commits


def require_columns(snapshot: Snapshot, version: int, metadata: Metadata) -> None:
    """Refuse a version that replaced the table, or whose columns the stream cannot return."""
    own = snapshot.metadata
    if metadata.id != own.id:
        raise InvalidArgumentError(
            f"version {version} of {snapshot.table} replaced the table by another one",
            hint="begin again with another checkpointLocation",
        )
    same = metadata.partition_columns == own.partition_columns
    if same and change_feed.readable_as(metadata.schema, own.schema):
        return
    raise InvalidArgumentError(
        f"version {version} of {snapshot.table} has other columns than the stream:"
        f" {metadata.schema}, and the stream returns {own.schema}",
        hint="call load() again, and start the query with that DataFrame: it will return the new"
        " columns"
        if version > snapshot.version
        else f"begin at a version after {version} with another checkpointLocation",
    )


def appended_files(
    snapshot: Snapshot, commits: Sequence[tuple[int, JsonActions]], options: StreamOptions
) -> list[tuple[int, DataFile]]:
    """Return the files that commits append, each with its version; sorted by version and path.

    Those of commits that are passed over are not among them. Commits that change no row, such as
    those of OPTIMIZE, have none.
    """
    found = (_appended(snapshot, some, options) for some in _batched(commits))
    return list(chain.from_iterable(found))


def changed_sizes(
    snapshot: Snapshot, commits: Sequence[tuple[int, JsonActions]]
) -> dict[int, list[int]]:
    """Return the sizes of the files that the change feed reads, by version; 0 if unknown."""
    found: dict[int, list[int]] = {version: [] for version, _ in commits}
    for some in _batched(commits):
        recorded = changed_files_of(some, "cdc", snapshot)
        sides = [changed_files_of(some, kind, snapshot) for kind in _KINDS]
        done = set(recorded[COMMIT_VERSION].to_pylist())
        for table in (recorded, *sides):
            columns = (table[name].to_pylist() for name in (COMMIT_VERSION, "size"))
            for version, size in zip(*columns, strict=True):
                if table is recorded or version not in done:
                    found[version].append(size or 0)
    return found


class Constants(NamedTuple):
    """What holds for all changes of a file: their type (None if recorded), version and time."""

    change: str | None
    version: int
    time_us: int


@dataclass(frozen=True)
class StreamPiece:
    """A file, or some of its row groups, and which rows of it are returned."""

    piece: Piece
    keep: Keep = "live"  # its live rows; those that a vector deletes; or all of a change data file
    vector: Bitmap | None = None  # None if it is the file's own
    constants: Constants | None = None  # the columns of the change feed


def row_pieces(
    storage: Storage,
    files: Sequence[DataFile],
    split_bytes: int | None,
    constants: Constants | None = None,
) -> list[list[StreamPiece]]:
    """Divide files among tasks, of which all live rows are returned."""
    return [
        [StreamPiece(piece, constants=constants) for piece in pieces]
        for pieces in plan_splits(storage, files, split_bytes)
    ]


def initial_order(snapshot: Snapshot) -> NDArray[np.int64]:
    """Return the order in which the files of a version are read: by time, then by path."""
    files = snapshot.files
    keys = pa.table({"time": pa.array(files.modification_times), "path": files.paths})
    found = pc.sort_indices(keys, [("time", "ascending"), ("path", "ascending")])
    return found.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def snapshot_pieces(
    snapshot: Snapshot,
    split_bytes: int | None,
    *,
    with_changes: bool,
    first: int = 0,
    end: int | None = None,
) -> list[list[StreamPiece]]:
    """Divide the files of a version among tasks; in a change feed its rows are inserts."""
    version = snapshot.version
    constants = Constants("insert", version, _time_us(snapshot)) if with_changes else None
    chosen = None if (first, end) == (0, None) else np.sort(initial_order(snapshot)[first:end])
    files = snapshot.files.data_files(chosen)
    return row_pieces(snapshot.storage, files, split_bytes, constants)


def feed_pieces(
    storage: Storage, first: int, last: int, split_bytes: int | None
) -> list[list[StreamPiece]]:
    """Divide the changes of versions among tasks, both ends included."""
    feed = change_feed.change_feed(storage, first, last)
    pieces = [
        *_of_part(feed.whole, "live"),
        *_of_part(feed.partial, "selected"),
        *_of_part(feed.recorded, "recorded"),
    ]
    return pack(pieces, lambda piece: piece.piece.bytes, split_bytes or MAX_SPLIT_BYTES)


def _batched(commits: Sequence[tuple[int, JsonActions]]) -> Iterator[list[FeedCommit]]:
    feed = [FeedCommit(actions, version, 0, changes_rows=True) for version, actions in commits]
    return change_feed.batched(feed)


def _replaced(table: str, was: str | None, found: str | None) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{table} is another table than the one that this stream has read: its id was"
        f" {was} and is {found}",
        hint="begin again with another checkpointLocation",
    )


def _require_commits(storage: Storage, versions: range) -> None:
    """Refuse versions whose commits are gone. Costs a listing."""
    found = {file.first for file in list_commits(storage, versions[0]) if file.first in versions}
    count = len(versions) - len(found)
    if not count:
        return
    missing = ", ".join(map(str, islice((each for each in versions if each not in found), 5)))
    raise InvalidArgumentError(
        f"the stream has to read versions {versions[0]} to {versions[-1]} of {storage.root}, and"
        f" the commits of {missing}{f' and {count - 5} more' if count > 5 else ''} are gone, with"
        " the rows that they added",
        hint="begin again with another checkpointLocation; a longer delta.logRetentionDuration"
        " keeps commits longer",
    )


def _definitions(table: str, actions: JsonActions) -> Iterator[Metadata]:
    for action in actions.others():
        with add_location(actions.uri):
            if isinstance(value := action.get("protocol"), dict):
                Protocol.from_json(value).require_readable(table)
            if isinstance(value := action.get("metaData"), dict):
                yield Metadata.from_json(value)


def _appended(
    snapshot: Snapshot, commits: Sequence[FeedCommit], options: StreamOptions
) -> list[tuple[int, DataFile]]:
    adding, removing = (
        change_feed.changing_versions(commits, kind, snapshot.partition_names) for kind in _KINDS
    )
    for commit in commits:
        if commit.version in removing and not options.skip_changes:
            adds = commit.version in adding
            if adds or not options.ignore_deletes:
                raise _changed(snapshot, commit, adds=adds)
    kept = [commit for commit in commits if commit.version in adding - removing]
    if not kept:
        return []
    adds = changed_files_of(kept, "add", snapshot)
    _require_new(snapshot, adds, options)
    builder = change_feed.PartBuilder(snapshot)
    builder.add(adds, None)
    part = builder.part()
    versions = part.constants[COMMIT_VERSION].to_pylist()
    found = zip(versions, part.files.data_files(), strict=True)
    return sorted(found, key=lambda each: (each[0], each[1].path))


def _changed(snapshot: Snapshot, commit: FeedCommit, *, adds: bool) -> InvalidArgumentError:
    operation = read_commit_info(commit.actions).get("operation", "unknown operation")
    what = "deletes or updates rows" if adds else "deletes rows"
    more = "" if adds else "; ignoreDeletes=true passes over commits that only delete"
    return InvalidArgumentError(
        f"version {commit.version} of {snapshot.table} ({operation}) {what}, and a stream of"
        " appended rows cannot say so",
        hint=f"{_WAYS_OUT}{more}",
    )


def _require_new(snapshot: Snapshot, adds: pa.Table, options: StreamOptions) -> None:
    """Refuse a vector that came to an existing file without a remove, which is a delete."""
    with_vector = adds.filter(adds["deletionVector"].combine_chunks().is_valid())
    for version in np.unique(with_vector[COMMIT_VERSION].to_numpy()).tolist():
        if version == 0:
            continue
        before = open_snapshot(snapshot.storage, version - 1).files.paths
        paths = with_vector.filter(pc.equal(with_vector[COMMIT_VERSION], version))["path"]
        if pc.any(pc.is_in(paths.combine_chunks(), value_set=before)).as_py():
            raise InvalidArgumentError(
                f"version {version} of {snapshot.table} gives a file that it had before another"
                " deletion vector, and does not say that it removes the old entry"
                + (" (skipChangeCommits knows changes by that)" if options.skip_changes else ""),
                hint="set readChangeFeed=true, or begin at a later version with another"
                " checkpointLocation",
            )


def _time_us(snapshot: Snapshot) -> int:
    version = snapshot.version
    times = commit_times(snapshot, version, version)
    own = [commit for commit in times.commits if commit.first == version]
    if not own:  # only its checkpoint is left
        return snapshot.segment.modified_ms * 1000
    info = read_commit_info(read_log_file(snapshot.storage, commit_key(version)))
    return times.of_read(own[0], info) * 1000


def _of_part(part: change_feed.FeedPart, keep: Keep) -> Iterator[StreamPiece]:
    changes = part.constants[change_feed.CHANGE_TYPE].to_pylist()
    versions = part.constants[COMMIT_VERSION].to_pylist()
    times = part.constants[change_feed.COMMIT_TIMESTAMP].to_numpy().astype("datetime64[us]")
    times_us = times.astype(np.int64).tolist()
    own = part.files.vectors.is_valid().to_pylist()
    for at, file in enumerate(part.files.data_files()):
        # Of a file whose vector changed, the difference of the two is in memory.
        vector = part.marks[at] if keep == "selected" and own[at] else None
        constants = Constants(changes[at], versions[at], times_us[at])
        yield StreamPiece(Piece(file, None, file.size), keep, vector, constants)
