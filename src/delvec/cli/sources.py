"""Rows from files or from another table, for the commands that write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from delvec.delta.table import DeltaTable
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from delvec.iceberg.table import IcebergTable

__all__ = ["rows_from"]

_NAMED: Final = re.compile(r"\.(parquet|csv|json|jsonl|ndjson)(\.[a-z0-9]+)?/?$", re.IGNORECASE)
# A value of the wrong type is an error, not a NULL.
_CSV: Final = {"header": True, "mode": "FAILFAST", "enforceSchema": False}
_JSON: Final = {"mode": "FAILFAST"}


def rows_from(
    spark: SparkSession,
    target: DeltaTable | IcebergTable,
    source: str,
    kind: str | None,
    options: Mapping[str, str],
) -> DataFrame:
    """Return the rows of a source; columns of CSV and JSON get the target's types."""
    kind = kind or _kind(spark, source, options)
    if kind == "delta":
        return DeltaTable.for_path(spark, source, options).to_df()
    if kind == "parquet":
        return spark.read.parquet(source)
    return _typed(spark, target, source, kind)


def _kind(spark: SparkSession, source: str, options: Mapping[str, str]) -> str:
    if match := _NAMED.search(source):
        ending = match[1].lower()
        return ending if ending in {"parquet", "csv"} else "json"
    if DeltaTable.is_delta_table(source, options, spark=spark):
        return "delta"
    raise InvalidArgumentError(
        f"{source} is not a Delta table, and its name does not show its format",
        hint="pass --format parquet, csv, json or delta",
    )


def _typed(
    spark: SparkSession, target: DeltaTable | IcebergTable, source: str, kind: str
) -> DataFrame:
    """Read CSV or JSON twice: for the names of the columns, then with the target's types."""
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415

    from delvec.spark.types import table_schema  # noqa: PLC0415

    if isinstance(target, DeltaTable):
        columns = table_schema(target.schema.fields)
    else:
        columns = target.schema
    known = {field.name.lower(): field.dataType for field in columns}
    reader = spark.read.format(kind).options(**(_CSV if kind == "csv" else _JSON))
    inferred = reader.option("inferSchema", True).load(source).schema
    schema = [
        StructField(field.name, known.get(field.name.lower(), field.dataType)) for field in inferred
    ]
    return reader.option("inferSchema", False).schema(StructType(schema)).load(source)
