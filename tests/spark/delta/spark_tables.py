"""Tables that delta-spark writes and reads.

Its plans are interpreted where this module runs them: it judges, and is not what is tested. What
delvec reads and writes runs as users run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession

from tests.spark.delta.readers import INTERPRETED, settings_of


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
    statement = f"CREATE TABLE {{T}} ({columns}) USING delta {parts} TBLPROPERTIES ({listed})"
    sql(spark, path, statement)


def sql(spark: SparkSession, path: Path, *statements: str) -> None:
    """Run statements, in which `T` in braces stands for the table."""
    with settings_of(spark, INTERPRETED):
        for statement in statements:
            spark.sql(statement.replace("{T}", f"delta.`{path}`"))


def collected(df: DataFrame) -> list[Row]:
    """Give the rows of a frame that delta-spark reads."""
    with settings_of(df.sparkSession, INTERPRETED):
        return df.collect()


def as_delta_spark_reads(spark: SparkSession, path: Path, version: int | None = None) -> DataFrame:
    reading = spark.read.format("delta")
    if version is not None:
        reading = reading.option("versionAsOf", version)
    return reading.load(str(path))
