"""Writing rows and deletes by key to a branch of an Iceberg table, in one commit each.

A delete by key names no rows: it applies to all rows with the key in data files of lower sequence
numbers, whoever wrote them, so nothing is read and any other commit may come in between. The rows
of an upsert are of the same commit as the deletes of their keys, and are not deleted by them.

A dry run computes and checks keys as the write does; of rows it checks the names of the columns,
not whether values fit into them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delvec.errors import ConflictError, InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.file_scan import write_data_files
from delvec.iceberg.commit import branch_commit
from delvec.iceberg.commit.commit import RowChange
from delvec.iceberg.commit.marks import is_staging
from delvec.iceberg.deletes.equality_files import Scope
from delvec.iceberg.deletes.key_columns import key_columns
from delvec.iceberg.deletes.write_keys import WrittenDeletes, scope_of, write_deletes
from delvec.iceberg.write.report import KeyDeleteReport
from delvec.identifiers import quote, require_no_own_names
from delvec.report.hints import argument, format_hint
from delvec.report.rendering import Stopwatch
from delvec.spark import failures, jvm
from delvec.spark.input.key_values import KeyColumn
from delvec.spark.input.keys import read_keys
from delvec.spark.jobs import describe_jobs, interruptible, stage_rows
from delvec.storage.uncommitted import UncommittedFiles

_DELETED: Final = "__delvec_deleted"
_PLACE: Final = "__delvec_place"
_ROW: Final = "__delvec_row"


@dataclass(frozen=True)
class Batch:
    """The parts of a batch of changes, each row of which has a key of its own.

    `rows` are to be written, `keys` are those of all changes, deletes included, and `duplicates`
    counts rows that were dropped for later ones of the same key.
    """

    rows: DataFrame
    keys: DataFrame
    duplicates: int


@contextmanager
def change_batch(
    changes: DataFrame,
    schema: Mapping[str, Any],
    keys: Sequence[KeyColumn],
    *,
    delete_where: str | Column | None,
    duplicates: str,
    order_by: str | Column | None,
    table: str,
) -> Iterator[Batch]:
    """Split a batch of changes; it is computed once, and held by the executors for the block."""
    columns = [field["name"] for field in schema["fields"]]
    require_no_own_names(columns, table)
    for expression in (delete_where, order_by):
        if not isinstance(expression, str):
            continue
        with failures.translate_errors(expression):
            parser = jvm.session_of(changes.sparkSession).sessionState().sqlParser()
            parsed = parser.parseExpression(expression)
        # Spark takes `seq DESC` for a column `seq` under the name DESC.
        if jvm.class_name(parsed) in ("Alias", "UnresolvedAlias"):
            raise InvalidArgumentError(
                f"{expression!r} is an expression and a name for it",
                hint="the row with the highest value is the last; negate it for the lowest",
            )
    require_columns(changes, columns, (delete_where, order_by), table)
    deleted = F.lit(False) if delete_where is None else _column(delete_where)
    order = F.lit(0) if order_by is None else _column(order_by)
    marked = changes.select(
        *(quote(name) for name in columns),
        F.coalesce(deleted.cast("boolean"), F.lit(False)).alias(_DELETED),
        F.struct(order.alias("order"), F.monotonically_increasing_id().alias("row")).alias(_PLACE),
    )
    with failures.translate_errors(table), stage_rows(marked) as kept:
        dropped = _duplicates(kept, keys, duplicates, table)
        last = _last(kept, keys) if dropped else kept
        rows = last.where(~F.col(_DELETED)).select(*(quote(name) for name in columns))
        named = [F.col(quote(key.name)).alias(key.name) for key in keys]
        yield Batch(rows, kept.select(*named), dropped)


def _last(rows: DataFrame, keys: Sequence[KeyColumn]) -> DataFrame:
    """Return the last change of each key."""
    kept = F.struct(*(quote(name) for name in rows.columns if name != _PLACE))
    newest = F.max_by(kept, F.col(_PLACE)).alias(_ROW)
    grouped = rows.groupBy(*(_stored(key).alias(f"{_ROW}{at}") for at, key in enumerate(keys)))
    return grouped.agg(newest).select(f"{_ROW}.*")


def _duplicates(rows: DataFrame, keys: Sequence[KeyColumn], choice: str, table: str) -> int:
    """Return how many changes have a key that a later change has, too."""
    counts = rows.groupBy(*map(_stored, keys)).agg(F.count("*").alias(_ROW))
    repeated = counts.where(F.col(_ROW) > 1)
    if choice == "last":
        found = repeated.agg(F.sum(F.col(_ROW) - 1)).first()
        return 0 if found is None or found[0] is None else int(found[0])
    first = repeated.first()
    if first is not None:
        shown = ", ".join(f"{key.name}={value}" for key, value in zip(keys, first, strict=False))
        raise InvalidArgumentError(
            f"the batch for {table} has {first[-1]} changes of the key {shown}",
            hint=format_hint(
                "pass {} to take the last of them, by {} if given, or make the keys unique",
                argument(duplicates="last"),
                argument(order_by=None),
            ),
        )
    return 0


def require_columns(
    changes: DataFrame,
    columns: Sequence[str],
    conditions: Sequence[str | Column | None],
    table: str,
) -> None:
    """Refuse changes that lack a column, which would become null, and columns that would be lost.

    Columns that only tell what to do with a change are not stored.
    """
    exact = changes.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    same = str if exact else str.lower
    given = {same(name) for name in changes.columns}
    missing = [name for name in columns if same(name) not in given]
    if missing:
        raise InvalidArgumentError(
            f"the changes lack {', '.join(missing)} of {table}",
            hint="an upsert replaces whole rows: select all columns of the table",
        )
    known = {same(name) for name in columns}
    used = {same(name) for each in conditions if each is not None for name in _used(changes, each)}
    unknown = [name for name in changes.columns if same(name) not in known | used]
    if unknown:
        raise InvalidArgumentError(
            f"{table} has no column {', '.join(unknown)}",
            hint="drop it from the changes, or add it to the table first",
        )


def _used(changes: DataFrame, condition: str | Column) -> list[str]:
    plan: Any = changes.select(_column(condition))._jdf.queryExecution().analyzed()  # noqa: SLF001
    return [str(each.name()) for each in jvm.items(plan.references())]


def _column(expression: str | Column) -> Column:
    return F.expr(expression) if isinstance(expression, str) else expression


def _stored(key: KeyColumn) -> Column:
    """Return a key as the table has it; UUIDs are strings to Spark, in either case."""
    column = F.col(quote(key.name))
    return F.lower(column) if key.type == "uuid" else column


def append_rows(
    table: LoadedTable,
    rows: DataFrame,
    *,
    branch: str,
    txn: branch_commit.Txn | None = None,
    dry_run: bool = False,
) -> KeyDeleteReport:
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
    """Write rows, and delete all older rows that have one of their keys."""
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
