"""The commit engine of Iceberg tables: the only module that commits to them.

A change adds its updates to a transaction that was begun on the very metadata that was read, and
the result is committed on exactly that metadata. So whatever a change has checked holds for the
commit, and all parts of it appear together. After a lost race the change is made again on newer
metadata. If the catalog does not answer, the table is looked at.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import uniform
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from delvec.errors import ConflictError, InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import (
    LoadedTable,
    find_table,
    iceberg_view,
    load_table,
    parse_metadata,
    pin_metadata,
    reload_table,
)
from delvec.iceberg.client.content_files import json_arrays
from delvec.iceberg.client.failures import is_commit_state_unknown, translate_errors
from delvec.iceberg.client.metadata import TableMetadata
from delvec.iceberg.client.own_location import require_own_log
from delvec.report.commits import announce
from delvec.spark import jvm

_SEPARATOR: Final = "\0"


def _no_files() -> pa.Array:
    return pa.array([], pa.string())


@dataclass(frozen=True, eq=False)
class RowChange:
    """The files that one snapshot adds and removes, as columns.

    Files to add are JSON objects, see `content_files`. Those to remove, and data files of the table
    that get new deletes, are paths; for a vector in a Puffin file `path@offset`. `summary` has
    additional entries of the snapshot's summary.
    """

    data_files: pa.Array = field(default_factory=_no_files)
    delete_files: pa.Array = field(default_factory=_no_files)
    removed_data: pa.Array = field(default_factory=_no_files)
    removed_deletes: pa.Array = field(default_factory=_no_files)
    data_with_new_deletes: pa.Array = field(default_factory=_no_files)
    summary: Mapping[str, str] = field(default_factory=dict)


def row_delta(
    table: LoadedTable,
    transaction: Any,  # noqa: ANN401
    branch: str,
    head: int | None,
    change: RowChange,
) -> Any:  # noqa: ANN401
    """Return an uncommitted `RowDelta` with the files of a change, validated from a snapshot on.

    `transaction` is Iceberg's own, and `head` the snapshot that the change was computed on, None
    for a table without snapshots; a file to be removed must be in it.
    """
    java, target = row_changes(table.spark), transaction.table()
    specs = target.specs()
    delta = transaction.newRowDelta().toBranch(branch)
    for files in (change.data_files, change.delete_files):
        for array in json_arrays(files):
            java.add(delta, specs, array)
    for remove, names in (
        (java.removeRows, change.removed_data),
        (java.removeDeletes, change.removed_deletes),
    ):
        if not len(names):
            continue
        joined = _SEPARATOR.join(names.to_pylist())
        found = 0 if head is None else remove(delta, target, head, joined)
        _require_found(found, len(names), table)
    if head is not None:
        delta = delta.validateFromSnapshot(head).validateDeletedFiles()
        if len(change.data_with_new_deletes):
            java.requireDataFiles(delta, _SEPARATOR.join(change.data_with_new_deletes.to_pylist()))
    for key, value in change.summary.items():
        delta = delta.set(key, value)
    return delta


def rewrite_deletes(
    table: LoadedTable,
    transaction: Any,  # noqa: ANN401
    branch: str,
    added: Sequence[tuple[str, int]],
    removed: Sequence[str],
    summary: Mapping[str, str],
) -> Any:  # noqa: ANN401
    """Return an uncommitted `RewriteFiles` that replaces delete files; see `commit_rewrite`."""
    java, target = row_changes(table.spark), transaction.table()
    head = table.metadata.refs[branch].snapshot_id
    rewrite = transaction.newRewrite().toBranch(branch).validateFromSnapshot(head)
    for file, sequence_number in added:
        java.addRewritten(rewrite, target.specs(), file, sequence_number)
    found = java.removeRewritten(rewrite, target, head, _SEPARATOR.join(removed))
    _require_found(found, len(removed), table)
    for key, value in summary.items():
        rewrite = rewrite.set(key, value)
    return rewrite


def _require_found(found: int, wanted: int, table: LoadedTable) -> None:
    if found != wanted:
        raise PlanError(
            f"{table.name} has {found} of {wanted} files that are to be removed",
            hint="was the table changed since the plan was made? Make it again",
        )


def row_changes(spark: SparkSession) -> Any:  # noqa: ANN401
    return jvm.load_java(spark, "delvec.iceberg.commit", "RowChanges")


_LOG: Final = logging.getLogger("delvec")
_LONGEST_WAIT: Final = 2.0  # seconds
_COMMITTED: Final = "snapshot %d of %s was committed"
_UNKNOWN: Final = "whether snapshot %d of %s was committed is not known"


@dataclass(frozen=True)
class Committed:
    """The table after a commit, and the snapshot that the change has told of, if any.

    It is None as well if nothing had to be committed.
    """

    table: LoadedTable
    snapshot_id: int | None


@dataclass(frozen=True)
class CreatedTable(LoadedTable):
    """A table that its first commit creates, by `transaction`; `metadata` is how it begins."""

    transaction: Any


@dataclass(frozen=True)
class Transaction:
    """An open transaction, to which a change adds the updates that `handle`, Iceberg's, makes."""

    spark: SparkSession
    handle: Any

    @property
    def current(self) -> Any:  # noqa: ANN401
        """Iceberg's metadata with all updates so far."""
        return self.handle.currentMetadata()

    def add(self, update: Any) -> None:  # noqa: ANN401
        """Add an update that the transaction has made, such as a row delta."""
        update.commit()

    def amend(self, change: Callable[[Any], Any]) -> None:
        """Change the metadata by a builder of Iceberg's, which can do what no update can."""
        operations = self.handle.table().operations()
        base = operations.current()
        builder = iceberg_view(self.spark).TableMetadata.buildFrom(base)
        operations.commit(base, change(builder).build())

    def set_properties(self, properties: Mapping[str, str | None]) -> None:
        """Set table properties, and remove those that are None."""
        values = {key: value for key, value in properties.items() if value is not None}
        gone = properties.keys() - values.keys()
        self.amend(lambda builder: builder.setProperties(values).removeProperties(gone))


