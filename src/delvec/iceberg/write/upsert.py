"""Writing rows and deletes by key to a branch of an Iceberg table, in one commit each.

A delete by key names no rows: it applies to all rows with the key in data files of lower sequence
numbers, whoever wrote them, so nothing is read and any other commit may come in between. The rows
of an upsert are of the same commit as the deletes of their keys, and are not deleted by them.

A dry run computes and checks keys as the write does; of rows it checks the names of the columns,
not whether values fit into them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from delvec.errors import ConflictError, InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.file_scan import write_data_files
from delvec.iceberg.commit import branch_commit
from delvec.iceberg.commit.marks import is_staging
from delvec.iceberg.commit.row_delta import RowChange
from delvec.iceberg.deletes.equality_files import Scope
from delvec.iceberg.deletes.key_columns import key_columns
from delvec.iceberg.deletes.write_keys import WrittenDeletes, scope_of, write_deletes
from delvec.iceberg.write.change_batch import change_batch, require_columns
from delvec.iceberg.write.report import KeyDeleteReport
from delvec.report.rendering import Stopwatch
from delvec.spark.input.key_values import KeyColumn
from delvec.spark.input.keys import read_keys
from delvec.spark.jobs import describe_jobs, interruptible
from delvec.storage.uncommitted import UncommittedFiles


def append_rows(
    table: LoadedTable,
    rows: DataFrame,
    *,
    branch: str,
    txn: branch_commit.Txn | None = None,
    dry_run: bool = False,
) -> KeyDeleteReport:
    """Append rows to a branch; columns are matched by name."""
    start = KeyDeleteReport("APPEND", str(table.name), branch)
    if _is_done(table, branch, txn):
        return replace(start, replayed=True)
    if dry_run:
        columns = [each["name"] for each in table.metadata.schema["fields"]]
        require_columns(rows, columns, (), start.table)
        with translate_errors(start.table):
            return replace(start, dry_run=True, rows_added=rows.count())
    watch = Stopwatch()
    with interruptible(table.spark), UncommittedFiles(table.storage()) as uncommitted:
        change = _Change(_write_rows(table, rows, watch))
        return _commit(start, table, change, uncommitted, txn, watch)


def delete_keys(
    table: LoadedTable,
    keys: Any,  # noqa: ANN401
    columns: Sequence[str],
    *,
    branch: str,
    partition: Mapping[str, object] | None = None,
    txn: branch_commit.Txn | None = None,
    dry_run: bool = False,
) -> KeyDeleteReport:
    """Delete all rows that have one of some keys.

    No data file is read. Memory of the driver grows with the keys, see `read_keys`; those of a
    large DataFrame stay with the executors.
    """
    wanted = _key_columns(table, columns)
    start = KeyDeleteReport("DELETE KEYS", str(table.name), branch)
    if _is_done(table, branch, txn):
        return replace(start, replayed=True)
    if dry_run:
        if partition is not None:  # for all of them it may add a partition spec
            scope_of(table, branch, partition)
        return _try_delete(start, keys, wanted)
    watch = Stopwatch()
    table, scope = scope_of(table, branch, partition)
    with interruptible(table.spark), UncommittedFiles(table.storage()) as uncommitted:
        deletes = _write_deletes(table, branch, keys, wanted, scope, uncommitted, watch)
        if not deletes.keys:
            return replace(start, phases=watch.seconds)
        change = _Change(deletes=deletes, scope=scope.description)
        return _commit(start, table, change, uncommitted, txn, watch)


def upsert_rows(  # noqa: PLR0913
    table: LoadedTable,
    changes: DataFrame,
    keys: Sequence[str],
    *,
    branch: str,
    delete_where: str | Column | None = None,
    duplicates: str = "error",
    order_by: str | Column | None = None,
    txn: branch_commit.Txn | None = None,
    dry_run: bool = False,
) -> KeyDeleteReport:
    """Write rows, and delete all older rows that have one of their keys.

    The changes are computed once and held by the executors meanwhile; see `change_batch`.
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
            tried = _try_delete(start, batch.keys, wanted)
            return replace(tried, rows_added=batch.rows.count(), duplicates=batch.duplicates)
    watch = Stopwatch()
    table, scope = scope_of(table, branch, None)
    with (
        interruptible(table.spark),
        UncommittedFiles(table.storage()) as uncommitted,
        change_batch(changes, table.metadata.schema, wanted, **choices, table=name) as batch,
    ):
        deletes = _write_deletes(table, branch, batch.keys, wanted, scope, uncommitted, watch)
        if not deletes.keys:
            return replace(start, phases=watch.seconds)
        change = _Change(_write_rows(table, batch.rows, watch), deletes, scope.description)
        report = _commit(start, table, change, uncommitted, txn, watch)
        return replace(report, duplicates=batch.duplicates)


