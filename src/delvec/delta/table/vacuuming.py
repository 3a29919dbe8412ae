"""Files and log entries that a Delta table no longer needs: the commands that delete them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.calls import explained_calls
from delvec.delta.maintain.log_cleanup import clean_log
from delvec.delta.maintain.vacuum.vacuum import VacuumOptions, vacuum
from delvec.delta.table.handle import TableHandle
from delvec.delta.write.options import WriteOptions
from delvec.delta.write.transaction import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from delvec.delta.maintain.log_report import LogReport
    from delvec.delta.maintain.vacuum.report import VacuumReport
    from delvec.delta.write.change import Change

__all__ = ["TableVacuum"]


@explained_calls(WriteOptions)
@dataclass(frozen=True)
class TableVacuum(TableHandle):
    """The commands that delete what a table no longer needs."""

    def vacuum(
        self,
        retention_hours: float | None = None,
        *,
        dry_run: bool = False,
        lite: bool = False,
        force: bool = False,
        commit_metadata: str | None = None,
        on_progress: Callable[[str, int, int], None] | None = None,
    ) -> VacuumReport:
        """Delete the files below the table that no version within the retention needs.

            t.vacuum(dry_run=True)
            t.vacuum()
            t.vacuum(retention_hours=0, force=True)     # if nobody else uses the table now

        Kept are the data and vector files of live rows, those that were removed within the
        retention, change files of that time, files modified since, and files whose names begin
        with `_` or `.`. Everything else below the table's folder is deleted, whoever put it there;
        other tables inside it are left alone. Nothing outside the folder is ever deleted.

        The log is read again before each 16,000 deletes: files that a concurrent commit refers to
        again, such as a RESTORE of a version older than the retention, are kept. A commit that
        lands within the seconds of such a wave may refer to files that are deleted then.

        Commits VACUUM START and VACUUM END, but nothing in a dry run. Needs no Spark session.

        Args:
            retention_hours: Keep what was removed or modified within so many hours; by default
                what the table says in `delta.deletedFileRetentionDuration`, or else 168.
            dry_run: Delete nothing: the report lists the files.
            lite: Do not list the folder: take the files from the commits since the last vacuum.
                Files of writers that died stay.
            force: Allow a retention that is shorter than the table's.
            commit_metadata: A string for the table's history.
            on_progress: Is called with what is done, how many files of it are done, and of how
                many, 0 if that is not known; from several threads.

        Raises:
            InvalidArgumentError: The retention is shorter than the table's and not forced; or a
                lite vacuum, of a table whose commits since the last vacuum were cleaned up.
            UnsupportedFeatureError: The table has a feature that delvec does not write.
        """
        options = VacuumOptions(retention_hours, dry_run, lite, force, commit_metadata, on_progress)

        def put(change: Change) -> int:
            version = self.run(change.operation, lambda _: Outcome(change), {}).version
            if version is None:
                raise AssertionError("a change was committed")
            return version

        return vacuum(self.snapshot, put, options)

    def clean_log(self, *, dry_run: bool = False) -> LogReport:
        """Delete commits and checkpoints older than `delta.logRetentionDuration`, 30 days.

        Versions since then stay readable, with the checkpoint that they need: the newest at or
        before the version that was current at that time, cut to midnight UTC. Without such a
        checkpoint nothing is deleted. Versions before it can not be read any more. Data files are
        deleted by `vacuum`. Nothing is committed. Needs no Spark session.

        Args:
            dry_run: Delete nothing: the report tells what would be.

        Raises:
            UnsupportedFeatureError: The table has a feature that delvec does not write.
            FormatError: The checkpoint that would be needed is damaged; nothing was deleted.
        """
        return clean_log(self.snapshot(), dry_run=dry_run)
