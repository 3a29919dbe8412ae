"""Conditions of a query as expressions of Iceberg's, to plan which files may match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from delvec.iceberg.client.catalog import iceberg_view
from delvec.iceberg.client.failures import explained
from delvec.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["iceberg_condition"]

_PLACES: Final = ("_file", "_pos")  # no columns of files


def iceberg_condition(rows: DataFrame, where: str | Column) -> Any:  # noqa: ANN401
    """Return what Iceberg understands of a condition, as an object of its own; None if nothing.

    Parts of a conjunction that it does not understand are omitted: files are pruned by the others,
    and Spark applies the condition to rows in any case.

    Args:
        rows: The rows that the condition is about.
        where: The condition.
    """
    spark = rows.sparkSession
    with explained("the condition"):
        plan: Any = rows.where(where)._jdf.queryExecution().analyzed()  # noqa: SLF001
        if plan.getClass().getSimpleName() != "Filter":
            return None  # it names metadata columns
        patterns = jvm.java_class(spark, "org.apache.spark.sql.catalyst.trees.TreePattern")
        if plan.condition().containsPattern(patterns.CURRENT_LIKE()):
            return None  # it means the time of the query, which is later
        folding = jvm.java_class(spark, "org.apache.spark.sql.catalyst.optimizer.ConstantFolding")
        condition = folding.apply(plan).condition()
        return _converted(spark, condition)


def _converted(spark: SparkSession, condition: Any) -> Any:  # noqa: ANN401
    if condition.getClass().getSimpleName() == "And":
        parts = [_converted(spark, each) for each in (condition.left(), condition.right())]
        known = [each for each in parts if each is not None]
        if len(known) > 1:
            return getattr(iceberg_view(spark).expressions.Expressions, "and")(*known)
        return known[0] if known else None
    subqueries = "org.apache.spark.sql.catalyst.expressions.SubqueryExpression"
    if jvm.java_class(spark, subqueries).hasSubquery(condition):
        return None  # Spark's own conversion, which Iceberg's calls first, never ends on them
    if any(each.name() in _PLACES for each in jvm.items(condition.references())):
        return None
    converter = jvm.java_class(
        spark, "org.apache.spark.sql.execution.datasources.SparkExpressionConverter"
    )
    try:
        return converter.convertToIcebergExpression(condition)
    except (Py4JError, PySparkException):
        return None  # pruning is optional
