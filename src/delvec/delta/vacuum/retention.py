"""How long the files of removed rows stay, and which commits a retention covers.

A commit's time is that of its file, or the in-commit timestamp if that is later, which keeps more.
In-commit timestamps rise, so some twenty commits are read to find the place among a million; none
if the table has no such timestamps.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from delvec.calls import describe_value
from delvec.delta.log.actions import JsonActions
from delvec.delta.log.history import in_commit_timestamp, read_commit_info
from delvec.delta.log.replay import read_log_file
from delvec.delta.log.segment import LogFile, list_commits
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.metadata import FOREVER_MS, Property, retention_ms
from delvec.errors import FormatError, InvalidArgumentError
from delvec.report.hints import argument, format_hint
from delvec.storage import Storage
from delvec.storage.parallel import map_in_order

HOUR_MS: Final = 3_600_000
_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class Retention:
    """How long removed files stay, in milliseconds."""

    table_ms: int  # what the table says
    given_ms: int | None  # what the caller says; None to take the table's
    now_ms: int

    @property
    def length_ms(self) -> int:
        return self.table_ms if self.given_ms is None else self.given_ms

    @property
    def before_ms(self) -> int:
        """The time before which files must have been removed and modified to be deleted."""
        return self.now_ms - self.length_ms


def retention_of(
    snapshot: Snapshot, hours: float | None = None, *, force: bool = False
) -> Retention:
    length = property_ms(snapshot, Property.DELETED_FILE_RETENTION)
    longest = FOREVER_MS // HOUR_MS
    if hours is not None and not 0 <= hours <= longest:
        raise InvalidArgumentError(
            f"retention_hours is a number from 0 to {longest:,}, not {describe_value(hours)}"
        )
    given = None if hours is None else round(hours * HOUR_MS)
    if given is not None and given < length and not force:
        raise InvalidArgumentError(
            f"{snapshot.table} keeps removed files for {length / HOUR_MS:,g} hours; a vacuum with"
            f" {given / HOUR_MS:,g} would delete some earlier, and fail readers and writers that"
            " still use them, and time travel",
            hint=format_hint(
                "omit {}, set {} of the table, or pass {} if nobody uses the table now",
                argument(retention_hours=None),
                Property.DELETED_FILE_RETENTION,
                argument(force=True),
            ),
        )
    return Retention(length, given, int(time.time() * 1000))


def property_ms(snapshot: Snapshot, name: str) -> int:
    """Return a retention of a table in milliseconds, see `retention_ms`."""
    properties = snapshot.metadata.configuration
    length = retention_ms(properties, name)
    if length is None:
        raise FormatError(
            f"{name} is not an interval",
            path=snapshot.table,
            expected="an interval such as `interval 1 week`",
            found=repr(properties.get(name)),
            hint=f"set {name} to one",
        )
    return length


def commits_since(snapshot: Snapshot, time_ms: int) -> list[LogFile]:
    """Return the commits from the first on that was put at a time or later, oldest first."""
    commits = list_commits(snapshot.storage)
    times = (number for number, commit in enumerate(commits) if commit.modified_ms >= time_ms)
    first = next(times, len(commits))
    if _has_timestamps(snapshot):
        first = bisect_left(commits, time_ms, 0, first, key=lambda each: _timestamp(snapshot, each))
    return commits[first:]


def commits_until(
    snapshot: Snapshot, time_ms: int, commits: Sequence[LogFile] | None = None
) -> list[LogFile]:
    """Return the commits up to the newest that was put at a time or before, oldest first.

    The times of their files are made to rise from one commit to the next, as in delta-spark.
    """
    found, before = [], 0
    for commit in list_commits(snapshot.storage) if commits is None else commits:
        before = max(commit.modified_ms, before + 1)
        if before > time_ms:
            break
        found.append(commit)
    if _has_timestamps(snapshot):
        del found[bisect_right(found, time_ms, key=lambda each: _timestamp(snapshot, each)) :]
    return found


def read_commits(storage: Storage, commits: Iterable[LogFile]) -> Iterator[JsonActions]:
    """Yield the actions of commits in order; a few commits are in memory at a time."""
    yield from map_in_order(
        lambda commit: read_log_file(storage, commit.key),
        ((commit, 1) for commit in commits),
        threads=_THREADS,
        budget=2 * _THREADS,
    )


def _has_timestamps(snapshot: Snapshot) -> bool:
    return snapshot.metadata.is_on(Property.ENABLE_IN_COMMIT_TIMESTAMPS)


def _timestamp(snapshot: Snapshot, commit: LogFile) -> int:
    """Return a commit's in-commit timestamp; 0 if it is older than these."""
    actions = read_log_file(snapshot.storage, commit.key)
    return in_commit_timestamp(read_commit_info(actions), actions.uri) or 0
