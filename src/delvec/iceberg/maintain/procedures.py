"""Iceberg's own procedures, called so that nothing of delvec's is lost by them."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import load_table
from delvec.iceberg.client.failures import explained
from delvec.iceberg.client.named_snapshots import time_ms
from delvec.iceberg.commits.refs import keep_staging_marks
from delvec.iceberg.maintain.reports import ExpireReport, OrphanReport
from delvec.identifiers import quote
from delvec.report.phases import Stopwatch
from delvec.report.wordings import Wording
from delvec.spark.conf import time_zone
from delvec.spark.progress import described

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Row

    from delvec.iceberg.client.catalog import LoadedTable

__all__ = [
    "called",
    "expire_snapshots",
    "remove_orphan_files",
    "require_own_files",
    "sql_map",
    "sql_string",
]

_DAY: Final = timedelta(days=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def expire_snapshots(
    table: LoadedTable,
    older_than: datetime | timedelta | str | None = None,
    retain_last: int | None = None,
    *,
    dry_run: bool = False,
) -> ExpireReport:
    """Expire snapshots by Iceberg's `expire_snapshots`, and delete files that only they had.

    Heads of branches and tagged snapshots stay. Before, each staging branch of delvec's whose
    newest snapshot is not delvec's gets an empty one, since its mark would expire with the older
    ones. Transactions of applications are known by table properties as well, which stay.

    Args:
        table: The table.
        older_than: A time, or an age; by default what the table's properties say, 5 days.
        retain_last: How many of the newest snapshots of each branch to keep in any case; by default
            what the table's properties say, 1.
        dry_run: Whether to report only how many snapshots would expire; which files go with them
            is not computed.

    Raises:
        InvalidArgumentError: A value is of the wrong type or out of range.
        PlanError: The table's properties forbid to delete its files.
    """
    if retain_last is not None and retain_last < 1:
        raise InvalidArgumentError(f"retain_last is 1 or more, got {retain_last}")
    arguments = {} if older_than is None else {"older_than": _time(table, older_than)}
    if retain_last is not None:
        arguments["retain_last"] = str(int(retain_last))
    require_own_files(table)
    if dry_run:
        return _expiring(table, older_than, retain_last)
    stopwatch = Stopwatch()
    with stopwatch.phase("keep marks"):
        before = keep_staging_marks(table).metadata
    with stopwatch.phase("expire"):
        [row] = called(table, "expire_snapshots", arguments)
    after = load_table(table.spark, table.name).metadata
    notes = []
    if row["deleted_statistics_files_count"]:
        notes.append(
            "Statistics files of expired snapshots are deleted with them. Equality delete vectors"
            " in these only made reads faster: the delete files that they are copies of stay."
        )
    return ExpireReport(
        str(table.name),
        len(before.snapshots.keys() - after.snapshots),
        len(after.snapshots),
        tuple(sorted(before.refs.keys() - after.refs)),
        row["deleted_data_files_count"],
        row["deleted_position_delete_files_count"],
        row["deleted_equality_delete_files_count"],
        row["deleted_manifest_files_count"],
        row["deleted_manifest_lists_count"],
        row["deleted_statistics_files_count"],
        stopwatch.seconds,
        tuple(notes),
    )


def _expiring(
    table: LoadedTable, older_than: datetime | timedelta | str | None, retain_last: int | None
) -> ExpireReport:
    """Let Iceberg plan an expiry, and commit nothing."""
    with explained(str(table.name)):
        plan = table.handle.expireSnapshots()
        if older_than is not None:
            plan = plan.expireOlderThan(_milliseconds(table, older_than))
        if retain_last is not None:
            plan = plan.retainLast(int(retain_last))
        count = plan.apply().size()
    left = len(table.metadata.snapshots) - count
    return ExpireReport(str(table.name), count, left, dry_run=True)


def remove_orphan_files(
    table: LoadedTable,
    older_than: datetime | timedelta | str | None = None,
    *,
    location: str | None = None,
    dry_run: bool = False,
) -> OrphanReport:
    """Delete files that no snapshot refers to, by Iceberg's `remove_orphan_files`.

    Files of writes that run are among them until these commit, so only old ones are deleted. Paths
    that differ from those in the metadata in scheme or authority only stop the call: they may be
    live files.

    Args:
        table: The table.
        older_than: A time or an age, a day or more before now; 3 days by default.
        location: The folder to look in; by default the table's own.
        dry_run: Whether to report only, and delete nothing.

    Raises:
        InvalidArgumentError: `older_than` is less than a day ago.
        PlanError: The table's properties forbid to delete its files.
    """
    arguments = {"prefix_mismatch_mode": sql_string("ERROR")}
    if older_than is not None:
        _require_a_day(table, older_than)
        arguments["older_than"] = _time(table, older_than)
    if location is not None:
        arguments["location"] = sql_string(location)
    if dry_run:
        arguments["dry_run"] = "true"
    require_own_files(table)
    stopwatch = Stopwatch()
    with stopwatch.phase("look for" if dry_run else "remove"):
        rows = called(table, "remove_orphan_files", arguments)
    files = tuple(sorted(row["orphan_file_location"] for row in rows))
    return OrphanReport(str(table.name), files, dry_run, stopwatch.seconds)


def called(table: LoadedTable, procedure: str, arguments: Mapping[str, str]) -> list[Row]:
    """Call a procedure of a table's catalog; arguments are SQL."""
    spark, name = table.spark, table.name
    given = {"table": sql_string(str(name)), **arguments}
    listed = ", ".join(f"{key} => {value}" for key, value in given.items())
    with explained(str(name)), described(spark, f"delvec: {procedure} of {name}"):
        spark.catalog.refreshTable(str(name))
        return spark.sql(f"CALL {quote(name.catalog)}.system.{procedure}({listed})").collect()


