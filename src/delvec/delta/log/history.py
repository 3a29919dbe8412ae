"""The history of a table: the `commitInfo` and the timestamp of each commit.

A timestamp is the modification time of the commit's file, made to rise by at least 1 ms from one
commit to the next. Tables with in-commit timestamps hold it in the commit itself, from a certain
version on: those survive a copy of the table.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from delvec.delta.log.actions import STRING_MAP, JsonActions
from delvec.delta.log.segment import LogFile, list_commits, list_log
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.schema.metadata import Property
from delvec.documents import TIMES_MS, shown_time, time_ms, whole_number
from delvec.errors import FormatError, InvalidArgumentError, ObjectNotFoundError
from delvec.storage import Storage
from delvec.storage.parallel import gather

# If clocks went backwards, a commit's timestamp depends on those before it; so many are read.
_BEFORE: Final = 100
SCHEMA: Final = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("operation", pa.string()),
        ("operationParameters", STRING_MAP),
        ("operationMetrics", STRING_MAP),
        ("userMetadata", pa.string()),
        ("engineInfo", pa.string()),
        ("readVersion", pa.int64()),
        ("isolationLevel", pa.string()),
        ("isBlindAppend", pa.bool_()),
        ("userId", pa.string()),
        ("userName", pa.string()),
        ("clusterId", pa.string()),
    ]
)
"""The columns of a history, named as DESCRIBE HISTORY of delta-spark names them.

What people look for comes first; what is empty outside of Databricks comes last.
"""


def history(storage: Storage, limit: int | None = None) -> pa.Table:
    return pa.Table.from_pylist(history_rows(storage, limit), SCHEMA)


def history_rows(storage: Storage, limit: int | None = None) -> list[dict[str, Any]]:
    """List the commits that are still in the log, newest first.

    The table is opened, the log is listed, and each commit of the result is read. A `commitInfo` is
    free in form: a value that does not fit its column becomes a string or null. Rows have the
    columns of `SCHEMA`; times are in microseconds, maps are pairs.
    """
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidArgumentError(f"limit is a number of commits, got {limit!r}")
    snapshot = open_snapshot(storage)
    start = 0 if limit is None else max(0, snapshot.version - limit + 1)
    times = commit_times(snapshot, start, snapshot.version)
    wanted = [commit for commit in reversed(times.commits) if commit.first >= start]
    rows = gather(lambda commit: _row(times, commit), wanted)
    return [row for row in rows if row is not None]


def as_string(value: object) -> str | None:
    """Return a string as it is, None for None, and any other value of JSON as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def find_version_at(storage: Storage, timestamp: datetime | str, time_zone: str = "UTC") -> int:
    """Return the version that was current at a time: the newest committed at it or before.

    With in-commit timestamps, the commits that a binary search meets are read; without, none.
    """
    wanted = time_ms(timestamp, time_zone)
    snapshot = open_snapshot(storage)
    times = CommitTimes(snapshot, _readable_commits(snapshot))
    if not times.commits:
        raise InvalidArgumentError(
            f"{storage.root} has no commits left that have a timestamp",
            hint="name a version instead",
        )
    low, high = times.comparable(wanted)
    after = bisect_right(times.commits, wanted, low, high, key=times.of)
    commit = times.commits[min(max(after - 1, low), len(times.commits) - 1)]
    found = times.of(commit)
    if found > wanted:
        raise InvalidArgumentError(
            f"{storage.root} cannot be read as of {shown_time(wanted)}: the oldest version that can"
            f" be is {commit.first}, of {shown_time(found)}",
            hint="`delvec history` lists the versions and their times",
        )
    if commit.first == snapshot.version and found < wanted:
        raise InvalidArgumentError(
            f"{storage.root} has no commit as late as {shown_time(wanted)}: the newest version is"
            f" {commit.first}, of {shown_time(found)}",
            hint="leave the time out to read the newest version",
        )
    return commit.first


def version_from(storage: Storage, timestamp: datetime | str, time_zone: str = "UTC") -> int:
    """Return the first version that was committed at a time or after it; see `find_version_at`."""
    wanted = time_ms(timestamp, time_zone)
    snapshot = open_snapshot(storage)
    times = CommitTimes(snapshot, _readable_commits(snapshot))
    low, high = times.comparable(wanted)
    place = bisect_left(times.commits, wanted, low, high, key=times.of)
    if place == len(times.commits):
        raise InvalidArgumentError(
            f"{storage.root} has no commit as late as {shown_time(wanted)}: the newest version is"
            f" {snapshot.version}",
            hint="`delvec history` lists the versions and their times",
        )
    return times.commits[place].first


