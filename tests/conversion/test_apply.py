"""What carrying out a plan reports, and what it leaves as it was."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.conversion import apply
from delvec.errors import VerificationError
from tests.delta.builder import small_table
from tests.spark.delta.spark_tables import sql


@pytest.mark.more
@pytest.mark.spark
def test_phases_are_reported_in_order_and_the_callers_job_description_is_restored(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, _ = small_table(tmp_path / "source")
    context: Any = spark.sparkContext
    context.setJobDescription("mine")
    try:
        report = delvec.convert(spark, source.root, "lake.apply.phases")
        again = delvec.convert(spark, source.root, "lake.apply.phases")
        assert context.getLocalProperty("spark.job.description") == "mine"
    finally:
        context.setJobDescription(None)
    assert list(report.phases) == ["plan", "vectors", "stage", "verify", "publish"]
    assert list(again.phases) == ["plan"]
    assert (report.rows, report.deleted_rows) == (again.rows, again.deleted_rows) == (16, 4)
    assert (report.vector_files, again.vector_files) == (1, 0)


@pytest.mark.slow
@pytest.mark.spark
def test_files_with_the_same_rows_are_not_named_whatever_their_names(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = ["a b", "c%20d", "e%2520f", "ü&", "plain"]
    rows = ", ".join(f"({number}, '{value}')" for number, value in enumerate(values))
    sql(
        spark,
        tmp_path / "source",
        "CREATE TABLE {T} (id LONG, p STRING) USING delta PARTITIONED BY (p)",
        f"INSERT INTO {{T}} VALUES {rows}",
    )
    sums = count()
    monkeypatch.setattr(apply, "row_sums", lambda *_: (next(sums), 0))
    with pytest.raises(VerificationError) as different:
        delvec.convert(spark, tmp_path / "source", "lake.apply.named", verify="rows")
    assert not different.value.files
