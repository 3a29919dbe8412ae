"""What was done to a table and when: its commits, and the version that was current at a time.

A commit's time is the time of its file, made to rise by 1 ms at least from one to the next. Tables
with in-commit timestamps have it in the commit itself, from a certain version on: those survive a
copy of the table.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from delvec.delta.log.json_actions import JsonActions
from delvec.delta.log.segment import list_commits, list_log
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.schema.partition_values import parse_partition_value
from delvec.delta.schema.properties import (
    ENABLE_IN_COMMIT_TIMESTAMPS,
    IN_COMMIT_TIMESTAMPS_SINCE_TIME,
    IN_COMMIT_TIMESTAMPS_SINCE_VERSION,
)
from delvec.delta.schema.types import PrimitiveType
from delvec.errors import FormatError, InvalidArgumentError, ObjectNotFoundError
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.delta.log.segment import LogFile
    from delvec.delta.log.snapshot import Snapshot
    from delvec.storage import Storage

__all__ = [
    "SCHEMA",
    "CommitTimes",
    "as_text",
    "commit_info",
    "commit_times",
    "history",
    "own_time",
    "version_at",
    "version_from",
]

_TEXTS: Final = pa.map_(pa.string(), pa.string())
SCHEMA: Final = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("userId", pa.string()),
        ("userName", pa.string()),
        ("operation", pa.string()),
        ("operationParameters", _TEXTS),
        ("clusterId", pa.string()),
        ("readVersion", pa.int64()),
        ("isolationLevel", pa.string()),
        ("isBlindAppend", pa.bool_()),
        ("operationMetrics", _TEXTS),
        ("userMetadata", pa.string()),
        ("engineInfo", pa.string()),
    ]
)
"""The columns of a history, named as delta-spark's DESCRIBE HISTORY names them."""

# A commit's time depends on those before it if clocks went wrong; this many are looked at.
_BEFORE: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_END_OF_TIME_MS: Final = 253_402_300_800_000  # the year 10,000
_WITHOUT_SECONDS: Final = re.compile(r"([0-9-]{10}[ T][0-9]{2}:[0-9]{2})(Z|[+-][0-9]{2}:[0-9]{2})?")


def history(storage: Storage, limit: int | None = None) -> pa.Table:
    """List the commits that are still in the log, newest first.

    The table is opened, the log is listed, and each commit of the result is read. What a commit
    says of itself is free in form: a value that does not fit its column becomes text or null.

    Args:
        storage: The table.
        limit: At most so many commits.

    Returns:
        One row for each commit, with the columns of `SCHEMA`.

    Raises:
        TableNotFoundError: There is no table.
        UnsupportedFeatureError: The table needs what delvec does not know.
        FormatError: The log is damaged.
    """
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidArgumentError(f"limit is a number of commits, got {limit!r}")
    snapshot = open_snapshot(storage)
    start = 0 if limit is None else max(0, snapshot.version - limit + 1)
    times = commit_times(snapshot, start, snapshot.version)
    wanted = [commit for commit in reversed(times.commits) if commit.first >= start]
    rows = gather(lambda commit: _row(times, commit), wanted)
    return pa.Table.from_pylist([row for row in rows if row is not None], SCHEMA)