def commit(
    table: LoadedTable,
    change: Callable[[LoadedTable, Transaction], int | None],
    *,
    what: str,
    attempts: int = 1,
    is_done: Callable[[LoadedTable], bool] | None = None,
    verify: Callable[[LoadedTable, int], None] | None = None,
    dry_run: bool = False,
) -> Committed:
    """Commit a change on the metadata that was read, so many times at most.

    `change` validates itself on the table that it is given, adds its updates to the transaction,
    or none if there is nothing to do, and returns the id of a new snapshot if callers are to know
    of it. `what` names it in errors. `is_done` tells, before each attempt, that there is nothing
    to commit. `verify` looks at the table as it would be with the new snapshot, and raises if it is
    wrong. With `dry_run` nothing is committed, and the table is returned as it would be; then
    `change` must not write files, such as those of an empty snapshot.

    Others who commit at the same time, again and again, are a `ConflictError`; so are arguments
    that were right until somebody else committed.
    """
    lost: ConflictError | None = None
    for attempt in range(attempts):
        if attempt:
            time.sleep(uniform(0, min(_LONGEST_WAIT, 0.05 * 2**attempt)))
            table = reload_table(table)
        try:
            if is_done is not None and is_done(table):
                return Committed(table, None)
            done = _attempt(table, change, verify, dry_run=dry_run)
        except InvalidArgumentError as error:
            if not attempt:
                raise
            raise _late(error, table, what, attempt + 1) from error
        if isinstance(done, Committed):
            return done
        lost = done
    raise _outrun(lost, table, attempts)


def _attempt(
    table: LoadedTable,
    change: Callable[[LoadedTable, Transaction], int | None],
    verify: Callable[[LoadedTable, int], None] | None,
    *,
    dry_run: bool,
) -> Committed | ConflictError:
    """Make a change and commit it; return the conflict if somebody else was first."""
    require_own_log(table)
    with translate_errors(str(table.name)):
        if isinstance(table, CreatedTable):
            transaction = Transaction(table.spark, table.transaction)
        else:
            base = pin_metadata(table, table.current) if dry_run else table
            transaction = Transaction(table.spark, base.handle.newTransaction())
        lost = _moved(table, transaction)
        if lost is not None:
            return lost
        snapshot_id = change(table, transaction)
        final = transaction.current
        if final.equals(transaction.handle.startMetadata()):
            return Committed(table, None)
    if dry_run:
        return Committed(pin_metadata(table, final), snapshot_id)
    try:
        if verify is not None and snapshot_id is not None:
            verify(pin_metadata(table, final), snapshot_id)
    except Exception:
        _discard(table, transaction)
        raise
    try:
        _publish(table, transaction, snapshot_id)
    except ConflictError as error:
        _discard(table, transaction)
        return error
    _forget(table)
    return Committed(load_table(table.spark, table.name), snapshot_id)


