"""Columns as files and the log hold them: physical names, partition values as strings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions

from delvec.delta.schema.partition_values import HIVE_NULL
from delvec.delta.schema.types import PrimitiveType
from delvec.identifiers import quote
from delvec.spark import sql_text
from delvec.spark.types import file_schema, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from delvec.delta.schema.types import Field

__all__ = ["file_column", "partition_string"]

# Independent of the session's time zone, and of hours that its clocks show twice.
_UTC_CLOCK: Final = (
    "CAST(TIMESTAMP_NTZ'1970-01-01 00:00:00'"
    " + unix_micros({column}) * INTERVAL '0.000001' SECOND AS STRING)"
)
_UTC_STRING: Final = (
    "concat(replace(split_part({clock}, '.', 1), ' ', 'T'), '.',"
    " rpad(split_part({clock}, '.', 2), 6, '0'), 'Z')"
)


def file_column(field: Field, *, with_ids: bool) -> Column:
    """Return a column under its physical name, with physical names and ids of nested fields."""
    in_file = file_schema([field], by_id=with_ids).fields[0]
    column = functions.col(quote(field.name))
    if not isinstance(field.type, PrimitiveType) and in_file.dataType != spark_type(field.type):
        column = column.cast(in_file.dataType)  # nested names are matched by position
    return column.alias(field.physical_name, metadata=in_file.metadata)


def partition_string(spark: SparkSession, field: Field) -> Column:
    """Return a partition column as the string that the log keeps for each value.

    An empty string and Hive's name for null are null, as for delta-spark. Timestamps are in UTC;
    bytes must be UTF-8.
    """
    column, name = quote(field.name), str(field.type)
    if name == "timestamp":
        text = _UTC_STRING.format(clock=_UTC_CLOCK.format(column=column))
    elif name in ("string", "binary"):
        plain = column if name == "string" else f"validate_utf8(CAST({column} AS STRING))"
        text = f"CASE WHEN {plain} NOT IN ('', '{HIVE_NULL}') THEN {plain} END"
    else:
        text = f"CAST({column} AS STRING)"
    return sql_text.column(spark, text).alias(field.physical_name)