def version_at(storage: Storage, timestamp: datetime | str, time_zone: str = "UTC") -> int:
    """Find the version that was current at a time: the newest committed at it or before.

    With in-commit timestamps, the commits that a binary search meets are read; without, none.

    Args:
        storage: The table.
        timestamp: A datetime or ISO 8601 text, such as `2024-01-31` or `2024-01-31 10:00:00+01:00`;
            what is finer than a millisecond is cut off.
        time_zone: Where the clock stood that a time without a zone was read from.

    Raises:
        InvalidArgumentError: The time is after the newest commit, or before the oldest that can be
            read; the text is no time.
        TableNotFoundError: There is no table.
        FormatError: The log is damaged.
    """
    wanted = _milliseconds(timestamp, time_zone)
    snapshot = open_snapshot(storage)
    times = CommitTimes(snapshot, _readable_commits(snapshot))
    if not times.commits:
        raise InvalidArgumentError(
            f"{storage.root} has no commits left that tell a time", hint="name a version instead"
        )
    # Copied files are younger than the times in commits, so the two kinds are not compared.
    low, high = 0, times.first_own
    if times.own is not None and times.own.since_ms <= wanted:
        low, high = times.first_own, len(times.commits)
    after = bisect_right(times.commits, wanted, low, high, key=times.of)
    commit = times.commits[min(max(after - 1, low), len(times.commits) - 1)]
    found = times.of(commit)
    if found > wanted:
        raise InvalidArgumentError(
            f"{storage.root} cannot be read as of {_shown(wanted)}: the oldest version that can be"
            f" is {commit.first}, of {_shown(found)}",
            hint="`delvec history` lists the versions and their times",
        )
    if commit.first == snapshot.version and found < wanted:
        raise InvalidArgumentError(
            f"{storage.root} has no commit as late as {_shown(wanted)}: the newest version is"
            f" {commit.first}, of {_shown(found)}",
            hint="leave the time out to read the newest version",
        )
    return commit.first


def version_from(storage: Storage, timestamp: datetime | str, time_zone: str = "UTC") -> int:
    """Find the first version that was committed at a time or after it; see `version_at`.

    Raises:
        InvalidArgumentError: The time is after the newest commit; the text is no time.
        TableNotFoundError: There is no table.
        FormatError: The log is damaged.
    """
    wanted = _milliseconds(timestamp, time_zone)
    snapshot = open_snapshot(storage)
    times = CommitTimes(snapshot, _readable_commits(snapshot))
    low, high = 0, times.first_own
    if times.own is not None and times.own.since_ms <= wanted:
        low, high = times.first_own, len(times.commits)
    place = bisect_left(times.commits, wanted, low, high, key=times.of)
    if place == len(times.commits):
        raise InvalidArgumentError(
            f"{storage.root} has no commit as late as {_shown(wanted)}: the newest version is"
            f" {snapshot.version}",
            hint="`delvec history` lists the versions and their times",
        )
    return times.commits[place].first


@dataclass(frozen=True, slots=True)
class _OwnTimes:
    """From when on commits hold their time themselves."""

    version: int
    since_ms: int


@dataclass
class CommitTimes:
    """The times of commits, of whichever kind each has; oldest first."""

    snapshot: Snapshot
    commits: Sequence[LogFile]
    _known: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.own = _own_times(self.snapshot)
        before = None
        for commit in self.commits[: self.first_own]:
            before = commit.modified_ms if before is None else max(commit.modified_ms, before + 1)
            self._known[commit.first] = before

    @property
    def first_own(self) -> int:
        """The index of the first commit that holds its time itself."""
        if self.own is None:
            return len(self.commits)
        return bisect_left(self.commits, self.own.version, key=lambda commit: commit.first)

    def of(self, commit: LogFile) -> int:
        """Tell the time of a commit in milliseconds; one that holds it itself is read once."""
        if commit.first not in self._known:
            own = own_time(self.read(commit), self.uri_of(commit))
            if own is None:
                raise FormatError(
                    "a commit lacks its time",
                    path=self.uri_of(commit),
                    expected="inCommitTimestamp in commitInfo: the table has in-commit timestamps",
                    hint="name a version instead of a time",
                )
            self._known[commit.first] = own
        return self._known[commit.first]

    def of_read(self, commit: LogFile, info: dict[str, Any]) -> int:
        """Tell the time of a commit that was read; its file's if it lacks one of its own."""
        if commit.first in self._known:
            return self._known[commit.first]
        own = own_time(info, self.uri_of(commit))
        return commit.modified_ms if own is None else own

    def read(self, commit: LogFile) -> dict[str, Any]:
        """Read what a commit says of itself; nothing if it does not."""
        data = self.snapshot.storage.read(commit.key)
        return commit_info(JsonActions(self.uri_of(commit), data))

    def uri_of(self, commit: LogFile) -> str:
        """Name the file of a commit in full."""
        return self.snapshot.storage.uri_of(commit.key)


