"""Tables that others made, right, damaged, forged and future, read by every way on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import delvec.delta.table as delta
from delvec.errors import DelvecError
from tests.delta.builder import small_table
from tests.delta.golden import FUTURE, TABLES, check
from tests.delta.log.damages import CASES
from tests.delta.rows import same_rows
from tests.spark.delta.readers import READERS, ZONE, read, read_frame, settings_of

pytestmark = pytest.mark.spark

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
@pytest.mark.parametrize(("name", "reader"), ON_SPARK)
def test_every_reader_gives_the_expected_rows(
    spark: SparkSession, golden: Path, name: str, reader: str
) -> None:
    with settings_of(spark, LOS_ANGELES):
        check(read(reader, spark, golden / name / "delta"), golden, name)
        assert delta.DeltaTable.for_path(spark, golden / name / "delta").count() == TABLES[name][0]


@pytest.mark.slow
@pytest.mark.parametrize("version", [9, 12])
def test_versions_of_a_table_with_vectors_are_what_delta_spark_reads(
    spark: SparkSession, golden: Path, version: int
) -> None:
    path = golden / "dv-partitioned-with-checkpoint" / "delta"
    expected = spark.read.format("delta").option("versionAsOf", version).load(str(path)).toArrow()
    for reader in ("to_df", "to_arrow"):
        assert same_rows(read(reader, spark, path, version), expected)


@pytest.mark.parametrize("reader", ["to_df", "source"])
def test_spark_refuses_a_protocol_from_the_future(
    spark: SparkSession, golden: Path, reader: str
) -> None:
    kind = DelvecError if reader == "to_df" else Exception
    with pytest.raises(kind, match="99"):
        read_frame(reader, spark, golden / FUTURE / "delta").collect()


# As above: each read by the data source starts processes of Python, twice.
DAMAGED_BY_SOURCE = {
    "a_flipped_byte_in_a_vector",
    "a_commit_that_is_missing_in_the_middle",
    "a_feature_from_the_future",
}
DAMAGED = [
    pytest.param(
        name, form, marks=[pytest.mark.slow] * (form == "source" and name not in DAMAGED_BY_SOURCE)
    )
    for name in CASES
    for form in ("to_df", "by rows", "source")
    if form != "by rows" or "vector" in name or "position" in name
]


@pytest.mark.first_cases(12)
@pytest.mark.parametrize(("name", "form"), DAMAGED)
def test_spark_gives_an_error_that_names_what_and_where(
    spark: SparkSession, tmp_path: Path, name: str, form: str
) -> None:
    expected = CASES[name](tmp_path / "table")
    reader = "source" if form == "source" else "to_df"
    vectorized = {"spark.sql.parquet.enableVectorizedReader": str(form != "by rows").lower()}
    with (
        settings_of(spark, vectorized),
        pytest.raises((DelvecError, PySparkException, Py4JJavaError)) as caught,
    ):
        read_frame(reader, spark, tmp_path / "table").collect()
    for word in expected.words:
        assert word in str(caught.value)


def test_spark_honours_vectors_when_the_property_that_writes_them_is_off(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, _ = small_table(tmp_path)
    table.properties = {"delta.enableDeletionVectors": "false"}
    table.commit({"metaData": table.metadata()})
    frame = delta.DeltaTable.for_path(spark, tmp_path).to_df()
    alive = [*range(1, 9), *range(10, 13), *range(15, 20)]
    assert sorted(frame.toArrow().column("id").to_pylist()) == alive
