"""Damaged, forged and future tables on Spark: an error that names what and where, never a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import delvec.delta.table as delta
from delvec.errors import DelvecError
from tests.delta.builder import small_table
from tests.delta.log.damages import CASES
from tests.spark.delta.readers import read_frame, settings_of

# Each read by the data source starts processes of Python, twice: the rest runs with the slow tests.
BY_SOURCE = {
    "a_flipped_byte_in_a_vector",
    "a_commit_that_is_missing_in_the_middle",
    "a_feature_from_the_future",
}


def marks(name: str, form: str = "") -> list[Any]:
    slow = form == "source" and name not in BY_SOURCE
    return [pytest.mark.slow] * slow


ON_SPARK = [
    pytest.param(name, form, marks=marks(name, form))
    for name in CASES
    for form in ("to_df", "by rows", "source")
    if form != "by rows" or "vector" in name or "position" in name
]


@pytest.mark.first_cases(12)
@pytest.mark.spark
@pytest.mark.parametrize(("name", "form"), ON_SPARK)
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


@pytest.mark.spark
def test_spark_honours_vectors_when_the_property_that_writes_them_is_off(
    spark: SparkSession, tmp_path: Path
) -> None:
    table, _ = small_table(tmp_path)
    table.properties = {"delta.enableDeletionVectors": "false"}
    table.commit({"metaData": table.metadata()})
    frame = delta.DeltaTable.for_path(spark, tmp_path).to_df()
    alive = [*range(1, 9), *range(10, 13), *range(15, 20)]
    assert sorted(frame.toArrow().column("id").to_pylist()) == alive
