"""Conditions, in SQL or as a Column, as predicates that prune the files of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, functions

from delvec.delta.pruning.predicate import Always, Unknown
from delvec.delta.write.targets import targets_of
from delvec.spark import jvm
from delvec.spark.conf import time_zone
from delvec.spark.delta.scan.file_lister import literal_pickler
from delvec.spark.delta.scan.pushdown import translate
from delvec.spark.types import table_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.pruning.predicate import Predicate
    from delvec.delta.schema.types import StructType
    from delvec.delta.write.targets import Targets

__all__ = ["ALIAS", "alias_in", "aliased", "no_rows", "plan_targets", "predicate_of", "sql_of"]

ALIAS: Final = "t"
"""What conditions and values may call the table, as those of a merge do."""


def alias_in(schema: StructType) -> str | None:
    """Return the alias of a table; none if it has a column of that name, whose fields are meant."""
    return None if ALIAS in {name.lower() for name in schema.names} else ALIAS


def aliased(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return rows of a table under its alias, for a condition or values that follow."""
    alias = alias_in(schema)
    return rows if alias is None else rows.alias(alias)


def predicate_of(spark: SparkSession, schema: StructType, where: str | Column) -> Predicate:
    """Return what is understood of a condition, which Spark parses and resolves; runs no job."""
    condition = functions.expr(where) if isinstance(where, str) else where
    nothing = no_rows(spark, schema)
    try:
        plan: Any = nothing.where(condition)._jdf.queryExecution().analyzed()  # noqa: SLF001
    except AnalysisException:
        return Unknown()  # wrong, or on another DataFrame: reported when it is applied to rows
    if plan.getClass().getSimpleName() != "Filter":
        return Unknown()  # conditions that Spark turns into joins, such as subqueries

    def column(path: tuple[str, ...]) -> tuple[str, ...]:
        return path

    return translate(plan.condition(), column, literal_pickler(spark))


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return no rows of a table, under its alias.

    PySpark would make them of an RDD, in tenfold the time.
    """
    java_type = jvm.java_class(spark, "org.apache.spark.sql.types.DataType")
    rows = jvm.java_class(spark, "java.util.ArrayList")()
    columns = java_type.fromJson(table_schema(schema.fields).json())
    return aliased(DataFrame(jvm.session_of(spark).createDataFrame(rows, columns), spark), schema)


def plan_targets(spark: SparkSession, snapshot: Snapshot, where: str | Column | None) -> Targets:
    """Return the files of a version that a condition may match, by the log; reads no row."""
    predicate = Always() if where is None else predicate_of(spark, snapshot.metadata.schema, where)
    return targets_of(snapshot, predicate, time_zone(spark))


def sql_of(where: str | Column) -> str:
    """Return a condition as the table's history shows it."""
    if isinstance(where, str):
        return where
    column: Any = where._jc  # noqa: SLF001
    return str(column.toString())