def _moved(table: LoadedTable, transaction: Transaction) -> ConflictError | None:
    """Return the lost race if somebody committed since the table was loaded.

    Most catalogs compare metadata by themselves when it is committed on; REST catalogs do not.
    """
    start = transaction.handle.startMetadata()
    if start is None:  # the table is created
        return None
    before, now = (
        # Some REST catalogs do not tell the location.
        (each.metadataFileLocation(), each.lastUpdatedMillis())
        for each in (table.current, start)
    )
    if before == now:
        return None
    return ConflictError(
        f"somebody else committed to {table.name}: expected {before[0]}, found {now[0]}",
        hint="run it again: it is then planned again",
    )


def _publish(table: LoadedTable, transaction: Transaction, snapshot_id: int | None) -> None:
    """Commit; what became of a snapshot is logged, for a caller that is interrupted."""
    try:
        _put(table, transaction)
        if snapshot_id is not None:
            announce(_COMMITTED, snapshot_id, table.name)
    except KeyboardInterrupt:  # the JVM goes on
        if snapshot_id is not None:
            announce(_UNKNOWN, snapshot_id, table.name)
        raise


def _put(table: LoadedTable, transaction: Transaction) -> None:
    """Commit, and if the catalog does not answer look whether it has happened."""
    final = transaction.current
    try:
        with translate_errors(str(table.name)):
            # Not `commitTransaction`, which would repeat it on top of a concurrent commit.
            transaction.handle.underlyingOps().commit(transaction.handle.startMetadata(), final)
    except Exception as error:
        if not is_commit_state_unknown(error):
            raise
        found, wanted = find_table(table.spark, table.name), parse_metadata(table.spark, final)
        if found is None or not is_applied(table.metadata, wanted, found.metadata):
            raise


def is_applied(before: TableMetadata, wanted: TableMetadata, found: TableMetadata) -> bool:
    """Return whether a commit has happened, be there later ones of others or not.

    Its new snapshots tell. Without any, all is as it wanted it that it changes.
    """
    new = wanted.snapshots.keys() - before.snapshots
    if new:
        return new <= found.snapshots.keys()
    parts = [
        (each.refs, each.properties, each.specs, dict.fromkeys(each.snapshots, True))
        for each in (before, wanted, found)
    ]
    for was, wish, now in zip(*parts, strict=True):
        changed = (key for key in was.keys() | wish.keys() if was.get(key) != wish.get(key))
        if any(now.get(key) != wish.get(key) for key in changed):
            return False
    return True


def _discard(table: LoadedTable, transaction: Transaction) -> None:
    """Delete the manifests of snapshots that were not committed."""
    final, io = transaction.current, transaction.handle.table().io()
    with translate_errors(str(table.name)):
        for snapshot_id in (
            parse_metadata(table.spark, final).snapshots.keys() - table.metadata.snapshots
        ):
            row_changes(table.spark).deleteManifests(io, final.snapshot(snapshot_id))


def _forget(table: LoadedTable) -> None:
    """Let Spark's own reads see the commit, which is done whether Spark can load the table or not.

    It cannot if a column has a type that it does not know, such as `time`.
    """
    try:
        table.spark.catalog.refreshTable(str(table.name))
    except (Py4JError, PySparkException) as error:
        _LOG.warning("Spark cannot load %s, which was committed to: %s", table.name, error)


def _late(
    error: InvalidArgumentError, table: LoadedTable, what: str, attempts: int
) -> ConflictError:
    """Return the conflict of a change that was right until somebody else committed."""
    late = ConflictError(
        f"{what}: somebody else changed {table.name} meanwhile: {error.describe()}",
        retryable=False,
        hint=error.hint,
    )
    late.attempts = attempts
    return late


def _outrun(lost: ConflictError | None, table: LoadedTable, attempts: int) -> ConflictError:
    """Return the conflict of a change that has lost all its races."""
    if lost is None or attempts > 1:
        lost = ConflictError(
            f"others committed to {table.name} at the same time, {attempts} times in a row",
            hint="run it again",
        )
    lost.attempts = attempts
    return lost
