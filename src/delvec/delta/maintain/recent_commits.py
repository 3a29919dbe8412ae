"""The commits since a time, and those up to one: what a retention covers, and what it does not.

A commit's time is that of its file, or the in-commit timestamp if that is later: with timestamps of
both kinds, the later one keeps more. In-commit timestamps rise, so some twenty commits are read to
find the place among a million; none if the table has no such timestamps.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from delvec.delta.log.commit_times import in_commit_timestamp, info_of
from delvec.delta.log.commits import read_log_file
from delvec.delta.log.segment import list_commits
from delvec.delta.schema.properties import ENABLE_IN_COMMIT_TIMESTAMPS
from delvec.storage.parallel import in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from delvec.delta.log.json_actions import JsonActions
    from delvec.delta.log.segment import LogFile
    from delvec.delta.log.snapshot import Snapshot
    from delvec.storage import Storage

__all__ = ["commits_since", "commits_until", "read_commits"]

_THREADS: Final = 16


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

    Args:
        snapshot: The newest version.
        time_ms: The time.
        commits: All commits, if they were listed already.
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


def _has_timestamps(snapshot: Snapshot) -> bool:
    return snapshot.metadata.is_on(ENABLE_IN_COMMIT_TIMESTAMPS)


def _timestamp(snapshot: Snapshot, commit: LogFile) -> int:
    """Return a commit's in-commit timestamp; 0 if it is older than these."""
    actions = read_log_file(snapshot.storage, commit.key)
    return in_commit_timestamp(info_of(actions), actions.uri) or 0


def read_commits(storage: Storage, commits: Iterable[LogFile]) -> Iterator[JsonActions]:
    """Yield the actions of commits in order; a few commits are in memory at a time."""
    yield from in_order(
        lambda commit: read_log_file(storage, commit.key),
        ((commit, 1) for commit in commits),
        threads=_THREADS,
        budget=2 * _THREADS,
    )
