"""New values of rows: the clauses of UPDATE and MERGE as columns of one projection.

Each row is the affair of one clause, the first whose condition it satisfies; its number is in the
column `KIND`, 0 for none. No expression of a clause is evaluated for the rows of another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pyspark.sql import Column, functions

from delvec.delta.schema.expressions import GENERATION
from delvec.delta.schema.types import StructType
from delvec.delta.schema.walk import resolve
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote, split_path
from delvec.spark import jvm
from delvec.spark.delta.write.conform_rows import Conversion, default_of
from delvec.spark.jvm import items
from delvec.spark.types import spark_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from delvec.delta.schema.types import DataType, Field

__all__ = [
    "KIND",
    "Assigned",
    "Clause",
    "When",
    "assigned",
    "bound",
    "expression",
    "kind_of",
    "new_values",
]

KIND: Final = "__delvec_kind"
When: TypeAlias = Literal["matched", "not_matched", "not_matched_by_source"]
Value: TypeAlias = "str | Column | Any"


@dataclass(frozen=True)
class Clause:
    """One clause of a MERGE, or the whole of an UPDATE.

    Attributes:
        when: Which rows it is for.
        action: What it does to them.
        condition: Which of them; all by default.
        values: New values by column; None for all columns of the source under their names.
    """

    when: When
    action: Literal["update", "delete", "insert"]
    condition: str | Column | None = None
    values: Mapping[str, Value] | None = None


@dataclass(frozen=True)
class Assigned:
    """A clause with its number and its expressions, by the name of the table's column."""

    number: int
    clause: Clause
    values: Mapping[str, Column]


def expression(value: Value) -> Column:
    """Take SQL, a column, or a plain value of Python."""
    if isinstance(value, str):
        return functions.expr(value)
    return value if isinstance(value, Column) else functions.lit(value)


def bound(spark: SparkSession, each: Assigned, rows: DataFrame) -> Assigned:
    """Let the names in a clause mean the columns of some rows, whatever these are joined with.

    Raises:
        AnalysisException: They have no such column.
    """
    column_of = jvm.view_of(spark).org.apache.spark.sql.classic.ExpressionUtils.column

    def meant(value: Column) -> Column:
        plan: Any = rows.select(value)._jdf.queryExecution().analyzed()  # noqa: SLF001
        if plan.getClass().getSimpleName() != "Project":
            raise InvalidArgumentError("a clause computes values of one row from that row alone")
        [found] = items(plan.projectList())
        is_named = found.getClass().getSimpleName() == "Alias"
        return type(value)(column_of(found.child() if is_named else found))

    condition = each.clause.condition
    if condition is not None:
        condition = meant(expression(condition))
    values = {name: meant(value) for name, value in each.values.items()}
    return Assigned(each.number, replace(each.clause, condition=condition), values)


def assigned(
    clause: Clause, number: int, schema: StructType, old: Callable[[str], Column] | None
) -> Assigned:
    """Find the columns that a clause gives values to; `a.b` is a field of the struct `a`.

    Raises:
        InvalidArgumentError: There is no such column, or it is given two values.
    """
    values: dict[str, Column] = {}
    for name, value in (clause.values or {}).items():
        path = _path(schema, name)
        column = expression(value)
        if path[0] in values and len(path) == 1:
            raise InvalidArgumentError(f"column {path[0]} is given two values")
        if len(path) > 1:
            if old is None:
                raise InvalidArgumentError(
                    f"an insert gives whole columns, not the field {name}",
                    hint=f"give {path[0]} a struct",
                )
            base = values.get(path[0], old(path[0]))
            column = _with_field(base, schema.field(path[0]).type, path[1:], column)
        values[path[0]] = column
    return Assigned(number, clause, values)


def _with_field(base: Column, kind: DataType, path: Sequence[str], value: Column) -> Column:
    """Give a field a new value; where its struct is NULL, it is not afterwards.

    Spark's `withField` leaves a NULL as it is, and would lose the value.
    """
    if not path:
        return value
    fields = kind.fields if isinstance(kind, StructType) else ()
    return functions.struct(
        *(
            (
                _with_field(base.getField(field.name), field.type, path[1:], value)
                if field.name == path[0]
                else base.getField(field.name)
            ).alias(field.name)
            for field in fields
        )
    )


