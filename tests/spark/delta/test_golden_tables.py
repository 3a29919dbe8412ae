"""Tables that Delta's own projects keep for their tests, read by every way on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import delvec.delta.table as delta
from delvec.errors import DelvecError
from tests.delta.golden import FUTURE, TABLES, check
from tests.delta.rows import same_rows
from tests.spark.delta.readers import READERS, ZONE, read, read_frame, settings_of

# Where the timestamps in the partition values of one table were written.
LOS_ANGELES = {ZONE: "America/Los_Angeles"}

# Each read by the data source starts processes of Python: the rest runs with the slow tests.
BY_SOURCE = {
    "dv-with-columnmapping",
    "table-with-columnmapping-mode-id",
    "data-reader-partition-values",
}
ON_SPARK = [
    pytest.param(
        name, reader, marks=[pytest.mark.slow] * (reader == "source" and name not in BY_SOURCE)
    )
    for name in TABLES
    for reader in READERS
]


@pytest.mark.first_cases(8)
@pytest.mark.spark
@pytest.mark.parametrize(("name", "reader"), ON_SPARK)
def test_every_reader_gives_the_expected_rows(
    spark: SparkSession, golden: Path, name: str, reader: str
) -> None:
    with settings_of(spark, LOS_ANGELES):
        check(read(reader, spark, golden / name / "delta"), golden, name)
        assert delta.DeltaTable.for_path(spark, golden / name / "delta").count() == TABLES[name][0]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("version", [9, 12])
def test_versions_of_a_table_with_vectors_are_what_delta_spark_reads(
    spark: SparkSession, golden: Path, version: int
) -> None:
    path = golden / "dv-partitioned-with-checkpoint" / "delta"
    expected = spark.read.format("delta").option("versionAsOf", version).load(str(path)).toArrow()
    for reader in ("to_df", "to_arrow"):
        assert same_rows(read(reader, spark, path, version), expected)


@pytest.mark.spark
@pytest.mark.parametrize("reader", ["to_df", "source"])
def test_spark_refuses_a_protocol_from_the_future(
    spark: SparkSession, golden: Path, reader: str
) -> None:
    kind = DelvecError if reader == "to_df" else Exception
    with pytest.raises(kind, match="99"):
        read_frame(reader, spark, golden / FUTURE / "delta").collect()
