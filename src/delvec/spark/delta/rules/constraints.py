"""ADD CONSTRAINT: the one change of a table's definition that reads its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions

from delvec.delta.alter.constraints import add_constraint
from delvec.delta.alter.operations import state_change
from delvec.delta.alter.table_state import TableState
from delvec.delta.pruning.predicate import Always
from delvec.delta.schema.expressions import StoredExpression
from delvec.delta.write.change import ReadSet
from delvec.delta.write.transaction import Outcome
from delvec.delta.write.writable import require_writable
from delvec.errors import ConstraintError
from delvec.spark.delta.rules.stored_expressions import stored_column
from delvec.spark.delta.scan.scan import scan

if TYPE_CHECKING:
    from collections.abc import Callable

    from delvec.delta.write.transaction import Attempt, Outcome

__all__ = ["constrain"]


def constrain(name: str, expression: str) -> Callable[[Attempt], Outcome]:
    """Prepare a CHECK constraint; all live rows are read, since they must satisfy it."""

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        with attempt.phase("plan"):
            require_writable(snapshot, "alter")
            was = TableState.of(snapshot)
            now = add_constraint(was, name, expression)
        with attempt.phase("check"):
            stored = StoredExpression("constraint", name, expression)
            column = stored_column(attempt.spark, snapshot.table, now.schema, stored)
            holds = functions.coalesce(column, functions.lit(False))
            rows = scan(attempt.spark, snapshot).where(~holds).limit(1).collect()
        if rows:
            raise ConstraintError(
                f"a row of {snapshot.table} does not satisfy {expression}: {rows[0].asDict()}",
                constraint=name,
                table=snapshot.table,
                hint="mend or delete such rows first",
            )
        parameters = {"name": name, "expr": expression}
        return state_change(attempt, "ADD CONSTRAINT", parameters, was, now, ReadSet(Always()))

    return prepare
