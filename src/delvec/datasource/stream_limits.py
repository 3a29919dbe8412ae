"""`maxFilesPerTrigger` and `maxBytesPerTrigger`: batches of a stream that stop earlier.

From 4.2 on, Spark tells a Python source where a batch starts, whether the trigger wants all that is
new, and, with `availableNow`, when the query began; earlier versions do not. As in Delta, a batch
is 1000 files by default, and at least one, whatever its size. Commits of appends are cut between
files. Those of a change feed are not: both images of an update are in one batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delvec.datasource.offsets import INITIAL, Offset, beginning
from delvec.datasource.stream_commits import appended_files, changed_sizes, require_same_table
from delvec.datasource.stream_plan import initial_order
from delvec.datasource.stream_reader import StreamReader, gone
from delvec.delta.log.segment import find_segment
from delvec.errors import InvalidArgumentError

try:
    from pyspark.sql.streaming.datasource import (  # type: ignore[import-not-found]
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before Spark 4.2, which makes a StreamReader

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands for Spark's class of this name."""


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delvec.delta.log.json_actions import JsonActions

__all__ = ["LimitedStreamReader"]

_DEFAULT_FILES: Final = 1000
_MAX_VERSIONS: Final = 1000  # of a batch: commits without files count for nothing else
_FIRST_WINDOW: Final = 16  # commits that are read at first: their files may be more than a batch
_ALL: Final = "ReadAllAvailable"


class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans batches of limited size."""

    _until: int | None = None

    def getDefaultReadLimit(self) -> Any:  # noqa: ANN401, N802
        """Return that batches are limited; how, the options say."""
        return ReadMaxFiles(self._options.stream.max_files or _DEFAULT_FILES)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the newest version, where the query will end."""
        self._until = find_segment(self._snapshot.storage).version

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # type: ignore[override]  # noqa: ANN401, N802
        """Return the end of the batch that begins at an offset; the same if nothing is new."""
        storage, table = self._snapshot.storage, self._snapshot.metadata.id
        begin, newest = Offset.from_json(start), find_segment(storage).version
        require_same_table(self._snapshot, begin.table)
        if newest < begin.version:
            raise gone(storage, newest, begin)
        last = newest if self._until is None else min(newest, self._until)
        if begin == INITIAL:
            end = self.first_end(last)
        elif begin.in_snapshot:
            end = Offset(last, table, begin.since, snapshot=True)
        elif last > begin.version:
            end = Offset(last, table)
        else:
            return start
        if type(limit).__name__ != _ALL:
            end = self._limited(beginning(end) if begin == INITIAL else begin, end)
        self._last = end
        return end.to_json()

    def _limited(self, start: Offset, end: Offset) -> Offset:
        """Return where a batch stops that the limits allow, `end` at the latest."""
        left = _Left(self._options.stream.max_files, self._options.stream.max_bytes)
        if start.in_snapshot and start.since is not None:
            snapshot = self.initial_snapshot(start.since)
            sizes = snapshot.files.sizes[initial_order(snapshot)][start.files :].tolist()
            taken = left.take(sizes)
            if taken < len(sizes):
                return replace(end, version=-1, files=start.files + taken)
            return replace(end, version=start.since)
        first, last = start.version + 1, min(end.version, start.version + _MAX_VERSIONS)
        done = start.version
        try:
            for version, sizes in self._all_sizes(first, last):
                skipped = start.files if version == first else 0
                is_first, taken = left.is_whole, left.take(sizes[skipped:])
                if skipped + taken < len(sizes):
                    if not self._options.stream.change_feed:
                        return replace(end, version=version - 1, files=skipped + taken)
                    return replace(end, version=version if is_first else version - 1)
                done = version
                if left.is_spent:
                    break
        except InvalidArgumentError:
            # What comes before the commit at which the stream has to end is read; the next batch
            # begins with that.
            if done == start.version:
                raise
        return replace(end, version=done)

    def _all_sizes(self, first: int, last: int) -> Iterator[tuple[int, Sequence[int]]]:
        for commits in self.windows(first, last, _FIRST_WINDOW):
            yield from self._sizes(commits)

    def _sizes(
        self, commits: Sequence[tuple[int, JsonActions]]
    ) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield for each commit the sizes of the files that are read, in their order."""
        stream = self._options.stream
        if stream.change_feed:
            yield from changed_sizes(self._snapshot, commits).items()
            return
        sizes: dict[int, list[int]] = {version: [] for version, _ in commits}
        try:
            files = appended_files(self._snapshot, commits, stream)
        except InvalidArgumentError:
            if len(commits) == 1:
                raise
            # One by one: the commit at which the stream has to end may be behind the limit.
            for commit in commits:
                yield from self._sizes([commit])
            return
        for version, file in files:
            sizes[version].append(file.size)
        yield from sizes.items()


class _Left:
    """What a batch may still take; bytes are exceeded by the last file, as in Delta."""

    def __init__(self, files: int | None, size: int | None) -> None:
        self._files = files or (_DEFAULT_FILES if size is None else None)
        self._bytes = size
        self.is_whole = True

    @property
    def is_spent(self) -> bool:
        """Whether no file may be taken."""
        return self._files == 0 or (self._bytes is not None and self._bytes <= 0)

    def take(self, sizes: Sequence[int]) -> int:
        """Take files as long as there is something left; return how many."""
        for number, size in enumerate(sizes):
            if self.is_spent:
                return number
            self._files = None if self._files is None else self._files - 1
            self._bytes = None if self._bytes is None else self._bytes - size
            self.is_whole = False
        return len(sizes)
