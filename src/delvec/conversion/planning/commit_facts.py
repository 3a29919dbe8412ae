"""The metadata of a Delta commit: what its `commitInfo` records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.delta.log.commit_times import commit_times, in_commit_timestamp, info_of
from delvec.delta.log.commits import read_log_files
from delvec.delta.log.history import as_string
from delvec.delta.schema.properties import ENABLE_IN_COMMIT_TIMESTAMPS
from delvec.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from delvec.delta.log.commit_times import CommitTimes
    from delvec.delta.log.json_actions import JsonActions
    from delvec.delta.log.segment import LogFile
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata

__all__ = ["CommitFacts", "commit_facts", "facts_of"]


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """The metadata of a commit; None for what it does not record.

    Attributes:
        version: The version that it made.
        timestamp_ms: The commit timestamp in milliseconds since 1970, as in the table's history.
        operation: Such as `MERGE`.
        operation_parameters: A JSON object, as a string.
        user_metadata: The user's own string.
        engine_info: The engine that wrote it.
        transaction_id: The `txnId` of the commit.
    """

    version: int
    timestamp_ms: int | None = None
    operation: str | None = None
    operation_parameters: str | None = None
    user_metadata: str | None = None
    engine_info: str | None = None
    transaction_id: str | None = None


def commit_facts(snapshot: Snapshot, version: int) -> CommitFacts:
    """Read the metadata of the commit of a version; only the version if the commit is gone.

    Costs a listing of the log from some way before the version on, and the commit.

    Args:
        snapshot: That version or a later one, which tells where in-commit timestamps begin.
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
    return facts_of(times, commit, actions, snapshot.metadata)


def facts_of(
    times: CommitTimes, commit: LogFile, actions: JsonActions, metadata: Metadata
) -> CommitFacts:
    """Return the metadata of a commit that was read.

    Args:
        times: Commit timestamps of the versions around it.
        commit: The file of the commit.
        actions: Its actions.
        metadata: The metadata that is in force after it.
    """
    info = info_of(actions)
    in_commit = None
    if metadata.is_on(ENABLE_IN_COMMIT_TIMESTAMPS):
        in_commit = in_commit_timestamp(info, actions.uri)
    return CommitFacts(
        commit.first,
        times.of_read(commit, info) if in_commit is None else in_commit,
        as_string(info.get("operation")),
        as_string(info.get("operationParameters")),
        as_string(info.get("userMetadata")),
        as_string(info.get("engineInfo")),
        as_string(info.get("txnId")),
    )