def commit_times(snapshot: Snapshot, start: int, end: int) -> CommitTimes:
    """List the commits of versions, both ends included, and those before that bear on their times.

    Whether they hold their time themselves is what the snapshot says.
    """
    listed = list_commits(snapshot.storage, max(0, start - _BEFORE))
    return CommitTimes(snapshot, [commit for commit in listed if commit.last <= end])


def commit_info(actions: JsonActions) -> dict[str, Any]:
    """Find what a commit says of itself; nothing if it does not."""
    for action in actions.others():
        if isinstance(info := action.get("commitInfo"), dict):
            return info
    return {}


def _own_times(snapshot: Snapshot) -> _OwnTimes | None:
    properties = snapshot.metadata.configuration
    if not snapshot.metadata.is_on(ENABLE_IN_COMMIT_TIMESTAMPS):
        return None
    names = [IN_COMMIT_TIMESTAMPS_SINCE_VERSION, IN_COMMIT_TIMESTAMPS_SINCE_TIME]
    values = [properties.get(name) for name in names]
    if values == [None, None]:
        return _OwnTimes(0, 0)  # they were there from the first commit on
    if not all(str(value).isdecimal() for value in values):
        raise FormatError(
            "the table does not say since when commits hold their time",
            path=snapshot.table,
            expected=f"numbers in both {names[0]} and {names[1]}",
            found=values,
        )
    version, since_ms = (int(value or 0) for value in values)
    return _OwnTimes(version, since_ms)


def own_time(info: dict[str, Any], uri: str) -> int | None:
    """Give the time that a commit holds itself, in milliseconds; None if it holds none."""
    value = info.get("inCommitTimestamp")
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < _END_OF_TIME_MS:
        raise FormatError(
            "a commit has a time that is none",
            path=uri,
            expected="inCommitTimestamp in milliseconds since 1970",
            found=repr(value)[:40],
        )
    return value


def _readable_commits(snapshot: Snapshot) -> list[LogFile]:
    """List the commits of versions that can be read: those from the first base on."""
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
    if kind == _TEXTS:
        if not isinstance(value, dict):
            return None
        return [(name, as_text(part)) for name, part in value.items()]
    if pa.types.is_string(kind):
        return as_text(value)
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    return value if type(value) is int and abs(value) < 1 << 63 else None


def as_text(value: object) -> str | None:
    """Give a text as it is, what else JSON may hold as JSON, and nothing for nothing."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _milliseconds(moment: object, time_zone: str) -> int:
    """Give a time in milliseconds since 1970."""
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    if not isinstance(moment, datetime | str):
        raise InvalidArgumentError(
            f"a timestamp is a datetime or a text, got {moment!r}",
            hint="give one such as '2024-01-31 10:00:00', or a version instead",
        )
    text = moment.isoformat(" ") if isinstance(moment, datetime) else moment.strip()
    if found := _WITHOUT_SECONDS.fullmatch(text):
        text = f"{found[1]}:00{found[2] or ''}"
    try:
        parsed = parse_partition_value(text, PrimitiveType("timestamp"), time_zone)
    except FormatError:
        parsed = None
    if not isinstance(parsed, datetime):
        raise InvalidArgumentError(
            f"{moment!r} is no timestamp",
            hint="give one such as '2024-01-31', '2024-01-31 10:00:00' or with a zone"
            " '2024-01-31T10:00:00+01:00'",
        )
    return (parsed - _EPOCH) // timedelta(milliseconds=1)


def _shown(milliseconds: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(" ", timespec="milliseconds")
