"""Writing rows and deletes by key to a branch of an Iceberg table, in one commit each.

A delete by key names no rows: it applies to all rows with the key in data files of lower sequence
numbers, whoever wrote them, so nothing is read and any other commit may come in between. The rows
of an upsert are of the same commit as the deletes of their keys, and are not deleted by them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import (
    ConflictError,
    InvalidArgumentError,
    PlanError,
    UnsupportedFeatureError,
)
from delvec.iceberg.client.chosen_files import write_data_files
from delvec.iceberg.client.failures import explained
from delvec.iceberg.commits.branch_commit import commit_change, is_committed, require_branch
from delvec.iceberg.commits.changes import RowChange
from delvec.iceberg.commits.marks import is_staging
from delvec.iceberg.deletes.change_batch import change_batch
from delvec.iceberg.deletes.dry_runs import try_append, try_delete, try_upsert
from delvec.iceberg.deletes.key_columns import key_columns
from delvec.iceberg.deletes.report import KeyDeleteReport
from delvec.iceberg.deletes.scopes import scope_of
from delvec.iceberg.deletes.writable import require_writable
from delvec.iceberg.deletes.write_deletes import write_deletes
from delvec.report.phases import Stopwatch
from delvec.spark.interrupts import interruptible
from delvec.spark.progress import described
from delvec.spark.storage import open_storage
from delvec.storage.listed_files import local_path
from delvec.storage.uncommitted import UncommittedFiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.commits.branch_commit import Committed, Txn
    from delvec.iceberg.deletes.key_columns import KeyColumn
    from delvec.iceberg.deletes.write_deletes import Scope, WrittenDeletes

__all__ = ["append_rows", "delete_keys", "upsert_rows"]

_DELETES_SINCE: Final = 2  # the format version


def append_rows(
    table: LoadedTable,
    rows: DataFrame,
    *,
    branch: str,
    txn: Txn | None = None,
    dry_run: bool = False,
) -> KeyDeleteReport:
    """Append rows to a branch; columns are matched by name.

    Raises:
        CommitStateUnknownError: The commit may have happened or not.
    """
    start = KeyDeleteReport("APPEND", str(table.name), branch)
    if _is_done(table, branch, txn):
        return replace(start, replayed=True)
    if dry_run:
        return try_append(start, table, rows)
    watch = Stopwatch()
    with interruptible(table.spark), _uncommitted(table) as uncommitted:
        data = _write_rows(table, rows, watch)
        done = _commit(table, branch, _Change(data=data), uncommitted, txn, watch)
    return _reported(start, done, watch, data=data)


def delete_keys(
    table: LoadedTable,
    keys: Any,  # noqa: ANN401
    columns: Sequence[str],
    *,
    branch: str,
    partition: Mapping[str, object] | None = None,
    txn: Txn | None = None,
    dry_run: bool = False,
) -> KeyDeleteReport:
    """Delete all rows that have one of some keys.

    No data file is read. Memory of the driver grows with the keys, see `keys`; those of a large
    DataFrame stay with the executors.

    Args:
        table: The table.
        keys: The keys: a list, range, numpy array, Arrow or pandas data, or a DataFrame.
        columns: The columns of the key.
        branch: The branch.
        partition: The partition to delete from, all by default.
        txn: Write nothing if this transaction was committed before.
        dry_run: Write nothing at all, and count the keys.

    Raises:
        InvalidArgumentError: A key or a column is not usable.
        UnsupportedFeatureError: The table is of format version 1.
        CommitStateUnknownError: The commit may have happened or not.
    """
    wanted = _key_columns(table, columns)
    start = KeyDeleteReport("DELETE KEYS", str(table.name), branch)
    if _is_done(table, branch, txn):
        return replace(start, replayed=True)
    if dry_run:
        if partition is not None:  # for all of them it may add a partition spec
            scope_of(table, branch, partition)
        return try_delete(start, keys, wanted)
    watch = Stopwatch()
    table, scope = scope_of(table, branch, partition)
    with interruptible(table.spark), _uncommitted(table) as uncommitted:
        deletes = _write_deletes(table, branch, keys, wanted, scope, uncommitted, watch)
        if not deletes.keys:
            return _reported(start, None, watch)
        done = _commit(table, branch, _Change(deletes=deletes), uncommitted, txn, watch)
    return _reported(start, done, watch, deletes=deletes, scope=scope)


def upsert_rows(  # noqa: PLR0913
    table: LoadedTable,
    changes: DataFrame,
    keys: Sequence[str],
    *,
    branch: str,
    delete_where: str | Column | None = None,
    duplicates: str = "error",
    order_by: str | Column | None = None,
    txn: Txn | None = None,
    dry_run: bool = False,
) -> KeyDeleteReport:
    """Write rows, and delete all older rows that have one of their keys.

    The changes are computed once and held by the executors meanwhile; see `change_batch`.

    Raises:
        InvalidArgumentError: A column is not usable, or a key is in the changes twice.
        UnsupportedFeatureError: The table is of format version 1.
        CommitStateUnknownError: The commit may have happened or not.
    """
    name = str(table.name)
    wanted = _key_columns(table, keys)
    start = KeyDeleteReport("UPSERT", name, branch)
    if _is_done(table, branch, txn):
        return replace(start, replayed=True)
    choices: Any = {"delete_where": delete_where, "duplicates": duplicates, "order_by": order_by}
    if dry_run:
        schema = table.metadata.schema
        with (
            interruptible(table.spark),
            change_batch(changes, schema, wanted, **choices, table=name) as batch,
        ):
            return try_upsert(start, batch, wanted)
    watch = Stopwatch()
    table, scope = scope_of(table, branch, None)
    with (
        interruptible(table.spark),
        _uncommitted(table) as uncommitted,
        change_batch(changes, table.metadata.schema, wanted, **choices, table=name) as batch,
    ):
        deletes = _write_deletes(table, branch, batch.keys, wanted, scope, uncommitted, watch)
        if not deletes.keys:
            return _reported(start, None, watch)
        data = _write_rows(table, batch.rows, watch)
        change = _Change(data, deletes)
        done = _commit(table, branch, change, uncommitted, txn, watch)
        dropped = batch.duplicates
    reported = _reported(start, done, watch, data=data, deletes=deletes, scope=scope)
    return replace(reported, duplicates=dropped)


@dataclass(frozen=True, eq=False)
class _Change:
    """The files of one commit that are written and not committed yet."""

    data: pa.Array | None = None
    deletes: WrittenDeletes | None = None


def _key_columns(table: LoadedTable, names: Sequence[str]) -> tuple[KeyColumn, ...]:
    version = table.metadata.format_version
    if version < _DELETES_SINCE:
        raise UnsupportedFeatureError(
            f"{table.name} is of format version {version}, which has no deletes",
            feature="row-level deletes",
            hint=f"ALTER TABLE {table.name} SET TBLPROPERTIES ('format-version' = '2')",
        )
    return key_columns(table.metadata.schema, names, str(table.name))


def _is_done(table: LoadedTable, branch: str, txn: Txn | None) -> bool:
    require_branch(table.metadata, branch, str(table.name))
    require_writable(table)
    return txn is not None and is_committed(table.metadata, branch, txn)


def _uncommitted(table: LoadedTable) -> UncommittedFiles:
    return UncommittedFiles(open_storage(table.spark, local_path(table.metadata.location)))


def _write_rows(table: LoadedTable, rows: DataFrame, watch: Stopwatch) -> pa.Array:
    with watch.phase("write rows", described(table.spark, f"rows of {table.name}")):
        return write_data_files(table, rows)


def _write_deletes(
    table: LoadedTable,
    branch: str,
    keys: Any,  # noqa: ANN401
    columns: Sequence[KeyColumn],
    scope: Scope,
    uncommitted: UncommittedFiles,
    watch: Stopwatch,
) -> WrittenDeletes:
    staging = is_staging(table.metadata, branch)
    with watch.phase("write deletes", described(table.spark, f"deleted keys of {table.name}")):
        return write_deletes(keys, columns, table, scope, staging=staging, uncommitted=uncommitted)


def _commit(
    table: LoadedTable,
    branch: str,
    change: _Change,
    uncommitted: UncommittedFiles,
    txn: Txn | None,
    watch: Stopwatch,
) -> Committed:
    """Commit files; remove them if the commit certainly did not happen."""
    deletes = change.deletes
    files: dict[str, Any] = {} if change.data is None else {"data_files": change.data}
    if deletes is not None:
        files |= {"delete_files": deletes.delete_files, "summary": deletes.summary}
    uncommitted.keep()
    try:
        with watch.phase("commit"):
            done = commit_change(
                table,
                branch,
                RowChange(**files),
                txn=txn,
                statistics=None if deletes is None else deletes.statistics,
                needs_staging=deletes is not None and deletes.needs_staging,
            )
    except (ConflictError, InvalidArgumentError, PlanError):
        _discard(table, change, uncommitted)
        raise
    if done.snapshot_id is None:  # another process has committed the transaction meanwhile
        _discard(table, change, uncommitted)
    return done


def _discard(table: LoadedTable, change: _Change, uncommitted: UncommittedFiles) -> None:
    uncommitted.discard()
    if change.data is not None:
        io = table.handle.io()
        for each in change.data.to_pylist():
            with explained(str(table.name)):
                io.deleteFile(json.loads(each)["file-path"])


def _reported(
    start: KeyDeleteReport,
    done: Committed | None,
    watch: Stopwatch,
    *,
    data: pa.Array | None = None,
    deletes: WrittenDeletes | None = None,
    scope: Scope | None = None,
) -> KeyDeleteReport:
    report = replace(start, phases=watch.seconds)
    if done is None:
        return report
    if done.snapshot_id is None:
        return replace(report, replayed=True)
    report = replace(report, snapshot_id=done.snapshot_id)
    if data is not None:
        files = [json.loads(each) for each in data.to_pylist()]
        report = replace(
            report,
            rows_added=sum(each["record-count"] for each in files),
            files_added=len(files),
            bytes_added=sum(each["file-size-in-bytes"] for each in files),
        )
    if deletes is not None and scope is not None:
        report = replace(
            report,
            keys=deletes.keys,
            null_keys=deletes.nulls,
            delete_files=deletes.files,
            delete_bytes=deletes.file_bytes,
            key_vectors=deletes.vectors,
            vector_files=deletes.vectors,
            vector_bytes=deletes.vector_bytes,
            scope=scope.description,
            forms=deletes.forms,
        )
    return report
