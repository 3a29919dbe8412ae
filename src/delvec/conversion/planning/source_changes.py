"""What changed in the source since a version: from its commits alone, never from a checkpoint.

Memory grows with the files that the commits touch and the size of their actions. Commits that leave
open what became of a file are refused: whole versions have to be compared then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.files.repack import digest
from delvec.conversion.files.vector_places import referenced_ids, vector_keys
from delvec.delta.log import history
from delvec.delta.log.actions import JsonActions, read_state_change
from delvec.delta.log.replay import read_changed_files, read_log_files
from delvec.delta.log.segment import LogFile, covering_files, list_log
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.schema.metadata import Metadata, Property
from delvec.errors import InvalidArgumentError, ObjectNotFoundError, UnsupportedFeatureError

if TYPE_CHECKING:
    from delvec.conversion.planning.target import Target
    from delvec.conversion.planning.target_files import TargetFiles
    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """The metadata of a commit; None for what it does not record."""

    version: int  # that it made
    timestamp_ms: int | None = None  # since 1970, as in the table's history
    operation: str | None = None
    operation_parameters: str | None = None  # a JSON object
    user_metadata: str | None = None
    engine_info: str | None = None
    transaction_id: str | None = None  # its `txnId`


@dataclass(frozen=True)
class SourceChanges:
    """What commits did to files. Paths are decoded and normalised, as in a `FileSet`.

    The files of the version after the commits are those of the version before without the touched
    paths, plus the live ones. This holds where the commits name each file with the vector that it
    has: a remove counts for the vector that it names, and leaves a file with another vector live.
    Only engines that do not know vectors write such a log.

    The entries are the files that the commits add or remove, each once: the columns `path` and
    `vector_id`, which is null for a file without a vector.
    """

    live: FileSet  # what the commits add, as far as it is live after them
    entries: pa.Table

    @cached_property
    def touched(self) -> pa.Array:
        """The paths that the commits add or remove, each once."""
        return self.entries["path"].combine_chunks().unique()


@dataclass(frozen=True, eq=False)
class SourceVersion:
    """A version of the source that becomes a snapshot, with the metadata in force."""

    facts: CommitFacts
    metadata: Metadata
    files: FileSet  # to compare: those that its commits added, or all live files
    changes: SourceChanges | None = None  # by its commits; None if all files are compared

    @property
    def mode(self) -> Literal["full", "incremental"]:
        """Whether all files are compared, or those that commits touched."""
        return "full" if self.changes is None else "incremental"


class UnclearCommitsError(Exception):
    """Commits name another vector of a file than it has."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"the commits up to version {version} name other vectors of files than these have"
        )


def changes_between(snapshot: Snapshot, start: int) -> SourceChanges | None:
    """Return what the commits after a version changed, up to that of the snapshot.

    Commits that the snapshot has read are not read again. For others the log is listed from the
    version on, and they are read in parallel; a log compaction file is read instead of its commits
    if it covers only commits of these versions.

    None if whole versions have to be compared instead: a commit is not in the log any more, or the
    table was unreadable in between, or the start is after the snapshot.
    """
    if start > snapshot.version:
        return None
    commits = _commits_after(snapshot, start)
    if commits is None or not all(_is_readable(snapshot.table, actions) for actions in commits):
        return None
    return SourceChanges(*read_changed_files(snapshot.metadata, snapshot.table, commits))


def versions_after(storage: Storage, start: int, end: int) -> Iterator[SourceVersion]:
    """Return the history of a table version by version, oldest first.

    The call opens the start version without its files and lists the log from there on. Each commit
    is read once, when its version is asked for; one version is in memory at a time.
    """
    if end < start:
        raise InvalidArgumentError(f"the range of versions ends before it starts: {start} to {end}")
    snapshot = open_snapshot(storage, start)
    times = history.commit_times(snapshot, start + 1, end)
    commits = [commit for commit in times.commits if commit.first > start]
    missing = sorted(set(range(start + 1, end + 1)) - {commit.first for commit in commits})
    if missing:
        raise _missing_commit(storage, missing[0])
    return _read_versions(snapshot, times, commits)


