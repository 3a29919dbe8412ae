"""After which step, and when, traces of rows are gone.

live row            delete(), purge() if that writes a vector, vacuum() once the file's
                    retention is over
deleted by vector   purge(), vacuum() once the old file's retention is over
removed file        vacuum(), when it was removed + retention
change file         vacuum(), when it was written + retention
orphan file         the same
log                 clean_log(), once a later checkpoint is older than the retention of the log;
                    before that purge() and checkpoint(), if entries of live files mention it
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from delvec.delta.log.segment import list_log
from delvec.delta.maintain.traces.report import LATER_CHECKPOINT, Step
from delvec.delta.schema.properties import (
    DELETED_FILE_RETENTION,
    ENABLE_DELETION_VECTORS,
    LOG_RETENTION,
    retention_ms,
)
from delvec.report.wordings import call, worded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.maintain.traces.report import PlaceKind

__all__ = ["Schedule", "schedule_of"]

_DAY: Final = 86_400_000
_LAST_MS: Final = 253_402_300_799_000  # the last second of the year 9999


@dataclass(frozen=True)
class Schedule:
    """The times at which what a table does not need any more may be removed.

    Attributes:
        now_ms: The time of the report, in milliseconds since 1970.
        files_ms: How long removed files are kept; None if the property is no fixed interval.
        log_ms: How long the log is kept; None likewise.
        writes_vectors: Whether deletes write vectors.
        version: The newest version.
        commits: When each commit was put.
        checkpoints: The versions that have a checkpoint, ascending.
    """

    now_ms: int
    files_ms: int | None
    log_ms: int | None
    writes_vectors: bool
    version: int
    commits: Mapping[int, int]
    checkpoints: tuple[int, ...]

    def of(
        self, kind: PlaceKind, modified_ms: int, removed_ms: int | None = None
    ) -> tuple[Step, ...]:
        """Return the steps for matching rows of a file.

        Args:
            kind: What the rows are.
            modified_ms: When the file was written.
            removed_ms: When it was removed from the table, if it was.
        """
        if kind == "live":
            return self.live()
        if kind == "deleted":
            return self.deleted()
        if kind == "hidden":
            return (
                Step(worded("delete the file by hand, {} does not look at it", call("vacuum"))),
            )
        if kind == "outside":
            return (Step("do the same for the table that the file belongs to"),)
        return self.unused(modified_ms, removed_ms)

    def live(self) -> tuple[Step, ...]:
        """Return the steps for rows that are still live."""
        purge = (Step(call("purge")),) if self.writes_vectors else ()
        return (Step(call("delete")), *purge, self._vacuum(self.now_ms))

    def deleted(self) -> tuple[Step, ...]:
        """Return the steps for rows that a vector deletes."""
        return (Step(call("purge")), self._vacuum(self.now_ms))

    def unused(self, *times_ms: int | None) -> tuple[Step, ...]:
        """Return the steps for a file that is not live.

        Args:
            times_ms: When it was written and when it was removed, as far as known; the later of
                both counts, for VACUUM keeps what is younger.
        """
        known = [each for each in times_ms if each is not None]
        return (self._vacuum(max(known, default=0)),)

    def log(
        self,
        version: int | None,
        *,
        is_live: bool,
        has_live_rows: bool,
        removed_ms: int | None = None,
    ) -> tuple[Step, ...]:
        """Return the steps for a file of the log.

        Args:
            version: Its version; None if that is not known.
            is_live: Whether entries of live files mention the value: checkpoints to come will
                have it too until these files are rewritten.
            has_live_rows: Whether there are live rows that match.
            removed_ms: When the last file was removed whose tombstone has the value: checkpoints
                have it too until it expires.
        """
        expired = 0
        if removed_ms is not None and self.files_ms is not None:
            expired = removed_ms + self.files_ms
        if is_live or has_live_rows or expired > self.now_ms:
            begin: tuple[Step, ...] = ()
            if is_live or has_live_rows:
                begin = (self.live() if has_live_rows else self.deleted())[:-1]
            due = max(expired, self.now_ms)
            return (*begin, Step(call("checkpoint"), self._future(due)), self._clean_log(due))
        newest = self.version if version is None else version
        later = [each for each in self.checkpoints if each > newest and each in self.commits]
        if later:
            return (self._clean_log(self.commits[later[0]]),)
        if newest < self.version:
            return (Step(call("checkpoint")), self._clean_log(self.commits.get(self.version)))
        # The commit of a checkpoint's own version is kept with it.
        return (Step(LATER_CHECKPOINT), self._clean_log(self.now_ms))

    def _vacuum(self, since_ms: int) -> Step:
        if self.files_ms is None:
            return Step(call("vacuum"))
        return Step(call("vacuum"), self._future(since_ms + self.files_ms))

    def _clean_log(self, since_ms: int | None) -> Step:
        if self.log_ms is None or since_ms is None:
            return Step(call("clean_log"))
        # Logs are cleaned up by whole days.
        whole_day = -(-since_ms // _DAY) * _DAY
        return Step(call("clean_log"), self._future(whole_day + self.log_ms))

    def _future(self, time_ms: int) -> datetime | None:
        if time_ms <= self.now_ms:
            return None
        return datetime.fromtimestamp(min(time_ms, _LAST_MS) / 1000, timezone.utc)


def schedule_of(snapshot: Snapshot) -> Schedule:
    """Return the times of a table; lists its log."""
    listing = list_log(snapshot.storage)
    properties = snapshot.metadata.configuration
    return Schedule(
        int(time.time() * 1000),
        retention_ms(properties, DELETED_FILE_RETENTION),
        retention_ms(properties, LOG_RETENTION),
        snapshot.protocol.has_vectors and snapshot.metadata.is_on(ENABLE_DELETION_VECTORS),
        snapshot.version,
        {version: file.modified_ms for version, file in listing.commits.items()},
        tuple(sorted({each.version for each in listing.checkpoints})),
    )
