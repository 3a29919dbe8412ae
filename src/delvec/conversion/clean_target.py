"""The public call that cleans the target of conversions."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.clean_report import REMOVED_FILES, CleanReport
from delvec.conversion.cleaning.clean import commit_expiry, delete_files, plan_cleaning
from delvec.conversion.cleaning.expiry import Retention
from delvec.errors import ConflictError, InvalidArgumentError
from delvec.iceberg.client.catalog import table_name
from delvec.report.phases import Stopwatch
from delvec.spark.progress import described

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from delvec.conversion.cleaning.clean import Cleaning

__all__ = ["DAYS_OF_ORPHANS", "clean_target", "retention_of"]

DAYS_OF_ORPHANS: Final = 3
_LEAST_AGE: Final = timedelta(days=1)
_ATTEMPTS: Final = 5


def clean_target(
    spark: SparkSession,
    target: str,
    *,
    older_than: timedelta | datetime | None = None,
    retain_last: int | None = None,
    orphan_age: timedelta = timedelta(days=DAYS_OF_ORPHANS),
    dry_run: bool = False,
) -> CleanReport:
    """Expire snapshots of a converted Iceberg table, and delete files that it alone had.

        delvec.clean_target(spark, "lake.db.orders", older_than=timedelta(days=7), dry_run=True)

    Iceberg's own procedures refuse a target, since they would delete data files of its source.
    This call changes the target's metadata in one commit, and then deletes files in the target's
    own location that no metadata refers to any more: manifests, vectors, position deletes, copied
    data files, old metadata. Files of the source are never touched.

    A snapshot expires if it is older than `older_than` and not among the newest `retain_last` of a
    branch; without both nothing expires. Tags that conversions made (`delta-version-<n>`) expire
    with their snapshots. Always kept: other tags and branches, the current snapshot, the last
    converted one, and what running conversions have staged. Staging branches of conversions that
    died more than a day ago are removed.

    Conversions may run at the same time: files that no metadata refers to are deleted only if they
    are older than `orphan_age`, and the metadata is read again before. After a crash, run it again.

    The location is listed once, about 200 bytes of memory for each file in it; shared data files
    are not among these. Spark reads the manifests of all snapshots twice, once if none expires;
    their entries stay in the JVM. A million shared files so cost the time to read their entries.

    Args:
        spark: The session, with the catalog of the target.
        target: The name of the Iceberg table, `catalog.database.table`.
        older_than: An age, or a point in time.
        retain_last: A number of snapshots.
        orphan_age: The age that files must have if no snapshot ever referred to them; a day or
            more. It must be longer than any conversion takes.
        dry_run: Whether to report only, and change nothing.

    Raises:
        TableNotFoundError: There is no such table.
        PlanError: It is not the target of a conversion, or its location overlaps with its source
            or contains another table.
        ConflictError: Others committed to the target during each of five attempts.
        VerificationError: A REST catalog lost a branch or tag to a commit at the same moment; no
            file was deleted, and the error says how to restore it.
    """
    retention = retention_of(older_than, retain_last, orphan_age)
    name = table_name(spark, target)
    stopwatch = Stopwatch()

    def phase(what: str) -> AbstractContextManager[None]:
        return stopwatch.phase(what, described(spark, f"delvec: {what} cleaning of {name}"))

    attempt = 1
    while True:
        with phase("plan"):
            cleaning = plan_cleaning(spark, name, retention)
        if dry_run:
            return _report(cleaning, cleaning.files, stopwatch.seconds, dry_run=True)
        try:
            with phase("commit"):
                newest = commit_expiry(cleaning)
            break
        except ConflictError as error:
            error.attempts = attempt
            if attempt == _ATTEMPTS:
                raise
            attempt += 1
    with phase("delete"):
        files = delete_files(cleaning, newest)
    return _report(cleaning, files, stopwatch.seconds, dry_run=False)


def retention_of(older_than: object, retain_last: object, orphan_age: object) -> Retention:
    """Validate the arguments of `clean_target`.

    Raises:
        InvalidArgumentError: One of them is of the wrong type or out of range.
    """
    now = time.time()
    limit: float | None = None
    if isinstance(older_than, datetime):
        try:
            limit = older_than.timestamp()
        except (OverflowError, ValueError) as error:
            raise InvalidArgumentError(
                f"older_than is out of range: {older_than!r}",
                hint="give an age, timedelta(days=7), or a time such as datetime(2026, 1, 31)",
            ) from error
    elif isinstance(older_than, timedelta) and older_than >= timedelta(0):
        limit = now - older_than.total_seconds()
    elif older_than is not None:
        raise InvalidArgumentError(
            f"older_than is a timedelta that is not negative or a datetime, got {older_than!r}"
        )
    if isinstance(retain_last, int) and not isinstance(retain_last, bool) and retain_last > 0:
        last: int | None = retain_last
    elif retain_last is None:
        last = None
    else:
        raise InvalidArgumentError(
            f"retain_last is a number of snapshots, 1 or more, got {retain_last!r}"
        )
    if not isinstance(orphan_age, timedelta) or orphan_age < _LEAST_AGE:
        raise InvalidArgumentError(
            f"orphan_age is a timedelta of a day or more, got {orphan_age!r}",
            hint="younger files may belong to a conversion that runs and has not committed yet",
        )
    return Retention(
        _milliseconds(now),
        None if limit is None else _milliseconds(limit),
        last,
        _milliseconds(now - orphan_age.total_seconds()),
    )


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _report(
    cleaning: Cleaning, files: pa.Table, phases: Mapping[str, float], *, dry_run: bool
) -> CleanReport:
    expiry = cleaning.expiry
    root = pa.scalar(cleaning.storage.root.rstrip("/") + "/")
    paths = pc.binary_join_element_wise(root, files["key"], pa.scalar(""))
    columns = [paths, files["kind"], files["reason"], files["bytes"], files["modified_ms"]]
    arrays = [column.cast(each.type) for column, each in zip(columns, REMOVED_FILES, strict=True)]
    return CleanReport(
        target=str(cleaning.table.name),
        dry_run=dry_run,
        snapshots=expiry.snapshot_ids,
        snapshots_kept=len(cleaning.after.metadata.snapshots),
        tags=expiry.tags,
        branches=expiry.branches,
        files=pa.Table.from_arrays(arrays, schema=REMOVED_FILES),
        files_young=cleaning.young,
        files_unknown=cleaning.unknown,
        phases=dict(phases),
        notes=cleaning.notes,
    )
