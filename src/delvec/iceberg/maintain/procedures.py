"""Iceberg's own procedures, called so that nothing of delvec's is lost by them."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from delvec.errors import InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import iceberg_view, load_table
from delvec.iceberg.client.failures import explained
from delvec.iceberg.client.named_snapshots import time_ms
from delvec.iceberg.client.own_location import (
    require_own_folder,
    require_own_log,
    shown,
    sorted_out,
)
from delvec.iceberg.commits.refs import keep_staging_marks
from delvec.iceberg.maintain.reports import ExpireReport, OrphanReport
from delvec.identifiers import quote
from delvec.report.phases import Stopwatch
from delvec.report.wordings import Wording
from delvec.spark import jvm
from delvec.spark.conf import time_zone
from delvec.spark.progress import described
from delvec.spark.storage import open_storage
from delvec.storage.listed_files import local_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
_STATISTICS: Final = "Statistics Files"  # a kind of files, as Iceberg's action names it
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def expire_snapshots(
    table: LoadedTable,
    older_than: datetime | timedelta | str | None = None,
    retain_last: int | None = None,
    *,
    location: str | None = None,
    dry_run: bool = False,
) -> ExpireReport:
    """Expire snapshots by Iceberg's action, and delete files that only they had.

    Files are deleted in the table's own location only, see `require_own_folder`; others are named.

    Heads of branches and tagged snapshots stay. Before, each staging branch of delvec's whose
    newest snapshot is not delvec's gets an empty one, since its mark would expire with the older
    ones. Transactions of applications are known by table properties as well, which stay.

    Args:
        table: The table.
        older_than: A time, or an age; by default what the table's properties say, 5 days.
        retain_last: How many of the newest snapshots of each branch to keep in any case; by default
            what the table's properties say, 1.
        location: The folder to delete files in; by default the table's own.
        dry_run: Whether to report only how many snapshots would expire; which files go with them
            is not computed.

    Raises:
        InvalidArgumentError: A value is of the wrong type or out of range.
        PlanError: The table's properties forbid to delete its files, or its location is not its
            own.
    """
    if retain_last is not None and retain_last < 1:
        raise InvalidArgumentError(f"retain_last is 1 or more, got {retain_last}")
    moment = None if older_than is None else _milliseconds(table, older_than)
    require_own_files(table)
    folder = require_own_folder(table, location)
    if dry_run:
        return _expiring(table, moment, retain_last)
    stopwatch = Stopwatch()
    with stopwatch.phase("keep marks"):
        before = keep_staging_marks(table).metadata
    with stopwatch.phase("expire"):
        expired = _expired(load_table(table.spark, table.name), moment, retain_last)
    newest = load_table(table.spark, table.name)
    with stopwatch.phase("delete"):
        found = sorted_out(newest, folder, expired)
        _delete(newest, folder, found.own)
    after, deleted = newest.metadata, Counter(expired[path] for path in found.own)
    notes = []
    if found.refused:
        notes.append(
            f"Not deleted, since they are not in {folder} or are another table's:"
            f" {shown(found.refused)}. If they are this table's own, remove_orphan_files of their"
            " folder, by location, deletes them."
        )
    if deleted[_STATISTICS]:
        notes.append(
            "Statistics files of expired snapshots are deleted with them. Equality delete vectors"
            " in these only made reads faster: the delete files that they are copies of stay."
        )
    return ExpireReport(
        str(table.name),
        len(before.snapshots.keys() - after.snapshots),
        len(after.snapshots),
        tuple(sorted(before.refs.keys() - after.refs)),
        data_files=deleted["DATA"],
        position_delete_files=deleted["POSITION_DELETES"],
        equality_delete_files=deleted["EQUALITY_DELETES"],
        manifests=deleted["Manifest"],
        manifest_lists=deleted["Manifest List"],
        statistics_files=deleted[_STATISTICS],
        phases=stopwatch.seconds,
        notes=tuple(notes),
        refused=found.refused,
    )


def _expired(
    table: LoadedTable, older_than_ms: int | None, retain_last: int | None
) -> dict[str, str]:
    """Expire snapshots from the metadata; return the files that only they had, with their kinds."""
    spark, name = table.spark, str(table.name)
    require_own_log(table)
    actions = iceberg_view(spark).spark.actions.SparkActions.get(jvm.session_of(spark))
    with explained(name), described(spark, f"delvec: expire_snapshots of {name}"):
        action = _limited(actions.expireSnapshots(table.handle), older_than_ms, retain_last)
        files = DataFrame(action.expireFiles().toDF(), spark).select("path", "type").toArrow()
        spark.catalog.refreshTable(name)
    return dict(zip(*(column.to_pylist() for column in files.columns), strict=True))


def _limited(plan: Any, older_than_ms: int | None, retain_last: int | None) -> Any:  # noqa: ANN401
    if older_than_ms is not None:
        plan = plan.expireOlderThan(older_than_ms)
    return plan if retain_last is None else plan.retainLast(int(retain_last))


def _delete(table: LoadedTable, folder: str, paths: Sequence[str]) -> None:
    """Delete files of a folder; those that are gone are no error.

    On a local disk through no link, also if one was put since the files were told apart. In a store
    as the procedures do: in bulk where it can, by the credentials of the catalog.
    """
    root = f"{local_path(folder).rstrip('/')}/"
    if "://" not in root and all(local_path(path).startswith(root) for path in paths):
        storage = open_storage(table.spark, root)
        storage.delete([local_path(path)[len(root) :] for path in paths])
    elif paths:
        view = iceberg_view(table.spark)
        with explained(str(table.name)):
            split = view.relocated.com.google.common.base.Splitter.on("\0")
            files = split.splitToList("\0".join(paths))  # a call for all
            view.CatalogUtil.deleteFiles(table.handle.io(), files, "own", True)


def _expiring(
    table: LoadedTable, older_than_ms: int | None, retain_last: int | None
) -> ExpireReport:
    """Let Iceberg plan an expiry, and commit nothing."""
    with explained(str(table.name)):
        plan = _limited(table.handle.expireSnapshots(), older_than_ms, retain_last)
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
    """Delete files that no snapshot refers to, as Iceberg's `remove_orphan_files` finds them.

    They are listed first, and deleted if the folder is the table's own, see `require_own_folder`.
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
        PlanError: The table's properties forbid to delete its files, or its location is not its
            own.
    """
    arguments = {"prefix_mismatch_mode": sql_string("ERROR"), "dry_run": "true"}
    if older_than is not None:
        _require_a_day(table, older_than)
        arguments["older_than"] = _time(table, older_than)
    if location is not None:
        arguments["location"] = sql_string(location)
    require_own_files(table)
    stopwatch = Stopwatch()
    with stopwatch.phase("look for"):
        folder = require_own_folder(table, location)
        rows = called(table, "remove_orphan_files", arguments)
        found = sorted_out(table, folder, (row["orphan_file_location"] for row in rows))
        if found.inner:
            raise PlanError(
                f"there are other tables inside {folder}: {shown(found.inner)}; nothing was"
                f" deleted, since their files cannot be told from those of {table.name}",
                hint=Wording("name a folder without them: location=...", "--location URI"),
            )
    if not dry_run:
        with stopwatch.phase("remove"):
            _delete(table, folder, found.own)
    return OrphanReport(str(table.name), found.own, dry_run, stopwatch.seconds, found.refused)


def called(table: LoadedTable, procedure: str, arguments: Mapping[str, str]) -> list[Row]:
    """Call a procedure of a table's catalog; arguments are SQL."""
    spark, name = table.spark, table.name
    require_own_log(table)
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
