"""A condition in SQL or as a Column, as the predicate that it is for a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions

from delvec.delta.pruning.predicate import Always, Unknown
from delvec.delta.write.targets import targets_of
from delvec.spark import jvm
from delvec.spark.conf import time_zone
from delvec.spark.delta.scan.file_index import file_lister
from delvec.spark.delta.scan.pushdown import translate
from delvec.spark.types import table_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.pruning.predicate import Predicate
    from delvec.delta.schema.types import StructType
    from delvec.delta.write.targets import Targets

__all__ = ["plan_targets", "predicate_of", "text_of"]


def predicate_of(spark: SparkSession, schema: StructType, where: str | Column) -> Predicate:
    """Let Spark parse and check a condition, and give what is understood of it."""
    jvm.view_of(spark)
    condition = functions.expr(where) if isinstance(where, str) else where
    nothing = spark.createDataFrame([], table_schema(schema.fields))
    try:
        plan: Any = nothing.where(condition)._jdf.queryExecution().analyzed()  # noqa: SLF001
    except AnalysisException:
        return Unknown()  # of another DataFrame, or wrong: for who applies it to rows to say
    if plan.getClass().getSimpleName() != "Filter":
        return Unknown()  # conditions that Spark turns into joins, such as subqueries

    def column(path: tuple[str, ...]) -> tuple[str, ...]:
        return path

    return translate(plan.condition(), column, file_lister(spark).pickled)


def plan_targets(spark: SparkSession, snapshot: Snapshot, where: str | Column | None) -> Targets:
    """Sort the files of a version by what the log says of a condition; reads no row."""
    predicate = Always() if where is None else predicate_of(spark, snapshot.metadata.schema, where)
    return targets_of(snapshot, predicate, time_zone(spark))


def text_of(where: str | Column) -> str:
    """Give a condition as the table's history shows it."""
    if isinstance(where, str):
        return where
    column: Any = where._jc  # noqa: SLF001
    return str(column.toString())
