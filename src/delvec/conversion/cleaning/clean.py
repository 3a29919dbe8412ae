"""Cleaning a target: plan on its metadata and a listing, commit the metadata, then delete files.

The metadata is committed first. A crash after that leaves files that nothing refers to, which the
next run finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.cleaning.expiry import Expiry, plan_expiry
from delvec.conversion.cleaning.own_files import (
    COPY,
    METADATA,
    list_own_files,
)
from delvec.conversion.planning.progress import SOURCE, SOURCE_ID
from delvec.conversion.planning.target_refs import is_staging_branch
from delvec.errors import PlanError
from delvec.iceberg.client.catalog import load_table
from delvec.iceberg.client.own_location import metadata_of_others, require_own_location
from delvec.iceberg.client.referenced import referenced_names
from delvec.iceberg.commits.commit import remove, without
from delvec.iceberg.commits.lock_state import is_lock_tag
from delvec.spark.storage import open_storage
from delvec.storage.listed_files import local_path, overlap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from delvec.conversion.cleaning.expiry import Retention
    from delvec.iceberg.client.catalog import LoadedTable, TableName
    from delvec.storage import Storage

__all__ = ["EXPIRED", "ORPHAN", "Cleaning", "commit_expiry", "delete_files", "plan_cleaning"]

EXPIRED: Final = "expired"
ORPHAN: Final = "orphan"
_FILES_AT_ONCE: Final = 1000  # S3 deletes so many in one request


@dataclass(frozen=True, eq=False)
class Cleaning:
    """What is to be removed from a target.

    Attributes:
        table: The target as it was found.
        after: The target without what expires; not committed.
        storage: Its location.
        expiry: What expires.
        files: Files to delete: key, name, kind, bytes, modification time and reason, which is
            `expired` if only expiring snapshots refer to it, or `orphan` if none does.
        young: Files that no metadata refers to and that are too young to be deleted.
        unknown: Files that neither Iceberg nor delvec wrote.
        notes: What users should know, in sentences.
    """

    table: LoadedTable
    after: LoadedTable
    storage: Storage
    expiry: Expiry
    files: pa.Table
    young: int
    unknown: int
    notes: tuple[str, ...]


def plan_cleaning(spark: SparkSession, name: TableName, retention: Retention) -> Cleaning:
    """Plan what is removed; see `delvec.clean_target`. Nothing is written.

    Raises:
        TableNotFoundError: There is no such table.
        PlanError: It is not the target of a conversion, or its location overlaps with its source,
            contains another table or does not have its metadata.
    """
    table = load_table(spark, name)
    _require_target(table)
    storage = open_storage(spark, local_path(require_own_location(table)))
    found = list_own_files(storage)
    # Loaded after the listing: committed metadata files in it are then known as such.
    table = load_table(spark, name)
    expiry = plan_expiry(table.metadata, retention)
    after = table
    if expiry:
        after = without(table, expiry.snapshot_ids, (*expiry.tags, *expiry.branches))
    free = _unreferenced(found.files, table, after)
    is_orphan = pc.equal(free["reason"], ORPHAN)
    is_old = pc.less(free["modified_ms"], retention.orphans_before_ms)
    removed = free.filter(pc.or_(is_old, pc.invert(is_orphan)))
    young = len(free) - len(removed)
    suspects = free.filter(pc.and_(is_orphan, pc.equal(free["kind"].cast(pa.string()), METADATA)))
    others, forks = metadata_of_others(
        storage, suspects["key"].to_pylist(), table.metadata, table.metadata.logged_since_ms
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
    return Cleaning(table, after, storage, expiry, removed, young, found.unknown, tuple(notes))


def commit_expiry(cleaning: Cleaning) -> LoadedTable:
    """Remove what expires from the metadata, in one commit; return the table as it is then.

    Raises:
        ConflictError: Somebody else committed since it was planned.
        VerificationError: Branches or tags were lost, see `remove`.
    """
    if not cleaning.expiry:
        return load_table(cleaning.table.spark, cleaning.table.name)
    after = cleaning.after.metadata
    passing = [
        name for name in after.refs if is_staging_branch(after, name) or is_lock_tag(after, name)
    ]
    return remove(cleaning.table, cleaning.after, passing)


def delete_files(cleaning: Cleaning, newest: LoadedTable) -> pa.Table:
    """Delete the files of a plan that nothing refers to by now; return them.

    Args:
        cleaning: The plan.
        newest: The target after the commit, loaded just now.
    """
    files, metadata = cleaning.files, newest.metadata
    names = files["name"].combine_chunks()
    if metadata.snapshots.keys() == cleaning.after.metadata.snapshots.keys():
        held = pa.array(metadata.file_names, pa.string())  # the same snapshots, the same manifests
    else:
        held = referenced_names(newest, names)
    files = files.filter(pc.invert(pc.is_in(names, value_set=held)))
    for keys in _batches(files):
        cleaning.storage.delete(keys)
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


def _unreferenced(files: pa.Table, table: LoadedTable, after: LoadedTable) -> pa.Table:
    """Return the files that no remaining snapshot refers to, with the reason."""
    names = files["name"].combine_chunks()
    held = referenced_names(after, names)
    free = files.filter(pc.invert(pc.is_in(names, value_set=held)))
    names = free["name"].combine_chunks()
    known = names.slice(0, 0) if after is table else referenced_names(table, names)
    reason = pc.if_else(pc.is_in(names, value_set=known), EXPIRED, ORPHAN)
    return free.append_column("reason", reason)


def _batches(files: pa.Table) -> Iterator[list[str]]:
    """Yield keys in batches."""
    keys = files["key"].to_pylist()
    for start in range(0, len(keys), _FILES_AT_ONCE):
        yield keys[start : start + _FILES_AT_ONCE]
