"""SQL that delvec makes, of names and values of a table: Spark takes it as it is written.

The parser of a session first replaces `${env:X}`, `${spark.x}` and the like by what they stand for,
within quoted names and strings too: a column of that name would be one called like a secret. So
whatever is made of a table's words is parsed here, by Spark's parser without that step, and not
given to `functions.expr`, `selectExpr` or `spark.sql`. Those are for the caller's own words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.classic.column import Column as ClassicColumn

from delvec.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

__all__ = ["column", "project", "run"]

_PARSER = "org.apache.spark.sql.catalyst.parser.CatalystSqlParser"


def column(spark: SparkSession, text: str) -> Column:
    """Return the column that an expression is, with a name for it or without one."""
    columns = jvm.java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
    found: Any = ClassicColumn(columns.column(_parser(spark).parseExpression(text)))
    return found  # type: ignore[no-any-return]


def project(rows: DataFrame, *texts: str) -> DataFrame:
    """Return some expressions of rows, as `selectExpr`; in a few calls, however many they are."""
    spark = rows.sparkSession
    chosen = _parser(spark).parsePlan(f"SELECT {', '.join(texts)}").projectList()
    below: Any = rows._jdf  # noqa: SLF001
    plans = jvm.java_class(spark, "org.apache.spark.sql.catalyst.plans.logical.Project")
    return _frame(spark, plans(chosen, below.logicalPlan()), below.sparkSession())


def run(spark: SparkSession, statement: str) -> DataFrame:
    """Run a statement, as `spark.sql`; a query is lazy."""
    return _frame(spark, _parser(spark).parsePlan(statement), jvm.session_of(spark))


def _parser(spark: SparkSession) -> Any:  # noqa: ANN401
    known = jvm.cache(spark)
    if _PARSER not in known:
        known[_PARSER] = jvm.java_class(spark, _PARSER)()
    jvm.activate(spark)  # a parser takes the settings of the active session
    return known[_PARSER]


def _frame(spark: SparkSession, plan: Any, session: Any) -> DataFrame:  # noqa: ANN401
    frames = jvm.java_class(spark, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(frames.ofRows(session, plan), spark)