def commit_facts(snapshot: Snapshot, version: int) -> CommitFacts:
    """Read the metadata of the commit of a version; only the version if the commit is gone.

    Costs a listing of the log from some way before the version on, and the commit.
    """
    times = history.commit_times(snapshot, version, version)
    if not times.commits or times.commits[-1].first != version:
        return CommitFacts(version)
    commit = times.commits[-1]
    try:
        [actions] = read_log_files(snapshot.storage, [commit.key])
    except ObjectNotFoundError:
        return CommitFacts(version)  # cleaned up since the log was listed
    return facts_of(times, commit, actions, snapshot.metadata)


def facts_of(
    times: history.CommitTimes, commit: LogFile, actions: JsonActions, metadata: Metadata
) -> CommitFacts:
    info = history.read_commit_info(actions)
    in_commit = None
    if metadata.is_on(Property.ENABLE_IN_COMMIT_TIMESTAMPS):
        in_commit = history.in_commit_timestamp(info, actions.uri)
    return CommitFacts(
        commit.first,
        times.of_read(commit, info) if in_commit is None else in_commit,
        history.as_string(info.get("operation")),
        history.as_string(info.get("operationParameters")),
        history.as_string(info.get("userMetadata")),
        history.as_string(info.get("engineInfo")),
        history.as_string(info.get("txnId")),
    )


def require_clear(
    version: int, changes: SourceChanges, files: TargetFiles, target: Target, root: str
) -> None:
    """Refuse commits that touch a file of the target, but not with the vector that it has.

    A remove counts for the vector that it names. One that names another vector leaves the file
    live, which only the files of the whole version show.
    """
    paths = target.possible_paths(root, changes.entries["path"].combine_chunks())
    ids = changes.entries["vector_id"].combine_chunks()
    forms = [ids, referenced_ids(ids, root)]
    if target.format_version == 2:
        forms.append(digest(ids))
    # There are two paths for each entry, see `possible_paths`.
    named = pa.concat_arrays([vector_keys(paths, pa.concat_arrays([form] * 2)) for form in forms])
    planned = target.planned_paths(files.paths)
    touched = pc.is_in(planned, value_set=paths)
    known = pc.is_in(vector_keys(planned, files.ids), value_set=named)
    of_unknown_origin = pc.and_(files.keys.is_valid(), files.ids.is_null())
    unclear = pc.and_(touched, pc.or_(of_unknown_origin, pc.invert(known)))
    if pc.any(unclear).as_py():
        raise UnclearCommitsError(version)


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
    protocol, _ = read_state_change(actions)
    if protocol is None:
        return True
    try:
        protocol.require_readable(table)
    except UnsupportedFeatureError:
        return False
    return True


def _read_versions(
    snapshot: Snapshot, times: history.CommitTimes, commits: Sequence[LogFile]
) -> Iterator[SourceVersion]:
    storage, protocol, metadata = snapshot.storage, snapshot.protocol, snapshot.metadata
    for commit in commits:
        try:
            [actions] = read_log_files(storage, [commit.key])
        except ObjectNotFoundError as error:
            raise _missing_commit(storage, commit.first) from error
        new_protocol, new_metadata = read_state_change(actions)
        protocol, metadata = new_protocol or protocol, new_metadata or metadata
        named = f"version {commit.first} of {storage.root}"
        protocol.require_readable(named)
        metadata.require_readable(named)
        facts = facts_of(times, commit, actions, metadata)
        changes = SourceChanges(*read_changed_files(metadata, storage.root, [actions]))
        yield SourceVersion(facts, metadata, changes.live, changes)


def _missing_commit(storage: Storage, version: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the history of {storage.root} cannot be read version by version: the commit of version"
        f" {version} is not in the log",
        hint="`delvec history` lists the versions whose commits are there; the newest version by"
        " itself can be converted without them",
    )
