"""CREATE and REPLACE ... AS SELECT: a definition and its rows in one commit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from delvec.delta.alter.definition import replace_definition
from delvec.delta.alter.operations import (
    TableDescription,
    new_state,
    require_empty_location,
    snapshot_before,
)
from delvec.delta.alter.table_state import TableState
from delvec.delta.skipping.predicate import Always
from delvec.delta.write import transaction
from delvec.delta.write.change import ReadSet
from delvec.delta.write.transaction import Attempt, CheckedOptions, Outcome, WriteOptions
from delvec.delta.write.writable import require_writable
from delvec.spark.delta.scan.read_versions import depend_on_source
from delvec.spark.delta.write.append import rows_to_write
from delvec.spark.delta.write.rewrite import store_rows
from delvec.spark.delta.write.stored_expressions import require_allowed
from delvec.spark.engine import SparkEngine
from delvec.spark.jobs import restart_if_lost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Unpack

    from delvec.delta.write.report import WriteReport
    from delvec.storage import Storage


def create_with_rows(
    spark: SparkSession,
    storage: Storage,
    wanted: TableDescription,
    rows: DataFrame,
    operation: str = "CREATE TABLE AS SELECT",
    **options: Unpack[WriteOptions],
) -> WriteReport:
    """Create a table where there is none; its first version has the rows."""
    state = wanted.state()
    require_empty_location(storage, state.metadata)
    run = partial(
        transaction.run,
        SparkEngine(spark),
        lambda: snapshot_before(storage, state),
        operation,
        with_rows(operation, wanted, rows),
        replace(CheckedOptions.of(**options), max_retries=0),
    )
    return restart_if_lost(run)


def with_rows(
    operation: str, wanted: TableDescription, rows: DataFrame
) -> Callable[[Attempt], Outcome]:
    """Prepare a table of this definition and these rows in place of what is there, if any."""

    def prepare(attempt: Attempt) -> Outcome:
        snapshot, is_new = attempt.snapshot, attempt.snapshot.version < 0
        with ExitStack() as stack:
            if is_new:
                was, state, reads = None, TableState.of(snapshot), ReadSet()
            else:
                require_writable(snapshot, "overwrite")
                depend_on_source(attempt, rows)
                was = TableState.of(snapshot)
                state = replace_definition(was, **vars(wanted))
                reads = ReadSet(Always())
            require_allowed(attempt.spark, attempt.storage.root, state.metadata)
            ready, state = rows_to_write(attempt, state, rows, "none", stack)
            written = store_rows(attempt, state, ready)
        change = new_state(operation, state, was, reads)
        metrics = {"numOutputRows": written.rows}
        change = replace(
            change,
            operation=replace(change.operation, metrics=metrics),
            added=written.adds,
            removed=() if is_new else tuple(snapshot.files.entries()),
        )
        return Outcome(change, {"rows_inserted": written.rows})

    return prepare
