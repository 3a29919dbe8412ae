"""What happened to the source since a version: by its commits alone, never by a checkpoint.

Memory grows with the files that the commits touch, and with what the commits say of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from delvec.delta.log.commit_times import commit_times, in_commit_timestamp, info_of
from delvec.delta.log.commits import changed_files, read_log_files
from delvec.delta.log.history import as_string
from delvec.delta.log.segment import covering_files, list_log, oldest_version
from delvec.delta.log.small_actions import state_set_by
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.schema.properties import ENABLE_IN_COMMIT_TIMESTAMPS
from delvec.errors import InvalidArgumentError, ObjectNotFoundError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from delvec.delta.log.commit_times import CommitTimes
    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.json_actions import JsonActions
    from delvec.delta.log.segment import LogFile
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.protocol import Protocol
    from delvec.storage import Storage

__all__ = [
    "Changes",
    "CommitFacts",
    "VersionStep",
    "changes_between",
    "commit_facts",
    "oldest_version",
    "versions_after",
]


@dataclass(frozen=True)
class Changes:
    """What commits did to files. All paths are decoded and in one spelling, as in a `FileSet`.

    To bring the files of the version before to the version after: take away those whose path is
    touched, and put the live ones in. This holds for files that are spoken of with the vector that
    they have: a remove counts for the vector that it names, and leaves a file live that has
    another. No engine writes such a log; one that forgets vectors does.

    Attributes:
        live: The files that the commits add and that are live after them.
        spoken: What the commits add or remove, each once: the columns `path` and `vector_id`, which
            is null where there is no vector.
    """

    live: FileSet
    spoken: pa.Table

    @cached_property
    def touched(self) -> pa.Array:
        """The paths that the commits add or remove, each once."""
        return self.spoken["path"].combine_chunks().unique()


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What a commit says of itself; None where it says nothing.

    Attributes:
        version: The version that it made.
        timestamp_ms: Its time in milliseconds since 1970, as the table's history has it.
        operation: Such as `MERGE`.
        operation_parameters: A JSON object as text.
        user_metadata: What the user put there.
        engine_info: Who wrote it.
        transaction_id: The `txnId` of the commit.
    """

    version: int
    timestamp_ms: int | None = None
    operation: str | None = None
    operation_parameters: str | None = None
    user_metadata: str | None = None
    engine_info: str | None = None
    transaction_id: str | None = None


@dataclass(frozen=True)
class VersionStep:
    """One version, as what changed since the one before; protocol and metadata are in force."""

    version: int
    facts: CommitFacts
    protocol: Protocol
    metadata: Metadata
    changes: Changes


def changes_between(snapshot: Snapshot, start: int) -> Changes | None:
    """Tell what the commits after a version did, up to that of the snapshot.

    What the snapshot has read already is not read again. If that is not all, the log is listed
    from the version on, and the commits are read side by side; where a compacted file stands for
    commits of these versions only, it is read instead.

    Args:
        snapshot: The version that the changes lead to.
        start: The version that they start from, which need not be there any more.

    Returns:
        The changes; None if the commits cannot tell, and whole versions have to be compared: one of
        them is not in the log any more, or the table was not readable in between, or the start is
        after the snapshot.

    Raises:
        FormatError: A commit is damaged.
    """
    if start > snapshot.version:
        return None
    commits = _commits_after(snapshot, start)
    if commits is None or not all(_is_readable(snapshot.table, actions) for actions in commits):
        return None
    return Changes(*changed_files(snapshot.metadata, snapshot.table, commits))


def _commits_after(snapshot: Snapshot, start: int) -> list[JsonActions] | None:
    """Give the commits after a version, newest first; None if one is gone."""
    read = [actions for file, actions in snapshot.commits if file.first > start]
    end = min(
        (file.first for file, _ in snapshot.commits if file.first > start),
        default=snapshot.version + 1,
    )
    if end <= start + 1:
        return read
    listing = list_log(snapshot.storage, max(0, start + 1))
    files, covered = covering_files(listing, start + 1, end - 1)
    if covered < end:
        return None
    try:
        older = read_log_files(snapshot.storage, [file.key for file in reversed(files)])
    except ObjectNotFoundError:
        return None  # cleaned up since the log was listed
    return read + older


