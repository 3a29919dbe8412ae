"""One snapshot on a branch of an Iceberg table.

Each commit is made on the very metadata that was read, and made again on newer metadata after a
lost race. So a check of that metadata, such as whether a transaction was committed before, holds
for the commit, and the snapshot, its statistics and table properties appear together.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from random import uniform
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from delvec.errors import ConflictError, InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import iceberg_view, load_table
from delvec.iceberg.client.failures import explained, is_commit_state_unknown
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.commits.commit import change_properties
from delvec.iceberg.commits.marks import (
    STAGING_SUMMARY,
    TXN_APP,
    TXN_VERSION,
    is_staging,
    txn_properties,
    txn_property,
)
from delvec.iceberg.commits.row_delta import rewrite_deletes, row_changes, row_delta
from delvec.spark import jvm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import TableMetadata
    from delvec.iceberg.commits.changes import RowChange

__all__ = [
    "Committed",
    "NewStatistics",
    "StatisticsBlob",
    "Txn",
    "commit_change",
    "commit_rewrite",
    "is_committed",
    "require_branch",
    "with_unpartitioned_spec",
]

_APPEND: Final = "append"
_LOG: Final = logging.getLogger("delvec")
_ATTEMPTS: Final = 20
_LONGEST_WAIT: Final = 2.0  # seconds
_NO_SOURCE: Final = -1  # snapshot and sequence number of a blob that holds for any


@dataclass(frozen=True)
class Txn:
    """The version of an application's transaction, such as the number of a streaming batch."""

    app_id: str
    version: int


@dataclass(frozen=True)
class StatisticsBlob:
    """A blob of a statistics file, as table metadata describes it."""

    type: str
    fields: tuple[int, ...]
    properties: Mapping[str, str]


@dataclass(frozen=True)
class NewStatistics:
    """The statistics file of a snapshot to be committed."""

    path: str
    size: int
    footer_size: int
    blobs: tuple[StatisticsBlob, ...]


@dataclass(frozen=True)
class Committed:
    """The table after a commit.

    Attributes:
        snapshot_id: The new snapshot; None if the transaction had been committed before.
    """

    table: LoadedTable
    snapshot_id: int | None


def commit_change(
    table: LoadedTable,
    branch: str,
    change: RowChange,
    *,
    txn: Txn | None = None,
    properties: Mapping[str, str] | None = None,
    statistics: NewStatistics | None = None,
    computed_on: int | None = None,
    needs_staging: bool = False,
) -> Committed:
    """Commit one snapshot onto a branch, which is created from `main` if it does not exist.

    The driver's JVM holds the added files until their manifests are written: 1 to 2 kB each.

    Args:
        table: The table.
        branch: The branch.
        change: Files and entries of the summary.
        txn: Commit nothing if the application has committed this version or a later one.
        properties: Table properties to set in the same commit.
        statistics: The statistics file of the new snapshot.
        computed_on: The snapshot that row positions and removed files were computed on; the commit
            is refused if what came later touches them. Appends and equality deletes need none: they
            are right on top of any snapshot.
        needs_staging: Whether the change is for staging branches of delvec's only.

    Raises:
        ConflictError: Others committed to the table at the same time, again and again, or have
            replaced it.
        PlanError: A file to be removed or to get new deletes is gone.
        CommitStateUnknownError: The commit may have happened or not.
    """

    def snapshot(base: LoadedTable, transaction: Any) -> int:  # noqa: ANN401
        if needs_staging and not is_staging(base.metadata, branch):
            raise ConflictError(
                f"{branch} of {base.name} is no staging branch any more: somebody replaced it",
                hint="run it again",
            )
        if computed_on is not None:
            _require_only_appends(base, branch, computed_on)
        _create_branch(transaction, base.metadata, branch)
        summary = {**change.summary, **_marks(base.metadata, branch, txn)}
        marked = replace(change, summary=summary)
        name = str(base.name)
        row_delta(base.spark, transaction, branch, computed_on, marked, name).commit()
        added: int = transaction.currentMetadata().ref(branch).snapshotId()
        if statistics is not None:
            made = _statistics_file(base.spark, statistics, added)
            transaction.updateStatistics().setStatistics(made).commit()
        wanted = dict(properties or {})
        if txn is not None:
            wanted[txn_property(branch, txn.app_id)] = f"{txn.version}@{added}"
        change_properties(transaction, wanted)
        return added

    return _committed(table, branch, snapshot, txn, _ATTEMPTS)


