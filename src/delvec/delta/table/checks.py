"""Methods that look into a Delta table: check and repair, proof of erasure, inspection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from delvec.calls import require_condition
from delvec.delta.check.check import check
from delvec.delta.check.report import CheckReport
from delvec.delta.maintain.downgrade import DowngradeReport, drop_vectors
from delvec.delta.maintain.inspect import inspect
from delvec.delta.table.arguments import by_name
from delvec.delta.table.handle import TableHandle
from delvec.delta.traces.find import find_traces
from delvec.delta.traces.report import TracesReport
from delvec.delta.traces.rows import Condition, TupleCondition
from delvec.delta.write.transaction import WriteOptions
from delvec.errors import InvalidArgumentError
from delvec.inspection.report import InspectReport

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from delvec.delta.table.reads import Where

_ON_SPARK: Final = ("purge", "optimize")


@dataclass(frozen=True)
class TableChecks(TableHandle):
    """The commands that look into a table, prove erasure, and leave deletion vectors."""

    def check(
        self,
        *,
        repair: bool = False,
        sample: int = 10,
        dry_run: bool = False,
        on_progress: Callable[[str, int, int], None] | None = None,
    ) -> CheckReport:
        """Compare the newest version with its files, vectors and statistics; no session is needed.

            report = t.check()
            assert report.ok, report

        Errors are what makes rows wrong or unreadable: data files and vectors that are gone or
        damaged, files that are live twice, checkpoints that are not what the commits say, vectors
        that readers may ignore, bounds that hide rows. Warnings are what other engines trip over,
        such as vectors in the log itself. Notes, such as orphan files, do not count for `ok`.

        It lists the table's folder and the log, reads the footer of each data file, all deletion
        vectors, and the rows of some files. Memory grows with the files, some hundred bytes each.

        Args:
            repair: Whether to repair what is certain: no row is lost, and no deleted row comes
                back. The report says what (`repairs`), and holds the findings that are left. Files
                that are gone cannot be repaired; their findings say what can be done.
            sample: How many files have their rows compared with their statistics.
            dry_run: With `repair`: whether to report only what would be repaired.
            on_progress: Is called with what is looked at, how many files were, and of how many.

        Raises:
            InvalidArgumentError: `sample` is negative.
            UnsupportedFeatureError: A repair would have to write to a table with a feature that
                delvec does not write.
        """
        return check(
            self.storage,
            lambda operation, prepare: self.run(operation, prepare, {}),
            repair=repair and not dry_run,
            sample=sample,
            on_progress=on_progress,
        )

    def traces(self, where: Where, *, redact: bool = False) -> TracesReport:
        """Tell where rows that satisfy a condition still physically are, and when they will not be.

            t.delete("name = 'Anna'")
            if t.traces("name = 'Anna'"):       # still in files, though no query finds the rows
                t.purge()
                t.vacuum()                      # when the report says
            print(t.traces("name = 'Anna'"))

        Searched are all files below the table's folder: data files of the newest version (rows
        that are live, and rows that a vector deletes), files that it does not have any more, change
        files, files that the log does not name, and the log itself: commits, checkpoints and
        checksum files hold values too, as bounds of statistics, as partition values and in the
        conditions of past operations. These are told from others where the condition compares a
        column by `=` or `IN`. Files of another table, as in a shallow clone, are searched and named
        as such. The report is empty, and false, when nothing is left; it is not where the log
        could not be judged.

        In the log every string and number counts, whatever its key: comments, defaults, properties,
        metadata of commits, tags, names of files. A value of fewer than four characters counts
        beside the name of its column, and in what people write.

        Columns that were dropped are searched as long as a version in the log has them; files with
        other dropped columns are named. Statistics may hold values of other columns of such rows,
        which no condition names: they are gone with the log of their time. Copies elsewhere, and
        folders without files, are not looked at.

        Args:
            where: Tuples such as `[("name", "=", "Anna")]`; with a session also SQL or a column of
                Spark.
            redact: Whether the report has digests in place of the values of the condition, so that
                the record of an erasure does not hold what was erased.

        Raises:
            InvalidArgumentError: No version in the log has the columns of the condition.
        """
        condition = self._condition(where)
        return find_traces(self.storage, self.snapshot, condition, self.time_zone, redact=redact)

    def _condition(self, where: Where) -> Condition:
        given: object = where
        if isinstance(given, list | tuple):
            return TupleCondition(given, self.time_zone)
        if given is None or isinstance(given, bool):
            raise InvalidArgumentError(
                f"traces() needs a condition, not {given}",
                hint="""call traces("name = 'Anna'"), or traces([("name", "=", "Anna")])""",
            )
        require_condition("traces({})", given, tuples=True)
        session = self._session("a condition in SQL", "tuples such as [('name', '=', 'Anna')]")
        from delvec.spark.delta.maintain.traces import SqlCondition  # noqa: PLC0415

        return SqlCondition(session, by_name(self, where), self.storage.root)

    def drop_deletion_vectors(
        self, *, truncate_history: bool = False, **options: Unpack[WriteOptions]
    ) -> DowngradeReport:
        """Turn the table into one that readers without deletion vectors open.

            t.drop_deletion_vectors()

        Switches vectors off, rewrites the files that have one, and commits a protocol without the
        feature. Old versions that need vectors stay readable for those who know them: the writer
        feature checkpointProtection keeps checkpoints in place that hide them from others. With
        `truncate_history` these versions are deleted instead, as soon as they are older than
        `delta.dropFeatureTruncateHistory.retentionDuration` (24 hours), and the protocol is the
        lowest that the table needs, such as reader version 1 and writer version 2.

        A call that was interrupted is continued by the next. Only a table with vectors needs a
        Spark session.

        Args:
            truncate_history: Whether versions that need vectors are deleted.
            options: See `WriteOptions`.

        Raises:
            UnsupportedFeatureError: With `truncate_history`, if the log still has versions that
                need vectors; it says when they may be deleted. No file has a vector any more.
        """
        purge = None
        if self.spark is not None:
            from delvec.spark.delta.maintain.optimize import purge as purge_files  # noqa: PLC0415

            purge = purge_files(dropped_columns=False)
        return drop_vectors(
            self.snapshot, self.run, purge, options, truncate_history=truncate_history
        )

    def inspect(
        self,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        *,
        history: int = 100,
        listing: bool | None = None,
        on_progress: Callable[[str, int, int], None] | None = None,
    ) -> InspectReport:
        """Tell at a glance what the table is made of, and what to run next; needs no session.

            report = t.inspect()
            print(report)
            report.write_html("report.html")    # one page with charts, without the network

        Reads the log: the live files, and the newest commits for vectors over time. No data file
        and no vector is opened. Memory grows with the live files, some 750 bytes each in columns,
        and with the commits in the log; no object is made for a file that is not named.

        What a vacuum would delete, only a listing of the folder tells. By default it is listed if
        the table has no more than 100,000 live files; memory then grows with the listed files that
        are not live, 100 bytes each.

        Args:
            version: The version; the newest by default. Older ones get no advice.
            timestamp: Instead of `version`: a time; the version that was current then.
            history: How many of the newest commits are read.
            listing: Whether to list the folder; None as said above.
            on_progress: Is called with what is listed, how many files were, and of how many, 0 if
                that is not known; from several threads.

        Raises:
            InvalidArgumentError: There is no such version, or `history` is negative.
        """
        if history < 0:
            raise InvalidArgumentError(f"history is a number of commits, got {history}")
        snapshot = self.snapshot(version, timestamp)
        is_newest = (version is None and timestamp is None) or snapshot.version == self.version
        report = inspect(
            snapshot, is_newest=is_newest, history=history, listing=listing, on_progress=on_progress
        )
        if self.spark is not None:
            return report
        # Calls that need a session name one, since the table was opened without.
        more = ", storage_options" if self.storage.options else ""
        opened = f"DeltaTable.for_path(spark, {report.table!r}{more})"
        calls = tuple(
            replace(each, call=f"{opened}.{each.call.removeprefix('t.')}")
            if each.action in _ON_SPARK
            else each
            for each in report.advice
        )
        return replace(report, advice=calls)