@dataclass
class CommitTimes:
    """The timestamps of commits, of whichever kind each has; oldest first."""

    snapshot: Snapshot
    commits: Sequence[LogFile]
    _known: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._enabled = _enablement(self.snapshot)
        before = None
        for commit in self.commits[: self._first_in_commit]:
            before = commit.modified_ms if before is None else max(commit.modified_ms, before + 1)
            self._known[commit.first] = before

    @property
    def _first_in_commit(self) -> int:
        if self._enabled is None:
            return len(self.commits)
        return bisect_left(self.commits, self._enabled[0], key=lambda commit: commit.first)

    def comparable(self, time_ms: int) -> tuple[int, int]:
        """Return the range of commits, by index, whose timestamps a time can be compared with.

        Copied files are younger than in-commit timestamps, so the two kinds are not mixed.
        """
        if self._enabled is not None and self._enabled[1] <= time_ms:
            return self._first_in_commit, len(self.commits)
        return 0, self._first_in_commit

    def of(self, commit: LogFile) -> int:
        """Return a commit's timestamp in milliseconds; one that is in the commit is read once."""
        if commit.first not in self._known:
            found = in_commit_timestamp(self.read(commit), self.uri_of(commit))
            if found is None:
                raise FormatError(
                    "a commit lacks its in-commit timestamp",
                    path=self.uri_of(commit),
                    expected="inCommitTimestamp in commitInfo: the table has in-commit timestamps",
                    hint="name a version instead of a time",
                )
            self._known[commit.first] = found
        return self._known[commit.first]

    def of_read(self, commit: LogFile, info: dict[str, Any]) -> int:
        """Return the timestamp of a commit by its `commitInfo`; its file's if there is no other."""
        if commit.first in self._known:
            return self._known[commit.first]
        found = in_commit_timestamp(info, self.uri_of(commit))
        return commit.modified_ms if found is None else found

    def read(self, commit: LogFile) -> dict[str, Any]:
        data = self.snapshot.storage.read(commit.key)
        return read_commit_info(JsonActions(self.uri_of(commit), data))

    def uri_of(self, commit: LogFile) -> str:
        return self.snapshot.storage.uri_of(commit.key)


def commit_times(snapshot: Snapshot, start: int, end: int) -> CommitTimes:
    """List the commits of versions, both ends included, and those before that bear on their times.

    Whether they have in-commit timestamps is decided by the snapshot.
    """
    listed = list_commits(snapshot.storage, max(0, start - _BEFORE))
    return CommitTimes(snapshot, [commit for commit in listed if commit.last <= end])


def read_commit_info(actions: JsonActions) -> dict[str, Any]:
    """Return the `commitInfo` of a commit; empty if it has none."""
    found = (action.get("commitInfo") for action in actions.others())
    return next((info for info in found if isinstance(info, dict)), {})


def in_commit_timestamp(info: dict[str, Any], uri: str) -> int | None:
    """Return the in-commit timestamp of a `commitInfo` in milliseconds, or None if it has none."""
    value = info.get("inCommitTimestamp")
    if value is None:
        return None
    if type(value) is not int or value not in TIMES_MS:
        raise FormatError(
            "a commit has an in-commit timestamp that is none",
            path=uri,
            expected="inCommitTimestamp in milliseconds since 1970",
            found=repr(value)[:40],
        )
    return value


def _enablement(snapshot: Snapshot) -> tuple[int, int] | None:
    """Return since when commits hold in-commit timestamps: the version, and its time in ms."""
    if not snapshot.metadata.is_on(Property.ENABLE_IN_COMMIT_TIMESTAMPS):
        return None
    names = [Property.IN_COMMIT_TIMESTAMPS_SINCE_VERSION, Property.IN_COMMIT_TIMESTAMPS_SINCE_TIME]
    values = [snapshot.metadata.configuration.get(name) for name in names]
    if values == [None, None]:
        return 0, 0  # since the first commit
    version, time_ms = map(whole_number, values)
    if version is None or time_ms is None:
        raise FormatError(
            "the table does not say since when it has in-commit timestamps",
            path=snapshot.table,
            expected=f"numbers in both {names[0]} and {names[1]}",
            found=repr(values)[:80],
        )
    return version, time_ms


def _readable_commits(snapshot: Snapshot) -> list[LogFile]:
    """List the commits of versions that can be opened, from the first checkpoint on."""
    listing = list_log(snapshot.storage)
    commits = [
        commit for version, commit in sorted(listing.commits.items()) if version <= snapshot.version
    ]
    if not commits or commits[0].first == 0 or 0 in listing.compacted:
        return commits
    first = commits[0].first
    bases = [found.version for found in listing.checkpoints if found.version >= first - 1]
    oldest = min(bases, default=first)
    return [commit for commit in commits if commit.first >= oldest]


def _row(times: CommitTimes, commit: LogFile) -> dict[str, Any] | None:
    try:
        info = times.read(commit)
    except ObjectNotFoundError:
        return None  # cleaned up since the log was listed
    row = {name: _fitting(info.get(name), SCHEMA.field(name).type) for name in SCHEMA.names}
    moment = times.of_read(commit, info) * 1000
    return row | {"version": commit.first, "timestamp": moment}


def _fitting(value: object, kind: pa.DataType) -> object:
    if kind == STRING_MAP:
        if not isinstance(value, dict):
            return None
        return [(name, as_string(part)) for name, part in value.items()]
    if pa.types.is_string(kind):
        return as_string(value)
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    return value if type(value) is int and abs(value) < 1 << 63 else None