def commit_rewrite(
    table: LoadedTable,
    branch: str,
    added: Sequence[tuple[str, int]],
    removed: Sequence[str],
    summary: Mapping[str, str],
) -> Committed:
    """Replace delete files of a branch by others that delete the same rows, in one snapshot.

    It is committed on the metadata that was loaded or not at all: which sequence number a merged
    file may have follows from all live data files, so any other commit calls for a new plan.

    Args:
        table: The table that the change was planned on.
        branch: The branch.
        added: JSON objects of delete files, each with the data sequence number that it keeps.
        removed: Paths of delete files.
        summary: Further entries of the snapshot's summary.

    Raises:
        ConflictError: Somebody else has committed to the table since it was loaded.
        CommitStateUnknownError: The commit may have happened or not.
    """

    def snapshot(base: LoadedTable, transaction: Any) -> int:  # noqa: ANN401
        head = base.metadata.refs[branch].snapshot_id
        marks = {**summary, **_marks(base.metadata, branch, None)}
        name = str(base.name)
        rewrite_deletes(base.spark, transaction, branch, head, added, removed, marks, name).commit()
        made: int = transaction.currentMetadata().ref(branch).snapshotId()
        return made

    return _committed(table, branch, snapshot, None, 1)


def with_unpartitioned_spec(table: LoadedTable) -> tuple[LoadedTable, int]:
    """Return a table and the partition spec of its global deletes, which apply to all partitions.

    A partitioned table gets a second spec without fields, once; its default spec stays. (The spec
    of id 0 is no such spec there, it is the partitioned one.)

    Raises:
        ConflictError: Others committed to the table at the same time, again and again.
    """
    found = _unpartitioned(table.metadata)
    if found is not None:
        return table, found

    def spec(base: LoadedTable, transaction: Any) -> None:  # noqa: ANN401
        if _unpartitioned(base.metadata) is None:
            update = transaction.updateSpec()
            for field in base.metadata.spec["fields"]:
                update = update.removeField(field["name"])
            update.addNonDefaultSpec().commit()

    newest = _committed(table, None, spec, None, _ATTEMPTS).table
    added = _unpartitioned(newest.metadata)
    if added is None:
        raise ConflictError(f"{table.name} has lost its unpartitioned spec: somebody removed it")
    return newest, added


def is_committed(metadata: TableMetadata, branch: str, txn: Txn) -> bool:
    """Tell whether an application has committed a version, or a later one, to a branch.

    Snapshots tell, and a table property where they have expired. A commit that was rolled back does
    not count as long as its snapshot is retained. A branch that does not exist is about to be made
    from `main`, and has what `main` has: it may have been published and dropped.
    """
    exists = branch in metadata.refs
    for snapshot in metadata.ancestors(branch if exists else MAIN):
        if snapshot.summary.get(TXN_APP) == txn.app_id:
            return int(snapshot.summary[TXN_VERSION]) >= txn.version
    if not exists:
        return False
    found = metadata.properties.get(txn_property(branch, txn.app_id), "")
    version, _, snapshot_id = found.partition("@")
    return (
        bool(version) and int(version) >= txn.version and int(snapshot_id) not in metadata.snapshots
    )


def require_branch(metadata: TableMetadata, branch: str, table: str) -> None:
    """Refuse the name of a tag.

    Raises:
        InvalidArgumentError: It is one.
    """
    ref = metadata.refs.get(branch)
    if ref is not None and not ref.is_branch:
        raise InvalidArgumentError(
            f"{branch} is a tag of {table}, and tags do not change",
            hint="name a branch",
        )


def _committed(
    table: LoadedTable,
    branch: str | None,
    change: Callable[[LoadedTable, Any], int | None],
    txn: Txn | None,
    attempts: int,
) -> Committed:
    """Commit a change of a transaction on the metadata that was read, so many times at most."""
    spark, name = table.spark, table.name
    for attempt in range(attempts):
        if attempt:
            table = _reloaded(table, attempt)
        if branch is not None:
            require_branch(table.metadata, branch, str(name))
            if txn is not None and is_committed(table.metadata, branch, txn):
                return Committed(table, None)
        with explained(str(name)):
            transaction = table.handle.newTransaction()
            if _moved(table, transaction):
                continue
            snapshot_id = change(table, transaction)
            final = transaction.currentMetadata()
        try:
            with explained(str(name)):
                transaction.underlyingOps().commit(transaction.startMetadata(), final)
        except ConflictError:
            _discard(spark, transaction, snapshot_id)
            continue
        except Exception as error:
            if not is_commit_state_unknown(error):
                raise
            newest = load_table(spark, name)
            if snapshot_id is None or snapshot_id not in newest.metadata.snapshots:
                raise
        _forget(spark, str(name))
        return Committed(load_table(spark, name), snapshot_id)
    raise ConflictError(
        f"others committed to {name} at the same time, {attempts} times in a row",
        hint="run it again",
    )


