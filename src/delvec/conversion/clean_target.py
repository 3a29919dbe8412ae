"""Cleaning a target: plan on its metadata and a listing, commit the metadata, then delete files.

The metadata is committed first. A crash after that leaves files that nothing refers to, which the
next run finds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from delvec.conversion.expiry import COPY, METADATA, Expiry, Retention, list_own_files, plan_expiry
from delvec.conversion.planning.target_layout import SOURCE, SOURCE_ID, is_staging_branch
from delvec.documents import time_ms
from delvec.errors import ConflictError, InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import LoadedTable, TableName, load_table, table_name
from delvec.iceberg.client.files import referenced_names
from delvec.iceberg.client.own_location import first_bytes, metadata_of_others, require_own_location
from delvec.iceberg.commit.lock_state import is_lock_tag
from delvec.iceberg.commit.refs import remove
from delvec.report.format import format_count, format_size, nonzero
from delvec.report.rendering import OperationReport, Stopwatch, doc, documented, required
from delvec.spark.engine import open_storage, time_zone
from delvec.spark.jobs import describe_jobs
from delvec.storage import Storage
from delvec.storage.listed_files import local_path, overlap

EXPIRED: Final = "expired"
ORPHAN: Final = "orphan"
_FILES_AT_ONCE: Final = 1000  # S3 deletes so many in one request
REMOVED_FILES: Final = pa.schema(
    {
        "path": pa.string(),
        "kind": pa.string(),
        "reason": pa.string(),
        "bytes": pa.int64(),
        "modified": pa.timestamp("ms", "UTC"),
    }
)
DAYS_OF_ORPHANS: Final = 3
_LEAST_AGE: Final = timedelta(days=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_ATTEMPTS: Final = 5


@documented(eq=False)
class Cleaning:
    """What is to be removed from a target."""

    table: LoadedTable = required("The target as it was found.")
    after: LoadedTable = required("The target without what expires; not committed.")
    storage: Storage = required("Its location.")
    expiry: Expiry = required("What expires.")
    files: pa.Table = required(
        "Files to delete: key, name, kind, bytes, modification time and reason, which is"
        " `expired` if only expiring snapshots refer to it, or `orphan` if none does."
    )
    report: CleanReport = required("The report, without these files.")


def plan_cleaning(spark: SparkSession, name: TableName, retention: Retention) -> Cleaning:
    """Plan what is removed; see `delvec.clean_target`. Nothing is written."""
    table = load_table(spark, name)
    _require_target(table)
    storage = open_storage(spark, local_path(require_own_location(table)))
    found = list_own_files(storage)
    # Loaded after the listing: committed metadata files in it are then known as such.
    table = load_table(spark, name)
    expiry = plan_expiry(table.metadata, retention)
    after = table
    if expiry:
        after = remove(table, expiry.snapshot_ids, expiry.refs, dry_run=True)
    names = found.files["name"].combine_chunks()
    held = referenced_names(after, names)
    free = found.files.filter(pc.invert(pc.is_in(names, value_set=held)))
    names = free["name"].combine_chunks()
    known = names.slice(0, 0) if after is table else referenced_names(table, names)
    reason = pc.if_else(pc.is_in(names, value_set=known), EXPIRED, ORPHAN)
    free = free.append_column("reason", reason)
    is_orphan = pc.equal(free["reason"], ORPHAN)
    is_old = pc.less(free["modified_ms"], retention.orphans_before_ms)
    removed = free.filter(pc.or_(is_old, pc.invert(is_orphan)))
    young = len(free) - len(removed)
    suspects = free.filter(pc.and_(is_orphan, pc.equal(free["kind"].cast(pa.string()), METADATA)))
    others, forks = metadata_of_others(
        partial(first_bytes, storage),
        suspects["key"].to_pylist(),
        table.metadata,
        table.metadata.logged_since_ms,
    )
    notes = []
    if forks:
        removed = removed.slice(0, 0)
        notes.append(
            f"{storage.root} has newer metadata of {name} that its catalog does not know, such as"
            f" {forks[0]}: no file is deleted, since another catalog's entry of the table may need"
            " it. If a commit crashed there, remove these files first"
        )
    if others:
        # Early copies have no random name: the other table may have the same.
        early = pc.and_(
            pc.equal(removed["kind"].cast(pa.string()), COPY),
            pc.invert(pc.match_substring(removed["name"], "-")),
        )
        removed = removed.filter(pc.and_not(pc.equal(removed["reason"], EXPIRED), early))
        notes.append(
            f"{storage.root} has metadata of another table, such as {others[0]}: no orphan is"
            " deleted, since that table may need it. If it was dropped, remove these files first"
        )
    if table.metadata.properties.get("gc.enabled") != "false":
        notes.append(
            f"gc.enabled of {name} is not false: Iceberg's own procedures would delete data files"
            " of the source. The next conversion sets it"
        )
    report = CleanReport(
        str(name),
        snapshots=expiry.snapshot_ids,
        snapshots_kept=len(after.metadata.snapshots),
        tags=expiry.tags,
        branches=expiry.branches,
        files_young=young,
        files_unknown=found.unknown,
        notes=tuple(notes),
    )
    return Cleaning(table, after, storage, expiry, removed, report)


def commit_expiry(cleaning: Cleaning) -> LoadedTable:
    """Remove what expires from the metadata, in one commit; return the table as it is then."""
    table, expiry, after = cleaning.table, cleaning.expiry, cleaning.after.metadata
    if not expiry:
        return load_table(table.spark, table.name)
    passing = [
        name for name in after.refs if is_staging_branch(after, name) or is_lock_tag(after, name)
    ]
    return remove(table, expiry.snapshot_ids, expiry.refs, passing=passing)


def delete_files(cleaning: Cleaning, newest: LoadedTable) -> pa.Table:
    """Delete the files of a plan that nothing refers to by now; return them."""
    files, metadata = cleaning.files, newest.metadata
    names = files["name"].combine_chunks()
    if metadata.snapshots.keys() == cleaning.after.metadata.snapshots.keys():
        held = pa.array(metadata.file_names, pa.string())  # the same snapshots, the same manifests
    else:
        held = referenced_names(newest, names)
    files = files.filter(pc.invert(pc.is_in(names, value_set=held)))
    keys = files["key"].to_pylist()
    for start in range(0, len(keys), _FILES_AT_ONCE):
        cleaning.storage.delete(keys[start : start + _FILES_AT_ONCE])
    return files


def _require_target(table: LoadedTable) -> None:
    """Refuse a table that is not a target, or whose source may have files in its location."""
    metadata, name = table.metadata, table.name
    if SOURCE_ID not in metadata.properties:
        raise PlanError(
            f"{name} was not made by a conversion",
            hint=f"use Iceberg's own procedures: CALL {name.catalog}.system.expire_snapshots and"
            f" CALL {name.catalog}.system.remove_orphan_files",
        )
    for source in {each.summary.get(SOURCE) for each in metadata.snapshots.values()}:
        if source is not None and overlap(metadata.location, source):
            raise PlanError(
                f"{name} is at {metadata.location}, which overlaps with its source {source}",
                hint="nothing was changed: files of the two cannot be told from each other",
            )


@documented(eq=False)
class CleanReport(OperationReport):
    """What cleaning removed from a target, or would remove.

    Prints as a summary, also on terminals and in notebooks.

    >>> print(CleanReport("ice.db.orders", snapshots=(7, 8), snapshots_kept=3, dry_run=True))
    ice.db.orders: 2 snapshots would expire; nothing was changed
      snapshots  2 expire, 3 are kept
    """

    target: str = required("The Iceberg table.")
    dry_run: bool = doc("Whether nothing was changed.", False)
    snapshots: tuple[int, ...] = doc("The ids of expired snapshots, oldest first.", ())
    snapshots_kept: int = doc("How many snapshots the target still has.", 0)
    tags: tuple[str, ...] = doc("Tags of versions that were removed with their snapshots.", ())
    branches: tuple[str, ...] = doc("Staging branches of dead conversions that were removed.", ())
    files: pa.Table = doc(
        "A row for each deleted file: path, kind, reason (`expired` with its snapshots, or"
        " `orphan`), bytes and modification time.",
        REMOVED_FILES.empty_table,
    )
    files_young: int = doc("Files without a reference that are younger than the orphan age.", 0)
    files_unknown: int = doc("Files that neither Iceberg nor delvec wrote; never deleted.", 0)

    @property
    def bytes_deleted(self) -> int:
        """The size of all deleted files."""
        return int(pc.sum(self.files["bytes"], min_count=0).as_py())

    def count(self, reason: str) -> int:
        """Return how many files were deleted as `expired` or as `orphan`."""
        return int(pc.sum(pc.equal(self.files["reason"], reason), min_count=0).as_py())

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs, with the number of files instead of the files."""
        found = super().to_json()
        del found["files"]
        return {
            **found,
            "files_expired": self.count("expired"),
            "files_orphaned": self.count("orphan"),
            "bytes_deleted": self.bytes_deleted,
        }

    def _headline(self) -> str:
        parts = []
        if self.snapshots:
            verb = "would expire" if self.dry_run else "expired"
            parts.append(f"{format_count(len(self.snapshots), 'snapshot')} {verb}")
        if files := nonzero(len(self.files), "file"):
            verb = "would be" if self.dry_run else "were"
            parts.append(f"{files} ({format_size(self.bytes_deleted)}) {verb} deleted")
        end = "; nothing was changed" if self.dry_run else ""
        return f"{self.target}: {', '.join(parts) or 'nothing to remove'}{end}"

    def _facts(self) -> dict[str, str]:
        expire = f"{len(self.snapshots):,} expire, " if self.snapshots else ""
        left = {
            "younger than the orphan age": self.files_young,
            "of unknown origin": self.files_unknown,
        }
        left_files = (f"{format_count(n, 'file')} {what}" for what, n in left.items() if n)
        return {
            "snapshots": f"{expire}{self.snapshots_kept:,} are kept",
            "tags": _names(self.tags),
            "branches": _names(self.branches),
            "expired": self._kinds("expired"),
            "orphans": self._kinds("orphan"),
            "left": ", ".join(left_files),
        }

    def _kinds(self, reason: str) -> str:
        """Return how many files of each kind there are, most first."""
        kinds = self.files.filter(pc.equal(self.files["reason"], reason))["kind"]
        found = pc.value_counts(kinds).to_pylist()
        counts = sorted(((each["counts"], each["values"]) for each in found), reverse=True)
        return ", ".join(format_count(*each) for each in counts)


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"{len(names):,}: {', '.join(names[:3])}{more}" if names else ""


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
        older_than: An age, or a point in time; without a zone in the session's zone.
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
    retention = retention_of(older_than, retain_last, orphan_age, time_zone(spark))
    name = table_name(spark, target)
    stopwatch = Stopwatch()

    def phase(what: str) -> AbstractContextManager[None]:
        return stopwatch.phase(what, describe_jobs(spark, f"delvec: {what} cleaning of {name}"))

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


