"""Proof that rows are gone from a Delta table, and its downgrade to one without vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.calls import explained_calls
from delvec.delta.maintain.drop_vectors import drop_vectors
from delvec.delta.maintain.traces.find import find_traces
from delvec.delta.maintain.traces.rows import TupleCondition
from delvec.delta.table.arguments import require_condition
from delvec.delta.table.handle import TableHandle
from delvec.delta.table.named_columns import by_name
from delvec.delta.write.options import WriteOptions
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from delvec.delta.maintain.drop_vectors_report import DowngradeReport
    from delvec.delta.maintain.traces.report import TracesReport
    from delvec.delta.maintain.traces.rows import Condition
    from delvec.delta.table.reads import Where

__all__ = ["TableErasure"]


@explained_calls(WriteOptions)
@dataclass(frozen=True)
class TableErasure(TableHandle):
    """The commands that tell where deleted rows still are, and that leave deletion vectors."""

    def traces(self, where: Where) -> TracesReport:
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
        as such. The report is empty when nothing is left.

        Columns that were dropped are searched as long as a version in the log has them. Statistics
        may hold values of other columns of such rows, which no condition names: they are gone with
        the log of their time. Copies elsewhere, and folders without files, are not looked at.

        Args:
            where: Tuples such as `[("name", "=", "Anna")]`; with a session also SQL or a column of
                Spark.

        Raises:
            InvalidArgumentError: No version in the log has the columns of the condition.
        """
        return find_traces(self.storage, self.snapshot, self._condition(where), self.time_zone)

    def _condition(self, where: Where) -> Condition:
        given: object = where
        if isinstance(given, list | tuple):
            return TupleCondition(given, self.time_zone)
        require_condition("traces({})", given, tuples=True)
        if given is None:
            raise InvalidArgumentError(
                "traces() needs a condition, not None",
                hint="""call traces("name = 'Anna'"), or traces([("name", "=", "Anna")])""",
            )
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
            from delvec.spark.delta.maintain.purge import purge as purge_files  # noqa: PLC0415

            purge = purge_files()
        return drop_vectors(
            self.snapshot, self.run, purge, options, truncate_history=truncate_history
        )
