"""The inspection of a Delta table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from delvec.calls import explained_calls
from delvec.delta.maintain.inspect.inspect import inspect
from delvec.delta.table.handle import TableHandle
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from delvec.inspection.report import InspectReport

__all__ = ["TableInspection"]

_ON_SPARK: Final = ("purge", "optimize")


@explained_calls()
@dataclass(frozen=True)
class TableInspection(TableHandle):
    """The inspection of a table."""

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
            snapshot,
            is_newest=is_newest,
            history=history,
            listing=listing,
            on_progress=on_progress,
        )
        if self.spark is not None:
            return report
        return _with_sessions(report, ", storage_options" if self.storage.options else "")


def _with_sessions(report: InspectReport, more: str) -> InspectReport:
    """Name a session in calls that need one, for a table that was opened without."""
    opened = f"DeltaTable.for_path(spark, {report.table!r}{more})"
    calls = tuple(
        replace(each, call=f"{opened}.{each.call.removeprefix('t.')}")
        if each.action in _ON_SPARK
        else each
        for each in report.advice
    )
    return replace(report, advice=calls)