def retention_of(
    older_than: object, retain_last: object, orphan_age: object, time_zone: str = "UTC"
) -> Retention:
    now = int(time.time() * 1000)
    limit: int | None = None
    if isinstance(older_than, datetime):
        limit = time_ms(older_than, time_zone)
    elif isinstance(older_than, timedelta) and older_than >= timedelta(0):
        limit = now - older_than // _MILLISECOND
    elif older_than is not None:
        raise InvalidArgumentError(
            f"older_than is a timedelta that is not negative or a datetime, got {older_than!r}"
        )
    if retain_last is not None and (
        not isinstance(retain_last, int) or isinstance(retain_last, bool) or retain_last < 1
    ):
        raise InvalidArgumentError(
            f"retain_last is a number of snapshots, 1 or more, got {retain_last!r}"
        )
    if not isinstance(orphan_age, timedelta) or orphan_age < _LEAST_AGE:
        raise InvalidArgumentError(
            f"orphan_age is a timedelta of a day or more, got {orphan_age!r}",
            hint="younger files may belong to a conversion that runs and has not committed yet",
        )
    return Retention(now, limit, retain_last, now - orphan_age // _MILLISECOND)


def _report(
    cleaning: Cleaning, files: pa.Table, phases: Mapping[str, float], *, dry_run: bool
) -> CleanReport:
    root = pa.scalar(cleaning.storage.root.rstrip("/") + "/")
    paths = pc.binary_join_element_wise(root, files["key"], pa.scalar(""))
    columns = [paths, files["kind"], files["reason"], files["bytes"], files["modified_ms"]]
    arrays = [column.cast(each.type) for column, each in zip(columns, REMOVED_FILES, strict=True)]
    removed = pa.Table.from_arrays(arrays, schema=REMOVED_FILES)
    return replace(cleaning.report, dry_run=dry_run, files=removed, phases=dict(phases))