def _path(schema: StructType, name: str) -> list[str]:
    """Give the names of a column as the table has them; a name with dots comes first."""
    if any(field.name.lower() == name.lower() for field in schema.fields):
        return [schema.field(name).name]
    return [each.name for each in resolve(schema, split_path(name), structs_only=True)]


def kind_of(clauses: Sequence[Assigned], is_matched: Column | None) -> Column:
    """Give the number of the clause that a row belongs to, 0 for none."""
    kind = None
    for each in clauses:
        applies = functions.lit(True) if is_matched is None else is_matched
        if each.clause.when == "not_matched_by_source" and is_matched is not None:
            applies = ~is_matched
        if each.clause.condition is not None:
            applies = applies & expression(each.clause.condition)
        number = functions.lit(each.number)
        kind = functions.when(applies, number) if kind is None else kind.when(applies, number)
    return functions.lit(0) if kind is None else kind.otherwise(functions.lit(0))


def new_values(
    spark: SparkSession,
    schema: StructType,
    rows: DataFrame,
    clauses: Sequence[Assigned],
    old: Callable[[str], Column] | None,
    kept: Mapping[str, Column],
) -> DataFrame:
    """Evaluate clauses: the table's columns with their new values, then those that are kept.

    Args:
        spark: The session.
        schema: The columns of the table.
        rows: With `KIND`, and all that the expressions name.
        clauses: All that the rows may belong to.
        old: Gives the value that a column has so far; None where rows are new.
        kept: Columns to carry along, by name; `KIND` is carried in any case.
    """
    changing = [each for each in clauses if each.clause.action != "delete"]
    values = {
        _value_name(each, index): functions.when(
            functions.col(KIND) == each.number, each.values[field.name]
        )
        for each in changing
        for index, field in enumerate(schema.fields)
        if field.name in each.values
    }
    olds = (
        {}
        if old is None
        else {
            f"__delvec_old_{index}": old(field.name)
            for index, field in enumerate(schema.fields)
            if _is_carried_over(field, changing)
        }
    )
    columns = {**kept, KIND: functions.col(KIND), **values, **olds}
    evaluated = rows.select(*(column.alias(name) for name, column in columns.items()))
    have = {field.name: field for field in evaluated.schema.fields}
    conversion = Conversion(spark)

    def branch(each: Assigned, index: int, field: Field) -> Column | None:
        if field.name in each.values:
            return conversion.column(have[_value_name(each, index)], field)
        if GENERATION in field.metadata:
            return None  # comes from the other columns, below
        if each.clause.action == "update":
            return functions.col(f"__delvec_old_{index}")
        return default_of(field)

    new = [
        _chosen(field, [(each.number, branch(each, index, field)) for each in changing]).alias(
            field.name
        )
        for index, field in enumerate(schema.fields)
    ]
    carried = [functions.col(quote(name)) for name in (*kept, KIND)]
    return _generated(evaluated.select(*new, *carried), schema, changing)


def _value_name(each: Assigned, index: int) -> str:
    return f"__delvec_new_{each.number}_{index}"


def _is_carried_over(field: Field, changing: Sequence[Assigned]) -> bool:
    return GENERATION not in field.metadata and any(
        each.clause.action == "update" and field.name not in each.values for each in changing
    )


def _chosen(field: Field, branches: Sequence[tuple[int, Column | None]]) -> Column:
    """Give the value of the clause that a row belongs to, null for the rows of no clause."""
    there = [(number, value) for number, value in branches if value is not None]
    if not there:
        return functions.lit(None).cast(spark_type(field.type))
    first = functions.when(functions.col(KIND) == there[0][0], there[0][1])
    chosen = reduce(
        lambda so_far, each: so_far.when(functions.col(KIND) == each[0], each[1]), there[1:], first
    )
    return chosen.cast(spark_type(field.type))


def _generated(rows: DataFrame, schema: StructType, changing: Sequence[Assigned]) -> DataFrame:
    """Fill generated columns from the new values, where a clause gives them none itself."""
    missing = {
        field.name: [each.number for each in changing if field.name not in each.values]
        for field in schema.fields
        if GENERATION in field.metadata
    }
    filled = {
        name: functions.when(
            functions.col(KIND).isin(numbers),
            functions.expr(str(schema.field(name).metadata[GENERATION])).cast(
                spark_type(schema.field(name).type)
            ),
        ).otherwise(functions.col(quote(name)))
        for name, numbers in missing.items()
        if numbers
    }
    return rows.withColumns(filled) if filled else rows
