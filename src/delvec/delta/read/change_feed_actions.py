"""The actions of commits as tables of changed files, many commits at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.action_columns import VECTOR, conform_struct, from_json
from delvec.delta.log.commit_times import info_of
from delvec.delta.log.json_actions import JsonActions
from delvec.delta.log.paths import canonical
from delvec.delta.read.change_feed_schema import COMMIT_TIMESTAMP, COMMIT_VERSION, FEED_COLUMNS
from delvec.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from delvec.delta.log.action_columns import Kind
    from delvec.delta.log.commit_times import CommitTimes
    from delvec.delta.log.segment import LogFile
    from delvec.delta.log.snapshot import Snapshot

__all__ = ["FeedCommit", "batched", "changed_files_of", "changing_versions"]

_BYTES_AT_ONCE: Final = 32 << 20
_ROWS_CHANGED: Final = tuple(f"numTargetRows{what}" for what in ("Inserted", "Updated", "Deleted"))


@dataclass(frozen=True, slots=True)
class FeedCommit:
    """A commit of the feed.

    Attributes:
        time: Its timestamp in microseconds since 1970.
        changes_rows: Whether its files hold other rows than before.
    """

    actions: JsonActions
    version: int
    time: int
    changes_rows: bool

    @classmethod
    def of(cls, commit: LogFile, actions: JsonActions, times: CommitTimes) -> FeedCommit:
        """Read what the feed needs of a commit."""
        info = info_of(actions)
        moment = times.of_read(commit, info) * 1000
        return cls(actions, commit.first, moment, not _only_copies(info))


def _only_copies(info: Mapping[str, Any]) -> bool:
    """Tell whether a MERGE only copied rows, which its actions do not show."""
    metrics = info.get("operationMetrics")
    return (
        info.get("operation") == "MERGE"
        and isinstance(metrics, dict)
        and all(metrics.get(name) == "0" for name in _ROWS_CHANGED)
    )


def batched(commits: Sequence[FeedCommit]) -> Iterator[list[FeedCommit]]:
    """Yield small commits together: parsing one takes milliseconds, however small it is."""
    batch: list[FeedCommit] = []
    size = 0
    for commit in commits:
        if batch and size + len(commit.actions.data) > _BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(commit)
        size += len(commit.actions.data)
    yield batch


def changing_versions(
    commits: Sequence[FeedCommit], kind: Kind, partition_names: Sequence[str]
) -> set[int]:
    """Return the versions that have an action of a kind which changes rows."""
    found, at = _parsed(commits, kind, partition_names)
    changing = pc.fill_null(pc.struct_field(found, "dataChange"), True)
    places = np.unique(at[changing.to_numpy(zero_copy_only=False)])
    return {commits[place].version for place in places.tolist()}


def changed_files_of(commits: Sequence[FeedCommit], kind: Kind, snapshot: Snapshot) -> pa.Table:
    """Return the files of one kind of action that change rows, with version and time of each.

    Raises:
        FormatError: A commit is damaged, or removes a file without its partition values.
    """
    names = snapshot.partition_names
    found, at = _parsed(commits, kind, names)
    if kind != "cdc":
        changing = pc.fill_null(pc.struct_field(found, "dataChange"), True)
        found, at = found.filter(changing), at[changing.to_numpy(zero_copy_only=False)]
    fields = {field.name: pc.struct_field(found, [field.name]) for field in found.type}
    rows, values = len(found), fields["partitionValues"]
    if kind == "remove" and names and values.null_count:
        index = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
        raise FormatError(
            "a commit removes a file without its partition values, so that the rows that it"
            " deleted cannot be read",
            path=commits[int(at[index])].actions.uri,
            found=repr(fields["path"][index].as_py()),
        )
    columns: dict[str, Any] = {
        "path": canonical(fields["path"], snapshot.table),
        "deletionVector": conform_struct(fields["deletionVector"], VECTOR)
        if "deletionVector" in fields
        else pa.nulls(rows, VECTOR),
        "size": fields["size"],
        "modificationTime": fields.get("modificationTime", pa.nulls(rows, pa.int64())),
        "stats": fields.get("stats", pa.nulls(rows, pa.string())),
    }
    if names:
        by_name = [pc.map_lookup(values, name, "first") for name in names]
        columns["partitionValues"] = pa.StructArray.from_arrays(by_name, names)
    versions = np.array([commit.version for commit in commits], dtype=np.int64)
    times = np.array([commit.time for commit in commits], dtype=np.int64)
    columns[COMMIT_VERSION] = pa.array(versions[at])
    columns[COMMIT_TIMESTAMP] = pa.array(times[at]).cast(FEED_COLUMNS.field(COMMIT_TIMESTAMP).type)
    return pa.table(columns)


def _parsed(
    commits: Sequence[FeedCommit], kind: Kind, partition_names: Sequence[str]
) -> tuple[pa.StructArray, NDArray[np.int64]]:
    """Parse the actions of one kind of all commits together; the numbers tell whose each is."""
    whole = JsonActions(
        commits[0].actions.uri, b"\n".join(commit.actions.data for commit in commits)
    )
    try:
        found, lines = from_json(whole, kind, partition_names)
    except FormatError:
        for commit in commits:  # for the error to name the right file
            from_json(commit.actions, kind, partition_names)
        raise
    counts = [commit.actions.line_count for commit in commits]
    return found, np.repeat(np.arange(len(commits)), counts)[lines]
