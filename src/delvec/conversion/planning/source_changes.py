"""What changed in the source since a version: from its commits alone, never from a checkpoint.

Memory grows with the files that the commits touch and the size of their actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from delvec.conversion.planning.commit_facts import facts_of
from delvec.delta.log.commit_times import commit_times
from delvec.delta.log.commits import changed_files, read_log_files
from delvec.delta.log.segment import covering_files, list_log, oldest_version
from delvec.delta.log.small_actions import state_set_by
from delvec.delta.log.snapshot import open_snapshot
from delvec.errors import InvalidArgumentError, ObjectNotFoundError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from delvec.conversion.planning.commit_facts import CommitFacts
    from delvec.delta.log.commit_times import CommitTimes
    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.json_actions import JsonActions
    from delvec.delta.log.segment import LogFile
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.protocol import Protocol
    from delvec.storage import Storage

__all__ = [
    "SourceChanges",
    "VersionChanges",
    "changes_between",
    "oldest_version",
    "versions_after",
]


@dataclass(frozen=True)
class SourceChanges:
    """What commits did to files. Paths are decoded and normalised, as in a `FileSet`.

    The files of the version after the commits are those of the version before without the touched
    paths, plus the live ones. This holds where the commits name each file with the vector that it
    has: a remove counts for the vector that it names, and leaves a file with another vector live.
    Only engines that do not know vectors write such a log.

    Attributes:
        live: The files that the commits add and that are live after them.
        entries: The files that the commits add or remove, each once: the columns `path` and
            `vector_id`, which is null for a file without a vector.
    """

    live: FileSet
    entries: pa.Table

    @cached_property
    def touched(self) -> pa.Array:
        """The paths that the commits add or remove, each once."""
        return self.entries["path"].combine_chunks().unique()


@dataclass(frozen=True)
class VersionChanges:
    """A version as its changes since the one before, with the protocol and metadata in force."""

    version: int
    facts: CommitFacts
    protocol: Protocol
    metadata: Metadata
    changes: SourceChanges


def changes_between(snapshot: Snapshot, start: int) -> SourceChanges | None:
    """Return what the commits after a version changed, up to that of the snapshot.

    Commits that the snapshot has read are not read again. For others the log is listed from the
    version on, and they are read in parallel; a log compaction file is read instead of its commits
    if it covers only commits of these versions.

    Args:
        snapshot: The version that the changes lead to.
        start: The version that they start from; it need not be in the log any more.

    Returns:
        The changes; None if whole versions have to be compared instead: a commit is not in the log
        any more, or the table was unreadable in between, or the start is after the snapshot.

    Raises:
        FormatError: A commit is damaged.
    """
    if start > snapshot.version:
        return None
    commits = _commits_after(snapshot, start)
    if commits is None or not all(_is_readable(snapshot.table, actions) for actions in commits):
        return None
    return SourceChanges(*changed_files(snapshot.metadata, snapshot.table, commits))


def _commits_after(snapshot: Snapshot, start: int) -> list[JsonActions] | None:
    """Return the commits after a version, newest first; None if one is gone."""
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
    """Tell whether the table is readable after a commit; if not, files may be missing."""
    protocol, _ = state_set_by(actions)
    if protocol is None:
        return True
    try:
        protocol.require_readable(table)
    except UnsupportedFeatureError:
        return False
    return True


def versions_after(storage: Storage, start: int, end: int) -> Iterator[VersionChanges]:
    """Return the history of a table version by version, oldest first.

    The call opens the start version without its files and lists the log from there on. Each commit
    is read once, when its version is asked for; one version is in memory at a time.

    Args:
        storage: The table.
        start: The version before the first one returned; see `oldest_version`.
        end: The last version returned; none if it is the start.

    Raises:
        InvalidArgumentError: By the call, if the start cannot be opened or a commit is missing; by
            the iterator, if a commit was removed meanwhile.
        UnsupportedFeatureError: By the iterator, if a version needs an unsupported feature.
        FormatError: The log is damaged.
    """
    if end < start:
        raise InvalidArgumentError(f"the range of versions ends before it starts: {start} to {end}")
    snapshot = open_snapshot(storage, start)
    times = commit_times(snapshot, start + 1, end)
    commits = [commit for commit in times.commits if commit.first > start]
    missing = sorted(set(range(start + 1, end + 1)) - {commit.first for commit in commits})
    if missing:
        raise _missing_commit(storage, missing[0])
    return _read_versions(snapshot, times, commits)


def _read_versions(
    snapshot: Snapshot, times: CommitTimes, commits: Sequence[LogFile]
) -> Iterator[VersionChanges]:
    storage, protocol, metadata = snapshot.storage, snapshot.protocol, snapshot.metadata
    for commit in commits:
        try:
            [actions] = read_log_files(storage, [commit.key])
        except ObjectNotFoundError as error:
            raise _missing_commit(storage, commit.first) from error
        new_protocol, new_metadata = state_set_by(actions)
        protocol, metadata = new_protocol or protocol, new_metadata or metadata
        named = f"version {commit.first} of {storage.root}"
        protocol.require_readable(named)
        metadata.require_readable(named)
        yield VersionChanges(
            commit.first,
            facts_of(times, commit, actions, metadata),
            protocol,
            metadata,
            SourceChanges(*changed_files(metadata, storage.root, [actions])),
        )


def _missing_commit(storage: Storage, version: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the history of {storage.root} cannot be read version by version: the commit of version"
        f" {version} is not in the log",
        hint="`delvec history` lists the versions whose commits are there; the newest version by"
        " itself can be converted without them",
    )
