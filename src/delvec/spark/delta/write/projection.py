"""New values of rows: the clauses of UPDATE and MERGE as columns of one projection.

Each row is handled by the first clause whose condition holds; the number of that clause is in the
column `CLAUSE`, 0 for none. No expression of a clause is evaluated for the rows of another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, functions

from delvec.delta.schema.expressions import GENERATION
from delvec.delta.schema.types import Field, StructType
from delvec.identifiers import quote
from delvec.spark import expressions
from delvec.spark.delta.write import conform_rows
from delvec.spark.delta.write.clauses import Assigned, expression
from delvec.spark.types import spark_type

CLAUSE: Final = "__delvec_clause"
"""The column with the number of the clause that handles a row."""


def clause_number(clauses: Sequence[Assigned], is_matched: Column | None) -> Column:
    """Return the number of the clause that handles a row, 0 for none."""
    chosen = None
    for each in clauses:
        applies = functions.lit(True) if is_matched is None else is_matched
        if each.clause.when == "not_matched_by_source" and is_matched is not None:
            applies = ~is_matched
        if each.clause.condition is not None:
            applies = applies & expression(each.clause.condition)
        number = functions.lit(each.number)
        chosen = functions.when(applies, number) if chosen is None else chosen.when(applies, number)
    return functions.lit(0) if chosen is None else chosen.otherwise(functions.lit(0))


def new_values(
    spark: SparkSession,
    table: str,
    schema: StructType,
    rows: DataFrame,
    clauses: Sequence[Assigned],
    old: Callable[[str], Column] | None,
    kept: Mapping[str, Column],
    lacking: conform_rows.Lacking = "refuse",
) -> DataFrame:
    """Evaluate clauses: the table's columns with their new values, then those that are kept."""
    changing = [each for each in clauses if each.clause.action != "delete"]
    values = {
        _value_name(each, index): functions.when(
            functions.col(CLAUSE) == each.number, each.values[field.name]
        )
        for each in changing
        for index, field in enumerate(schema.fields)
        if field.name in each.values
    }
    olds = {
        _old_name(index): old(field.name)
        for index, field in enumerate(schema.fields)
        if old is not None and any(_needs_old(field, each) for each in changing)
    }
    columns = {**kept, CLAUSE: functions.col(CLAUSE), **values, **olds}
    evaluated = rows.select(*(column.alias(name) for name, column in columns.items()))
    have = {field.name: field for field in evaluated.schema.fields}
    conversion = conform_rows.Conversion(spark, lacking)

    def branch(each: Assigned, index: int, field: Field) -> Column | None:
        if field.name in each.values:
            before = functions.col(_old_name(index)) if _needs_old(field, each) else None
            return conversion.column(have[_value_name(each, index)], field, before)
        if GENERATION in field.metadata:
            return None  # comes from the other columns, below
        if each.clause.action == "update":
            return functions.col(_old_name(index))
        return conform_rows.default_column(spark, table, field)

    def new_value(index: int, field: Field) -> Column:
        kind = spark_type(field.type).simpleString()
        if (
            changing
            and all(field.name not in each.values and _needs_old(field, each) for each in changing)
            and have[_old_name(index)].dataType.simpleString() == kind
        ):
            # By functions the same takes some fifty calls into the JVM.
            numbers = ", ".join(str(each.number) for each in changing)
            value = f"CASE WHEN {CLAUSE} IN ({numbers}) THEN {_old_name(index)} END"
            return expressions.column(spark, f"{value} AS {quote(field.name)}")
        branches = [(each.number, branch(each, index, field)) for each in changing]
        return _chosen(field, branches).alias(field.name)

    new = [new_value(index, field) for index, field in enumerate(schema.fields)]
    carried = [quote(name) for name in (*kept, CLAUSE)]
    return _generated(spark, table, evaluated.select(*new, *carried), schema, changing)


def _value_name(each: Assigned, index: int) -> str:
    return f"__delvec_new_{each.number}_{index}"


def _old_name(index: int) -> str:
    return f"__delvec_old_{index}"


def _needs_old(field: Field, each: Assigned) -> bool:
    """Return whether the new value of a column is its old one, or takes fields from it."""
    if each.clause.action != "update":
        return False
    if field.name in each.values:
        return each.keeps_fields and isinstance(field.type, StructType)
    return GENERATION not in field.metadata


def _chosen(field: Field, branches: Sequence[tuple[int, Column | None]]) -> Column:
    """Return the value of the clause that handles a row, null for the rows of no clause."""
    chosen: Column | None = None
    for number, value in branches:
        if value is not None:
            is_its = functions.col(CLAUSE) == number
            chosen = functions.when(is_its, value) if chosen is None else chosen.when(is_its, value)
    return (functions.lit(None) if chosen is None else chosen).cast(spark_type(field.type))


def _generated(
    spark: SparkSession,
    table: str,
    rows: DataFrame,
    schema: StructType,
    changing: Sequence[Assigned],
) -> DataFrame:
    """Fill generated columns from the new values, where a clause gives them none itself."""
    missing = {
        field.name: [each.number for each in changing if field.name not in each.values]
        for field in schema.fields
        if GENERATION in field.metadata
    }
    fields = [schema.field(name) for name, numbers in missing.items() if numbers]
    filled = conform_rows.generated_columns(spark, table, schema, fields)
    for name, value in filled.items():
        is_missing = functions.col(CLAUSE).isin(missing[name])
        filled[name] = functions.when(is_missing, value).otherwise(functions.col(quote(name)))
    return rows.withColumns(filled) if filled else rows