@dataclass(frozen=True, eq=False)
class _Change:
    """The files of one commit that are written and not committed yet."""

    data: pa.Array | None = None
    deletes: WrittenDeletes | None = None
    scope: str = "global"


def _try_delete(
    start: KeyDeleteReport,
    keys: Any,  # noqa: ANN401
    columns: Sequence[KeyColumn],
) -> KeyDeleteReport:
    """Return the report of a delete that is not made; the distinct keys are counted."""
    with read_keys(keys, columns, start.table) as opened:
        return replace(start, dry_run=True, keys=len(opened), null_keys=opened.nulls)


def _key_columns(table: LoadedTable, names: Sequence[str]) -> tuple[KeyColumn, ...]:
    branch_commit.require_row_deletes(table)
    return key_columns(table.metadata.schema, names, str(table.name))


def _is_done(table: LoadedTable, branch: str, txn: branch_commit.Txn | None) -> bool:
    branch_commit.require_branch(table.metadata, branch, str(table.name))
    branch_commit.require_writable(table)
    return txn is not None and branch_commit.is_committed(table.metadata, branch, txn)


def _write_rows(table: LoadedTable, rows: DataFrame, watch: Stopwatch) -> pa.Array:
    with watch.phase("write rows", describe_jobs(table.spark, f"rows of {table.name}")):
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
    with watch.phase("write deletes", describe_jobs(table.spark, f"deleted keys of {table.name}")):
        return write_deletes(keys, columns, table, scope, staging=staging, uncommitted=uncommitted)


def _commit(
    start: KeyDeleteReport,
    table: LoadedTable,
    change: _Change,
    uncommitted: UncommittedFiles,
    txn: branch_commit.Txn | None,
    watch: Stopwatch,
) -> KeyDeleteReport:
    """Commit files, and report them; remove them if the commit certainly did not happen."""
    deletes = change.deletes
    files: dict[str, Any] = {} if change.data is None else {"data_files": change.data}
    if deletes is not None:
        files |= {"delete_files": deletes.delete_files, "summary": deletes.summary}
    uncommitted.keep()
    try:
        with watch.phase("commit"):
            done = branch_commit.commit_change(
                table,
                start.branch,
                RowChange(**files),
                txn=txn,
                statistics=None if deletes is None else deletes.statistics,
                needs_staging=deletes is not None and deletes.needs_staging,
            )
    except (ConflictError, InvalidArgumentError, PlanError):
        _discard(table, change, uncommitted)
        raise
    report = replace(start, snapshot_id=done.snapshot_id, phases=watch.seconds)
    if done.snapshot_id is None:  # another process has committed the transaction meanwhile
        _discard(table, change, uncommitted)
        return replace(report, replayed=True)
    if change.data is not None:
        written = [json.loads(each) for each in change.data.to_pylist()]
        report = replace(
            report,
            rows_added=sum(each["record-count"] for each in written),
            files_added=len(written),
            bytes_added=sum(each["file-size-in-bytes"] for each in written),
        )
    if deletes is not None:
        report = replace(
            report,
            keys=deletes.keys,
            null_keys=deletes.nulls,
            delete_files=deletes.files,
            delete_bytes=deletes.file_bytes,
            key_vectors=deletes.vectors,
            vector_files=deletes.vectors,
            vector_bytes=deletes.vector_bytes,
            scope=change.scope,
            forms=deletes.forms,
        )
    return report


def _discard(table: LoadedTable, change: _Change, uncommitted: UncommittedFiles) -> None:
    uncommitted.discard()
    if change.data is not None:
        io = table.handle.io()
        for each in change.data.to_pylist():
            with translate_errors(str(table.name)):
                io.deleteFile(json.loads(each)["file-path"])
