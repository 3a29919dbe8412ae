"""`spark.sql.storeAssignmentPolicy`: what an INSERT may put into columns of another type.

ANSI, Spark's default, is how delvec writes rows in any case: a value that does not fit is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions

from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote
from delvec.spark import jvm
from delvec.spark.catalyst import column_of, name_of
from delvec.spark.types import table_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

    from delvec.delta.schema.types import StructType

_POLICY: Final = "spark.sql.storeAssignmentPolicy"
_CATALYST: Final = "org.apache.spark.sql.catalyst.expressions"


def assigned(spark: SparkSession, rows: DataFrame, schema: StructType) -> DataFrame:
    """Return rows with the names of a table as the session's policy lets them be stored."""
    policy = (spark.conf.get(_POLICY, None) or "").upper()
    if policy not in ("LEGACY", "STRICT"):
        return rows
    wanted = {field.name.lower(): field for field in table_schema(schema.fields)}
    columns = []
    for given in rows.schema:
        column = functions.col(quote(given.name))
        field = wanted.get(given.name.lower())
        if field is not None and field.dataType != given.dataType:
            if policy == "STRICT":
                _require_wider(spark, given, field)
            else:
                column = _legacy_cast(spark, given, field)
        columns.append(column)
    return rows.select(*columns)


def _require_wider(spark: SparkSession, given: StructField, wanted: StructField) -> None:
    types = (jvm.java_type(spark, each.dataType) for each in (given, wanted))
    if not jvm.java_class(spark, f"{_CATALYST}.Cast").canUpCast(*types):
        raise InvalidArgumentError(
            f"column {wanted.name} is {wanted.dataType.simpleString()}, and {_POLICY} STRICT takes"
            f" no {given.dataType.simpleString()} for it",
            hint="cast the value in the statement",
        )


def _legacy_cast(spark: SparkSession, given: StructField, wanted: StructField) -> Column:
    """Return a cast of Spark before ANSI: what does not fit is null, or loses bits."""
    modes = getattr(jvm.java_class(spark, f"{_CATALYST}.EvalMode$"), "MODULE$")
    cast = jvm.java_class(spark, f"{_CATALYST}.Cast")(
        name_of(spark, [given.name]),
        jvm.java_type(spark, wanted.dataType),
        jvm.java_class(spark, "scala.Option").empty(),
        modes.LEGACY(),
    )
    return column_of(spark, cast).alias(given.name)