def require_own_files(table: LoadedTable) -> None:
    """Refuse a table whose files may be those of others.

    Raises:
        PlanError: Its properties say so.
    """
    if table.metadata.properties.get("gc.enabled", "true").lower() == "false":
        raise PlanError(
            f"{table.name} has gc.enabled=false: its files may be those of other tables",
            hint="clean the target of a conversion by delvec.clean_target",
        )


def _require_a_day(table: LoadedTable, older_than: Any) -> None:  # noqa: ANN401
    if time.time() * 1000 - _milliseconds(table, older_than) < _DAY / timedelta(milliseconds=1):
        raise InvalidArgumentError(
            f"older_than is a day ago or more, got {older_than!r}: files of writes that run now"
            f" would be deleted from {table.name}",
            hint=Wording("remove_orphan_files(older_than=timedelta(days=3))", "--older-than 3d"),
        )


def _milliseconds(table: LoadedTable, moment: datetime | timedelta | str) -> int:
    if isinstance(moment, timedelta):
        if moment < timedelta(0):
            raise InvalidArgumentError(f"an age is not negative, got {moment!r}")
        moment = datetime.now(timezone.utc) - moment
    return time_ms(moment, time_zone(table.spark))


def _time(table: LoadedTable, moment: datetime | timedelta | str) -> str:
    """Return a time or an age as a literal of SQL, to the millisecond."""
    found = _EPOCH + timedelta(milliseconds=_milliseconds(table, moment))
    return f"TIMESTAMP '{found.replace(tzinfo=None).isoformat(' ', 'milliseconds')}Z'"


def sql_map(values: Mapping[str, str]) -> str:
    """Return a map of strings as SQL.

    >>> print(sql_map({"a": "1", "b": "2"}))
    map('a', '1', 'b', '2')
    """
    return f"map({', '.join(sql_string(each) for pair in values.items() for each in pair)})"


def sql_string(value: str) -> str:
    r"""Return a string as a literal of SQL.

    >>> print(sql_string("it's"))
    'it\'s'
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
