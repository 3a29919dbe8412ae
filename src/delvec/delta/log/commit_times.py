"""When each version was committed, and the version that was current at a time.

A commit's timestamp is the modification time of its file, made to rise by at least 1 ms from one
commit to the next. Tables with in-commit timestamps hold it in the commit itself, from a certain
version on: those survive a copy of the table.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

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
from delvec.documents import whole_number
from delvec.errors import FormatError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.delta.log.segment import LogFile
    from delvec.delta.log.snapshot import Snapshot
    from delvec.storage import Storage

__all__ = [
    "CommitTimes",
    "commit_times",
    "in_commit_timestamp",
    "info_of",
    "version_at",
    "version_from",
]

# If clocks went backwards, a commit's timestamp depends on those before it; so many are read.
_BEFORE: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_END_OF_TIME_MS: Final = 253_402_300_800_000  # the year 10,000
_WITHOUT_SECONDS: Final = re.compile(r"([0-9-]{10}[ T][0-9]{2}:[0-9]{2})(Z|[+-][0-9]{2}:[0-9]{2})?")


def version_at(storage: Storage, timestamp: datetime | str, time_zone: str = "UTC") -> int:
    """Return the version that was current at a time: the newest committed at it or before.

    With in-commit timestamps, the commits that a binary search meets are read; without, none.

    Args:
        storage: The table.
        timestamp: A datetime or ISO 8601 string, such as `2024-01-31` or
            `2024-01-31 10:00:00+01:00`; cut to milliseconds.
        time_zone: The zone of a timestamp that names none.

    Raises:
        InvalidArgumentError: The time is after the newest commit, or before the oldest that can be
            read; the string is no timestamp.
        TableNotFoundError: There is no table.
        FormatError: The log is damaged.
    """
    wanted = _milliseconds(timestamp, time_zone)
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
    """Return the first version that was committed at a time or after it; see `version_at`.

    Raises:
        InvalidArgumentError: The time is after the newest commit; the string is no timestamp.
        TableNotFoundError: There is no table.
        FormatError: The log is damaged.
    """
    wanted = _milliseconds(timestamp, time_zone)
    snapshot = open_snapshot(storage)
    times = CommitTimes(snapshot, _readable_commits(snapshot))
    low, high = times.comparable(wanted)
    place = bisect_left(times.commits, wanted, low, high, key=times.of)
    if place == len(times.commits):
        raise InvalidArgumentError(
            f"{storage.root} has no commit as late as {_shown(wanted)}: the newest version is"
            f" {snapshot.version}",
            hint="`delvec history` lists the versions and their times",
        )
    return times.commits[place].first


@dataclass(frozen=True, slots=True)
class _Enablement:
    """Since when commits hold in-commit timestamps."""

    version: int
    time_ms: int


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
        """The index of the first commit with an in-commit timestamp."""
        if self._enabled is None:
            return len(self.commits)
        return bisect_left(self.commits, self._enabled.version, key=lambda commit: commit.first)

    def comparable(self, time_ms: int) -> tuple[int, int]:
        """Return the range of commits, by index, whose timestamps a time can be compared with.

        Copied files are younger than in-commit timestamps, so the two kinds are not mixed.
        """
        if self._enabled is not None and self._enabled.time_ms <= time_ms:
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
        """Read the `commitInfo` of a commit; empty if it has none."""
        data = self.snapshot.storage.read(commit.key)
        return info_of(JsonActions(self.uri_of(commit), data))

    def uri_of(self, commit: LogFile) -> str:
        """Return the full name of a commit's file."""
        return self.snapshot.storage.uri_of(commit.key)


def commit_times(snapshot: Snapshot, start: int, end: int) -> CommitTimes:
    """List the commits of versions, both ends included, and those before that bear on their times.

    Whether they have in-commit timestamps is decided by the snapshot.
    """
    listed = list_commits(snapshot.storage, max(0, start - _BEFORE))
    return CommitTimes(snapshot, [commit for commit in listed if commit.last <= end])


def info_of(actions: JsonActions) -> dict[str, Any]:
    """Return the `commitInfo` of a commit; empty if it has none."""
    for action in actions.others():
        if isinstance(info := action.get("commitInfo"), dict):
            return info
    return {}


def _enablement(snapshot: Snapshot) -> _Enablement | None:
    if not snapshot.metadata.is_on(ENABLE_IN_COMMIT_TIMESTAMPS):
        return None
    names = [IN_COMMIT_TIMESTAMPS_SINCE_VERSION, IN_COMMIT_TIMESTAMPS_SINCE_TIME]
    values = [snapshot.metadata.configuration.get(name) for name in names]
    if values == [None, None]:
        return _Enablement(0, 0)  # since the first commit
    version, time_ms = map(whole_number, values)
    if version is None or time_ms is None:
        raise FormatError(
            "the table does not say since when it has in-commit timestamps",
            path=snapshot.table,
            expected=f"numbers in both {names[0]} and {names[1]}",
            found=repr(values)[:80],
        )
    return _Enablement(version, time_ms)


def in_commit_timestamp(info: dict[str, Any], uri: str) -> int | None:
    """Return the in-commit timestamp of a `commitInfo` in milliseconds, or None if it has none."""
    value = info.get("inCommitTimestamp")
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < _END_OF_TIME_MS:
        raise FormatError(
            "a commit has an in-commit timestamp that is none",
            path=uri,
            expected="inCommitTimestamp in milliseconds since 1970",
            found=repr(value)[:40],
        )
    return value


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


def _milliseconds(moment: object, time_zone: str) -> int:
    """Return a timestamp in milliseconds since 1970."""
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    if not isinstance(moment, datetime | str):
        raise InvalidArgumentError(
            f"a timestamp is a datetime or a string, got {moment!r}",
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
