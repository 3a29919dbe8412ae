"""What carrying out a plan reports, and what it leaves as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import delvec
from tests.delta.builder import small_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


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