def _forget(spark: SparkSession, table: str) -> None:
    """Let Spark's own reads see the commit.

    Spark cannot load a table with columns of types that it does not know, such as `time`: it has
    nothing to forget of it then, and the commit is done.
    """
    try:
        spark.catalog.refreshTable(table)
    except (Py4JError, PySparkException) as error:
        _LOG.debug("Spark cannot load %s: %s", table, error)


def _reloaded(table: LoadedTable, attempt: int) -> LoadedTable:
    """Return the table as it is after a lost race."""
    time.sleep(uniform(0, min(_LONGEST_WAIT, 0.05 * 2**attempt)))
    newest = load_table(table.spark, table.name)
    if newest.metadata.uuid != table.metadata.uuid:
        raise ConflictError(
            f"{table.name} was replaced by another table: expected UUID {table.metadata.uuid},"
            f" found {newest.metadata.uuid}",
            hint="open the table anew and run it again",
        )
    return newest


def _moved(table: LoadedTable, transaction: Any) -> bool:  # noqa: ANN401
    """Whether somebody committed between loading the table and beginning the transaction."""
    start = transaction.startMetadata()
    before, now = (
        (each.metadataFileLocation(), each.lastUpdatedMillis()) for each in (table.current, start)
    )
    return bool(before != now)


def _discard(spark: SparkSession, transaction: Any, snapshot_id: int | None) -> None:  # noqa: ANN401
    """Delete the manifests of a commit that lost the race."""
    if snapshot_id is None:
        return
    made = transaction.currentMetadata().snapshot(snapshot_id)
    with explained(str(snapshot_id)):
        row_changes(spark).deleteManifests(transaction.table().io(), made)


def _require_only_appends(table: LoadedTable, branch: str, since: int) -> None:
    """Refuse a change that was computed on a snapshot if its rows may have moved or changed since.

    Iceberg's validations do not see that an update has written a row again that a removed data file
    had, or, in format version 2, a row that gets a position delete.

    Raises:
        PlanError: Other snapshots than appends came since, or the branch was rolled back.
    """
    metadata = table.metadata
    for snapshot in metadata.ancestors(branch if branch in metadata.refs else MAIN):
        if snapshot.id == since:
            return
        if snapshot.operation != _APPEND:
            break
    raise PlanError(
        f"somebody else changed rows of {branch} of {table.name} since snapshot {since}",
        hint="run it again: the rows are then looked for anew",
    )


def _create_branch(transaction: Any, metadata: TableMetadata, branch: str) -> None:  # noqa: ANN401
    if branch == MAIN or branch in metadata.refs:
        return
    # Iceberg would begin a new branch by itself, but count its totals from zero.
    head = metadata.head()
    snapshots = transaction.manageSnapshots()
    made = snapshots.createBranch(branch, head.id) if head else snapshots.createBranch(branch)
    made.commit()
    # Those of a branch of that name that others dropped.
    change_properties(transaction, dict.fromkeys(txn_properties(metadata, branch)))


def _marks(metadata: TableMetadata, branch: str, txn: Txn | None) -> dict[str, str]:
    marks = {} if txn is None else {TXN_APP: txn.app_id, TXN_VERSION: str(txn.version)}
    return {**marks, STAGING_SUMMARY: branch} if is_staging(metadata, branch) else marks


def _unpartitioned(metadata: TableMetadata) -> int | None:
    """Return the id of a spec without fields, or with fields that are void."""
    for spec in (metadata.spec, *metadata.specs.values()):
        if all(field["transform"] == "void" for field in spec["fields"]):
            found: int = spec["spec-id"]
            return found
    return None


def _statistics_file(spark: SparkSession, statistics: NewStatistics, snapshot_id: int) -> Any:  # noqa: ANN401
    view, util = iceberg_view(spark), jvm.view_of(spark).java.util
    blobs = util.ArrayList()
    for blob in statistics.blobs:
        fields, properties = util.ArrayList(), util.HashMap()
        for each in blob.fields:
            fields.add(each)
        for key, value in blob.properties.items():
            properties.put(key, value)
        blobs.add(view.GenericBlobMetadata(blob.type, snapshot_id, _NO_SOURCE, fields, properties))
    return view.GenericStatisticsFile(
        snapshot_id, statistics.path, statistics.size, statistics.footer_size, blobs
    )