def _is_readable(table: str, actions: JsonActions) -> bool:
    """Tell whether a commit leaves a table that can be read: one that cannot may hide its files."""
    protocol, _ = state_set_by(actions)
    if protocol is None:
        return True
    try:
        protocol.require_readable(table)
    except UnsupportedFeatureError:
        return False
    return True


def commit_facts(snapshot: Snapshot, version: int) -> CommitFacts:
    """Read what the commit of a version says of itself; nothing but the version if it is gone.

    Costs a listing of the log from some way before the version on, and the commit.

    Args:
        snapshot: That version or a later one, which says where commits hold their time.
        version: The version.
    """
    times = commit_times(snapshot, version, version)
    if not times.commits or times.commits[-1].first != version:
        return CommitFacts(version)
    commit = times.commits[-1]
    try:
        [actions] = read_log_files(snapshot.storage, [commit.key])
    except ObjectNotFoundError:
        return CommitFacts(version)  # cleaned up since the log was listed
    return _facts(times, commit, actions, snapshot.metadata)


def _facts(
    times: CommitTimes, commit: LogFile, actions: JsonActions, metadata: Metadata
) -> CommitFacts:
    info = info_of(actions)
    own = (
        in_commit_timestamp(info, actions.uri)
        if metadata.is_on(ENABLE_IN_COMMIT_TIMESTAMPS)
        else None
    )
    return CommitFacts(
        commit.first,
        times.of_read(commit, info) if own is None else own,
        as_string(info.get("operation")),
        as_string(info.get("operationParameters")),
        as_string(info.get("userMetadata")),
        as_string(info.get("engineInfo")),
        as_string(info.get("txnId")),
    )


def versions_after(storage: Storage, start: int, end: int) -> Iterator[VersionStep]:
    """Tell the history of a table version by version, oldest first.

    The call opens the start, without its files, and lists the log from there on; each commit is
    read once, when its step is asked for. One step is held at a time.

    Args:
        storage: The table.
        start: The version before the first step; see `oldest_version`.
        end: The version of the last step; no step if it is the start.

    Raises:
        InvalidArgumentError: By the call, if the start cannot be opened or a commit is not there;
            by a step, if its commit went away meanwhile.
        UnsupportedFeatureError: By a step, if its version needs what delvec does not know.
        FormatError: The log is damaged.
    """
    if end < start:
        raise InvalidArgumentError(f"the range of versions ends before it starts: {start} to {end}")
    snapshot = open_snapshot(storage, start)
    times = commit_times(snapshot, start + 1, end)
    commits = [commit for commit in times.commits if commit.first > start]
    missing = sorted(set(range(start + 1, end + 1)) - {commit.first for commit in commits})
    if missing:
        raise _gone(storage, missing[0])
    return _steps(snapshot, times, commits)


def _steps(
    snapshot: Snapshot, times: CommitTimes, commits: Sequence[LogFile]
) -> Iterator[VersionStep]:
    storage, protocol, metadata = snapshot.storage, snapshot.protocol, snapshot.metadata
    for commit in commits:
        try:
            [actions] = read_log_files(storage, [commit.key])
        except ObjectNotFoundError as error:
            raise _gone(storage, commit.first) from error
        new_protocol, new_metadata = state_set_by(actions)
        protocol, metadata = new_protocol or protocol, new_metadata or metadata
        named = f"version {commit.first} of {storage.root}"
        protocol.require_readable(named)
        metadata.require_readable(named)
        yield VersionStep(
            commit.first,
            _facts(times, commit, actions, metadata),
            protocol,
            metadata,
            Changes(*changed_files(metadata, storage.root, [actions])),
        )


def _gone(storage: Storage, version: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the history of {storage.root} cannot be told version by version: the commit of version"
        f" {version} is not in the log",
        hint="`delvec history` lists the versions whose commits are there; the newest version by"
        " itself can be converted without them",
    )
