"""Iceberg's own procedures, called so that no mark of delvec's and no file of others is lost."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame, Row

from delvec.documents import shown_time, time_ms
from delvec.errors import InvalidArgumentError, PlanError
from delvec.iceberg.client import own_location
from delvec.iceberg.client.catalog import LoadedTable, iceberg_view, load_table
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.own_location import is_on_disk
from delvec.iceberg.commit.refs import keep_staging_marks
from delvec.identifiers import quote, sql_string
from delvec.report.format import format_count, format_list
from delvec.report.hints import Wording
from delvec.report.rendering import (
    Line,
    OperationReport,
    Rendered,
    Stopwatch,
    doc,
    documented,
    required,
    summary,
)
from delvec.spark import jvm
from delvec.spark.engine import open_storage, time_zone
from delvec.spark.jobs import describe_jobs
from delvec.storage.listed_files import local_path

_SHOWN: Final = 10
_DAY: Final = timedelta(days=1)
_STATISTICS: Final = "Statistics Files"  # a kind of files, as Iceberg's action names it


@documented()
class ExpireReport(OperationReport):
    """What the expiry of snapshots removed.

    >>> print(ExpireReport("lake.db.orders", snapshots=12, snapshots_left=3, data_files=4))
    EXPIRE SNAPSHOTS of lake.db.orders: 12 snapshots expired, 3 left
      deleted files  4 of data
    """

    table: str = required("The name of the table.")
    snapshots: int = doc("Snapshots that expired.", 0)
    snapshots_left: int = doc("Snapshots that are left.", 0)
    refs: tuple[str, ...] = doc("Branches and tags that expired by their own settings.", ())
    data_files: int = doc("Data files that were deleted.", 0)
    position_delete_files: int = doc("Position delete files, and Puffin files of vectors.", 0)
    equality_delete_files: int = doc("Equality delete files and equality delete vectors.", 0)
    manifests: int = doc("Manifests.", 0)
    manifest_lists: int = doc("Manifest lists.", 0)
    statistics_files: int = doc("Statistics files, those with equality delete vectors too.", 0)
    dry_run: bool = doc("Whether nothing was removed: only the snapshots are counted.", False)
    refused: tuple[str, ...] = doc(
        "Files that were not deleted, since they are outside the table's location.", ()
    )

    def _headline(self) -> str:
        expired = format_count(self.snapshots, "snapshot") + " would be" * self.dry_run
        return f"EXPIRE SNAPSHOTS of {self.table}: {expired} expired, {self.snapshots_left:,} left"

    def _facts(self) -> dict[str, str]:
        files = {
            "of data": self.data_files,
            "of position deletes": self.position_delete_files,
            "of equality deletes": self.equality_delete_files,
            "of statistics": self.statistics_files,
        }
        metadata = {"manifests": self.manifests, "manifest lists": self.manifest_lists}
        return {
            "refs expired": ", ".join(self.refs),
            "deleted files": format_list(**files),
            "metadata": format_list(**metadata),
        }


@documented()
class OrphanReport(Rendered):
    """Files in a table's location that no snapshot refers to.

    >>> print(OrphanReport("lake.db.orders", ("/lake/orders/data/x.parquet",), dry_run=True))
    REMOVE ORPHAN FILES of lake.db.orders: 1 file would be deleted
      /lake/orders/data/x.parquet
    """

    table: str = required("The name of the table.")
    files: tuple[str, ...] = doc("Their paths, sorted.", ())
    dry_run: bool = doc("Whether they were only looked for.", False)
    phases: Mapping[str, float] = doc("Seconds by phase.", dict)
    refused: tuple[str, ...] = doc(
        "Files that were not deleted: they are another table's, or links lead to them.", ()
    )

    def _lines(self) -> Iterator[Line]:
        done = "would be deleted" if self.dry_run else "deleted"
        shown = list(self.files[:_SHOWN])
        if left := len(self.files) - len(shown):
            shown.append(f"… and {left:,} more")
        return summary(
            f"REMOVE ORPHAN FILES of {self.table}: {format_count(len(self.files), 'file')} {done}",
            {"not deleted": ", ".join(self.refused[:_SHOWN])},
            self.phases,
            details=shown,
        )


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
    """
    if retain_last is not None and retain_last < 1:
        raise InvalidArgumentError(f"retain_last is 1 or more, got {retain_last}")
    moment = None if older_than is None else _milliseconds(table, older_than)
    require_own_files(table)
    folder = own_location.require_own_folder(table, location)
    if dry_run:
        with translate_errors(str(table.name)):
            plan = _limited(table.handle.expireSnapshots(), moment, retain_last)
            count = plan.apply().size()
        left = len(table.metadata.snapshots) - count
        return ExpireReport(str(table.name), count, left, dry_run=True)
    stopwatch = Stopwatch()
    with stopwatch.phase("keep marks"):
        before = keep_staging_marks(table).metadata
    with stopwatch.phase("expire"):
        expired = _expired(load_table(table.spark, table.name), moment, retain_last)
    newest = load_table(table.spark, table.name)
    with stopwatch.phase("delete"):
        found = own_location.sorted_out(newest, folder, expired)
        _delete(newest, folder, found.own)
    after, deleted = newest.metadata, Counter(expired[path] for path in found.own)
    notes = []
    if found.refused:
        notes.append(
            f"Not deleted, since they are not in {folder} or are another table's:"
            f" {own_location.shown(found.refused)}. If they are this table's own,"
            " remove_orphan_files of their folder, by location, deletes them."
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
    """
    arguments = {"prefix_mismatch_mode": sql_string("ERROR"), "dry_run": "true"}
    if older_than is not None:
        moment = _milliseconds(table, older_than)
        if time.time() * 1000 - moment < _DAY / timedelta(milliseconds=1):
            raise InvalidArgumentError(
                f"older_than is a day ago or more, got {older_than!r}: files of writes that run now"
                f" would be deleted from {table.name}",
                hint=Wording(
                    "remove_orphan_files(older_than=timedelta(days=3))", "--older-than 3d"
                ),
            )
        arguments["older_than"] = f"TIMESTAMP '{shown_time(moment)}'"
    if location is not None:
        arguments["location"] = sql_string(location)
    require_own_files(table)
    stopwatch = Stopwatch()
    with stopwatch.phase("look for"):
        folder = own_location.require_own_folder(table, location)
        rows = call_procedure(table, "remove_orphan_files", arguments)
        orphans = (row["orphan_file_location"] for row in rows)
        found = own_location.sorted_out(table, folder, orphans)
        if found.inner:
            raise PlanError(
                f"there are other tables inside {folder}: {own_location.shown(found.inner)};"
                " nothing was deleted, since their files cannot be told from those of"
                f" {table.name}",
                hint=Wording("name a folder without them: location=...", "--location URI"),
            )
    if not dry_run:
        with stopwatch.phase("remove"):
            _delete(table, folder, found.own)
    return OrphanReport(str(table.name), found.own, dry_run, stopwatch.seconds, found.refused)


def call_procedure(table: LoadedTable, procedure: str, arguments: Mapping[str, str]) -> list[Row]:
    spark, name = table.spark, table.name
    own_location.require_own_log(table)
    given = {"table": sql_string(str(name)), **arguments}
    listed = ", ".join(f"{key} => {value}" for key, value in given.items())
    with translate_errors(str(name)), describe_jobs(spark, f"delvec: {procedure} of {name}"):
        spark.catalog.refreshTable(str(name))
        return spark.sql(f"CALL {quote(name.catalog)}.system.{procedure}({listed})").collect()


def require_own_files(table: LoadedTable) -> None:
    """Refuse a table whose files may be those of others."""
    if table.metadata.properties.get("gc.enabled", "true").lower() == "false":
        raise PlanError(
            f"{table.name} has gc.enabled=false: its files may be those of other tables",
            hint="clean the target of a conversion by delvec.clean_target",
        )


def sql_map(values: Mapping[str, str]) -> str:
    """Return a map of strings as SQL.

    >>> print(sql_map({"a": "1", "b": "2"}))
    map('a', '1', 'b', '2')
    """
    return f"map({', '.join(sql_string(each) for pair in values.items() for each in pair)})"


def _expired(
    table: LoadedTable, older_than_ms: int | None, retain_last: int | None
) -> dict[str, str]:
    """Expire snapshots from the metadata; return the files that only they had, with their kinds."""
    spark, name = table.spark, str(table.name)
    own_location.require_own_log(table)
    actions = iceberg_view(spark).spark.actions.SparkActions.get(jvm.session_of(spark))
    with translate_errors(name), describe_jobs(spark, f"delvec: expire_snapshots of {name}"):
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
    if is_on_disk(table, folder) and all(local_path(path).startswith(root) for path in paths):
        storage = open_storage(table.spark, root)
        storage.delete([local_path(path)[len(root) :] for path in paths])
    elif paths:
        view = iceberg_view(table.spark)
        with translate_errors(str(table.name)):
            split = view.relocated.com.google.common.base.Splitter.on("\0")
            files = split.splitToList("\0".join(paths))  # a call for all
            view.CatalogUtil.deleteFiles(table.handle.io(), files, "own", True)


def _milliseconds(table: LoadedTable, moment: datetime | timedelta | str) -> int:
    if isinstance(moment, timedelta):
        if moment < timedelta(0):
            raise InvalidArgumentError(f"an age is not negative, got {moment!r}")
        return max(0, int(time.time() * 1000) - moment // timedelta(milliseconds=1))
    return time_ms(moment, time_zone(table.spark))
