"""Dates before 1582 in files that were written by the calendar of those days."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.errors import UnsupportedFeatureError
from tests.spark.delta.spark_tables import as_delta_spark_reads

REBASE = "spark.sql.parquet.datetimeRebaseModeInWrite"
OLD = "SELECT id, date'1200-02-03' AS d, timestamp'2020-01-01' AS t FROM range(0, 3, 1, 1)"


@pytest.mark.slow
@pytest.mark.spark
def test_dates_of_another_calendar_are_refused_and_modern_ones_are_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = spark.conf.get(REBASE)
    try:
        for mode in ("LEGACY", "CORRECTED"):
            spark.conf.set(REBASE, mode)
            spark.sql(OLD).write.format("delta").save(str(tmp_path / mode))
    finally:
        spark.conf.set(REBASE, str(before))
    with pytest.raises(UnsupportedFeatureError, match=r"part-.*parquet .* before 1582") as caught:
        delvec.plan_conversion(spark, tmp_path / "LEGACY", "lake.calendars.legacy")
    assert caught.value.hint
    delvec.convert(spark, tmp_path / "CORRECTED", "lake.calendars.corrected", verify="rows")
    found = spark.table("lake.calendars.corrected").collect()
    assert found == as_delta_spark_reads(spark, tmp_path / "CORRECTED").collect()
