"""Tables that delta-spark writes and reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "as_delta_spark_reads",
    "create",
    "sql",
]


def create(
    spark: SparkSession,
    path: Path,
    columns: str,
    *,
    partitioned_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> None:
    """Create an empty table with vectors on."""
    settings = {"delta.enableDeletionVectors": "true", **(properties or {})}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in settings.items())
    parts = f"PARTITIONED BY ({', '.join(partitioned_by)})" if partitioned_by else ""
    spark.sql(
        f"CREATE TABLE delta.`{path}` ({columns}) USING delta {parts} TBLPROPERTIES ({listed})"
    )


def sql(spark: SparkSession, path: Path, *statements: str) -> None:
    """Run statements, in which `T` in braces stands for the table."""
    for statement in statements:
        spark.sql(statement.replace("{T}", f"delta.`{path}`"))


def as_delta_spark_reads(spark: SparkSession, path: Path, version: int | None = None) -> DataFrame:
    reading = spark.read.format("delta")
    if version is not None:
        reading = reading.option("versionAsOf", version)
    return reading.load(str(path))
