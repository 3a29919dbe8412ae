"""The commits of a batch of a stream: all of them, with columns that the stream can return."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.commit_times import info_of
from delvec.delta.log.commits import read_log_files
from delvec.delta.log.segment import commit_key, list_commits
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.read.change_feed_actions import (
    FeedCommit,
    batched,
    changed_files_of,
    changing_versions,
)
from delvec.delta.read.change_feed_parts import PartBuilder
from delvec.delta.read.change_feed_schema import COMMIT_VERSION, readable_as
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.protocol import Protocol
from delvec.errors import InvalidArgumentError, ObjectNotFoundError, located

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delvec.datasource.stream_options import StreamOptions
    from delvec.delta.log.action_columns import Kind
    from delvec.delta.log.file_set import DataFile
    from delvec.delta.log.json_actions import JsonActions
    from delvec.delta.log.snapshot import Snapshot
    from delvec.storage import Storage

__all__ = [
    "appended_files",
    "changed_sizes",
    "read_commits",
    "require_columns",
    "require_same_table",
    "require_still_there",
]

_UNLISTED: Final = 10_000  # versions that are read without a look whether they are there
_KINDS: Final[tuple[Kind, ...]] = ("add", "remove")
_WAYS_OUT: Final = (
    "set skipChangeCommits=true to pass over such commits, or readChangeFeed=true to get every"
    " change (the table needs delta.enableChangeDataFeed)"
)


def require_same_table(snapshot: Snapshot, table: str | None) -> None:
    """Refuse to go on with a table that has replaced the one that the stream began with.

    Raises:
        InvalidArgumentError: It is another one.
    """
    if table is not None and table != snapshot.metadata.id:
        raise _replaced(snapshot.table, table, snapshot.metadata.id)


def require_still_there(snapshot: Snapshot, version: int) -> None:
    """Refuse a version of a table that was dropped and created again while the stream ran.

    The commits of such a version do not tell: the new table's id is in its first one.

    Raises:
        InvalidArgumentError: It is a version of another table.
    """
    found = open_snapshot(snapshot.storage, version).metadata.id
    if found != snapshot.metadata.id:
        raise _replaced(snapshot.table, snapshot.metadata.id, found)


def _replaced(table: str, was: str | None, found: str | None) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{table} is another table than the one that this stream has read: its id was"
        f" {was} and is {found}",
        hint="begin anew with another checkpointLocation",
    )


def read_commits(
    snapshot: Snapshot, first: int, last: int, *, follows: bool
) -> list[tuple[int, JsonActions]]:
    """Read the commits of versions, both ends included.

    Args:
        snapshot: The version whose columns the stream returns.
        first: The first version.
        last: The last one.
        follows: Whether the columns of the version before the first are checked already.

    Raises:
        InvalidArgumentError: Commits are gone, or their columns are not those of the stream.
    """
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
        hint="begin anew with another checkpointLocation; a longer delta.logRetentionDuration"
        " keeps commits longer",
    )


def _definitions(table: str, actions: JsonActions) -> Iterator[Metadata]:
    """Yield the new definition of the table that a commit has, if any."""
    for action in actions.others():
        with located(actions.uri):
            if isinstance(value := action.get("protocol"), dict):
                Protocol.from_json(value).require_readable(table)
            if isinstance(value := action.get("metaData"), dict):
                yield Metadata.from_json(value)


def require_columns(snapshot: Snapshot, version: int, metadata: Metadata) -> None:
    """Refuse a version that replaced the table, or whose columns the stream cannot return.

    Raises:
        InvalidArgumentError: With the version, and what to do.
    """
    own = snapshot.metadata
    if metadata.id != own.id:
        raise InvalidArgumentError(
            f"version {version} of {snapshot.table} replaced the table by another one",
            hint="begin anew with another checkpointLocation",
        )
    same = metadata.partition_columns == own.partition_columns
    if same and readable_as(metadata.schema, own.schema):
        return
    restart = version > snapshot.version
    raise InvalidArgumentError(
        f"version {version} of {snapshot.table} has other columns than the stream:"
        f" {metadata.schema}, and the stream returns {own.schema}",
        hint="call load() again, and start the query with that DataFrame: it will return the new"
        " columns"
        if restart
        else f"begin at a version after {version} with another checkpointLocation",
    )


def appended_files(
    snapshot: Snapshot, commits: Sequence[tuple[int, JsonActions]], options: StreamOptions
) -> list[tuple[int, DataFile]]:
    """Return the files that commits append, each with its version; sorted by version and path.

    Those of commits that are passed over are not among them. Commits that change no row, such as
    those of OPTIMIZE, have none.

    Raises:
        InvalidArgumentError: A commit deletes or updates rows; it names the ways out.
    """
    feed = [FeedCommit(actions, version, 0, changes_rows=True) for version, actions in commits]
    found: list[tuple[int, DataFile]] = []
    for some in batched(feed):
        found += _appended(snapshot, some, options)
    return found


def _appended(
    snapshot: Snapshot, commits: Sequence[FeedCommit], options: StreamOptions
) -> list[tuple[int, DataFile]]:
    adding, removing = (
        changing_versions(commits, kind, snapshot.partition_names) for kind in _KINDS
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
    builder = PartBuilder(snapshot)
    builder.add(adds, None)
    part = builder.part()
    versions = part.constants[COMMIT_VERSION].to_pylist()
    found = zip(versions, part.files.data_files(), strict=True)
    return sorted(found, key=lambda each: (each[0], each[1].path))


def changed_sizes(
    snapshot: Snapshot, commits: Sequence[tuple[int, JsonActions]]
) -> dict[int, list[int]]:
    """Return the sizes of the files that the change feed reads, by version; 0 if unknown."""
    found: dict[int, list[int]] = {version: [] for version, _ in commits}
    feed = [FeedCommit(actions, version, 0, changes_rows=True) for version, actions in commits]
    for some in batched(feed):
        recorded = changed_files_of(some, "cdc", snapshot)
        sides = [changed_files_of(some, kind, snapshot) for kind in _KINDS]
        done = set(recorded[COMMIT_VERSION].to_pylist())
        for table in (recorded, *sides):
            for version, size in zip(
                table[COMMIT_VERSION].to_pylist(), table["size"].to_pylist(), strict=True
            ):
                if table is recorded or version not in done:
                    found[version].append(size or 0)
    return found


def _changed(snapshot: Snapshot, commit: FeedCommit, *, adds: bool) -> InvalidArgumentError:
    operation = info_of(commit.actions).get("operation", "unknown operation")
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
