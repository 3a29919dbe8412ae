"""WRITE: rows appended to a table, or in place of others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from pyspark.sql import Column, DataFrame, functions

from delvec.delta.alter.columns import evolve_schema
from delvec.delta.alter.definition import replace_definition
from delvec.delta.alter.table_state import TableState
from delvec.delta.read.change_feed import CHANGE_TYPE
from delvec.delta.schema.expressions import GENERATION
from delvec.delta.schema.traversal import nullable
from delvec.delta.schema.types import parse_schema
from delvec.delta.skipping.clustering import column_names
from delvec.delta.skipping.predicate import Always
from delvec.delta.write.change import Change, Operation, ReadSet
from delvec.delta.write.targets import Partitions
from delvec.delta.write.transaction import Attempt, Outcome
from delvec.delta.write.writable import require_writable
from delvec.errors import InvalidArgumentError
from delvec.report.hints import argument, format_hint
from delvec.spark.delta.scan.conditions import aliased, to_predicate, to_sql
from delvec.spark.delta.scan.read_versions import depend_on_source
from delvec.spark.delta.write import conform_rows
from delvec.spark.delta.write.clauses import expression
from delvec.spark.delta.write.constraints import Rule
from delvec.spark.delta.write.data_files import WrittenFiles, partition_string, store_change_rows
from delvec.spark.delta.write.delete import prepare_delete
from delvec.spark.delta.write.rewrite import store_rows
from delvec.spark.delta.write.stored_expressions import require_allowed
from delvec.spark.engine import time_zone
from delvec.spark.failures import violation
from delvec.spark.jobs import stage_rows

if TYPE_CHECKING:
    from delvec.delta.log.file_set import FileSet
    from delvec.delta.schema.metadata import Metadata

    Evolution = Literal["none", "merge", "replace"]


_COUNT: Final = "__delvec_count"
_NOTHING: Final = ReadSet()


def append(df: DataFrame, evolution: Evolution) -> Callable[[Attempt], Outcome]:
    """Prepare an append; it is blind unless its rows are read from the table itself."""

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        with ExitStack() as stack:
            with attempt.phase("plan"):
                require_writable(snapshot, "append")
                depend_on_source(attempt, df)
                state = _state(attempt, df, evolution)
                rows, state = rows_to_write(attempt, state, df, evolution, stack)
            if attempt.options.dry_run:
                return Outcome(Change(Operation("WRITE")), {"rows_inserted": rows.count()})
            written = store_rows(attempt, state, rows)
        change = _change(attempt, state, written, "Append", {})
        is_nothing = not written.adds and change.metadata is None
        return Outcome(None if is_nothing else change, {"rows_inserted": written.rows})

    return prepare


def overwrite(
    df: DataFrame, where: str | Column | None, evolution: Evolution, *, by_partition: bool = False
) -> Callable[[Attempt], Outcome]:
    """Prepare new rows in place of all, of those that match a condition, or of their partitions."""
    if where is not None and by_partition:
        raise InvalidArgumentError(
            'where and partitions="dynamic" both say which rows to replace', hint="give one of them"
        )
    if evolution == "replace" and (where is not None or by_partition):
        raise InvalidArgumentError(
            "the schema can be replaced only where all rows are",
            hint=format_hint(
                "replace all rows, or let new columns come by {}", argument(merge_schema=True)
            ),
        )

    def prepare(attempt: Attempt) -> Outcome:
        require_writable(attempt.snapshot, "overwrite")
        depend_on_source(attempt, df)
        state = _state(attempt, df, evolution)
        with ExitStack() as stack:
            rows, state = rows_to_write(attempt, state, df, evolution, stack)
            # A table without partition columns is one partition.
            if by_partition and state.metadata.partition_columns:
                _require_partition_columns(state.metadata, df)
                return _replace_partitions(attempt, state, rows)
            if where is None:
                return _replace_all(attempt, state, rows)
            return _replace_where(attempt, state, rows, where)

    return prepare


def _replace_all(attempt: Attempt, state: TableState, rows: DataFrame) -> Outcome:
    snapshot = attempt.snapshot
    with attempt.phase("plan"):
        removed = tuple(snapshot.files.entries())
        gone, notes = _live_rows(snapshot.files)
    if attempt.options.dry_run:
        figures = {"rows_inserted": rows.count(), "rows_deleted": gone}
        return Outcome(Change(Operation("WRITE"), removed=removed), figures, notes)
    written = store_rows(attempt, state, rows)
    change = _change(attempt, state, written, "Overwrite", {}, ReadSet(Always()))
    change = replace(change, removed=removed)
    return Outcome(change, {"rows_inserted": written.rows, "rows_deleted": gone}, notes)


def _replace_partitions(attempt: Attempt, state: TableState, rows: DataFrame) -> Outcome:
    files, fields = attempt.snapshot.files, state.metadata.partition_fields
    zone = time_zone(attempt.spark)
    if attempt.options.dry_run:
        counted = functions.count("*").alias(_COUNT)
        values = [partition_string(attempt.spark, field) for field in fields]
        found = rows.groupBy(*values).agg(counted).collect()
        inserted = sum(row[_COUNT] for row in found)
        entries = [row.asDict() for row in found]
        change = Change(Operation("WRITE"))
    else:
        written = store_rows(attempt, state, rows)
        inserted = written.rows
        entries = [add["partitionValues"] for add in written.adds]
        how = {"isDynamicPartitionOverwrite": True}
        change = _change(attempt, state, written, "Overwrite", how)
    partitions = Partitions.of(state.metadata, zone, entries)
    replaced = partitions.files(files)
    gone, notes = _live_rows(files.select(replaced))
    figures = {"rows_inserted": inserted, "rows_deleted": gone}
    if not inserted and change.metadata is None:
        return Outcome(None, figures)
    reads = ReadSet(partitions.predicate, time_zone=zone)
    operation, removed = replace(change.operation, reads=reads), tuple(files.entries(replaced))
    return Outcome(replace(change, operation=operation, removed=removed), figures, notes)


def _require_partition_columns(metadata: Metadata, df: DataFrame) -> None:
    given = {name.lower() for name in df.columns}
    missing = [
        field.name
        for field in metadata.partition_fields
        if field.name.lower() not in given and GENERATION not in field.metadata
    ]
    if missing:
        raise InvalidArgumentError(
            f"the rows lack the partition column {', '.join(missing)}, and so do not say which"
            " partitions they replace",
            hint="give every partition column a value",
        )


def _live_rows(files: FileSet) -> tuple[int, tuple[str, ...]]:
    """Return the live rows of files that are removed, and what the log does not tell of them."""
    left = files.live_rows
    note = f"{left.null_count} removed files do not say how many rows they have"
    return int(left.fill_null(0).to_numpy().sum()), (note,) if left.null_count else ()


def _replace_where(
    attempt: Attempt, state: TableState, rows: DataFrame, where: str | Column
) -> Outcome:
    text = to_sql(where)
    with ExitStack() as stack:
        rule = Rule(
            functions.coalesce(expression(where), functions.lit(False)),
            violation("replace where", f"a row to write does not satisfy {text}", {}),
        )
        rows = conform_rows.fail_on_violation(aliased(rows, state.schema), [rule])
        deleted = prepare_delete(attempt, where, None)
        gone = deleted.change or Change(Operation("DELETE", reads=_reads(attempt, where)))
        if attempt.options.dry_run:
            figures = {**deleted.figures, "rows_inserted": rows.count()}
            return Outcome(gone, figures, deleted.notes)
        if gone.change_files:
            # The table and its change feed must get the same rows.
            rows = stack.enter_context(stage_rows(rows))
        written = store_rows(attempt, state, rows)
        feed = gone.change_files
        if feed and written.adds:
            kind = functions.lit("insert").alias(CHANGE_TYPE)
            feed += store_change_rows(attempt, rows.select("*", kind), state.metadata)
    reads = gone.operation.reads
    change = _change(attempt, state, written, "Overwrite", {"predicate": text}, reads)
    if deleted.change is None and not written.adds and change.metadata is None:
        return Outcome(None, deleted.figures)
    change = replace(
        change,
        vector_updates=gone.vector_updates,
        vector_files=gone.vector_files,
        removed=gone.removed,
        added=(*gone.added, *written.adds),
        change_files=feed,
    )
    return Outcome(change, {**deleted.figures, "rows_inserted": written.rows}, deleted.notes)


def _reads(attempt: Attempt, where: str | Column) -> ReadSet:
    """Depend on the rows that match a condition, even if there are none yet."""
    predicate = to_predicate(attempt.spark, attempt.snapshot.metadata.schema, where)
    return ReadSet(predicate, time_zone=time_zone(attempt.spark))


def _state(attempt: Attempt, df: DataFrame, evolution: Evolution) -> TableState:
    state = TableState.of(attempt.snapshot)
    if evolution == "none":
        return state
    incoming = parse_schema(df.schema.json())
    if evolution == "merge":
        return evolve_schema(state, incoming)
    # That no row has a null now says nothing of the rows to come.
    clustering = column_names(state.metadata, state.clustering)
    partitions = state.metadata.partition_columns
    new = replace_definition(state, nullable(incoming), partitions, cluster_by=clustering)
    require_allowed(attempt.spark, attempt.storage.root, new.metadata)
    return new


def rows_to_write(
    attempt: Attempt, state: TableState, df: DataFrame, evolution: Evolution, stack: ExitStack
) -> tuple[DataFrame, TableState]:
    """Return the rows to write, staged as long as `stack` is open if ids were generated for them.

    These ids are in the state of the table that is returned.
    """
    conform_rows.require_insertable(state.schema, df.columns)
    lacking: conform_rows.Lacking = "refuse" if evolution == "none" else "null"
    spark, table = attempt.spark, attempt.storage.root
    rows = conform_rows.conform(spark, table, state.metadata, df, lacking=lacking)
    missing = conform_rows.missing_identities(state.schema, df.columns)
    if missing and attempt.options.dry_run:
        rows = conform_rows.with_next_value(state.schema, rows, missing)
    elif missing:
        rows = stack.enter_context(stage_rows(rows))
        rows, state = conform_rows.with_identity_values(state, rows, dict.fromkeys(missing))
    # A generated column may be computed from an identity column.
    rows = conform_rows.add_generated_columns(spark, table, state.schema, rows, df.columns)
    return conform_rows.check_constraints(spark, table, state.metadata, rows), state


def _change(
    attempt: Attempt,
    state: TableState,
    written: WrittenFiles,
    mode: str,
    more: dict[str, Any],
    reads: ReadSet = _NOTHING,
) -> Change:
    snapshot = attempt.snapshot
    columns = list(snapshot.metadata.partition_columns)
    parameters = {"mode": mode, "partitionBy": columns, **more}
    return Change(
        Operation("WRITE", parameters, {"numOutputRows": written.rows}, reads),
        added=written.adds,
        protocol=state.protocol if state.protocol != snapshot.protocol else None,
        metadata=state.metadata if state.metadata != snapshot.metadata else None,
        domains=state.new_domains(TableState.of(snapshot)),
    )
