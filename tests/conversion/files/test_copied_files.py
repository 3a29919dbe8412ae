"""Arrays and maps in tables with column mapping: files that Iceberg cannot read as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.errors import UnsupportedFeatureError
from tests.spark.delta.spark_tables import as_delta_spark_reads, sql

COLUMNS = (
    "id LONG, l ARRAY<INT>, m MAP<STRING, LONG>, s STRUCT<a: INT, inner: ARRAY<STRING>>,"
    " ls ARRAY<STRUCT<x: INT, y: STRING>>"
)
ROWS = """
SELECT id, array(int(id), 7) AS l, map('k', id) AS m,
  named_struct('a', int(id), 'inner', array(string(id))) AS s,
  array(named_struct('x', int(id), 'y', 'q')) AS ls
FROM range({start}, {stop}, 1, 2)
"""

pytestmark = pytest.mark.spark


def make(spark: SparkSession, path: Path, mode: str) -> None:
    properties = f"'delta.columnMapping.mode' = '{mode}', 'delta.enableDeletionVectors' = 'true'"
    sql(spark, path, f"CREATE TABLE {{T}} ({COLUMNS}) USING delta TBLPROPERTIES ({properties})")
    sql(spark, path, f"INSERT INTO {{T}} {ROWS.format(start=0, stop=40)}")
    sql(spark, path, "DELETE FROM {T} WHERE id % 5 = 0")


def rows(frame: object) -> list[str]:
    return sorted(map(str, frame.collect()))  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["name", "id"])
def test_children_of_arrays_and_maps_are_readable_with_column_mapping(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    path, target = tmp_path / "t", f"lake.copies.mapped_{mode}"
    make(spark, path, mode)
    with pytest.raises(UnsupportedFeatureError, match=r"arrays and maps, the first is .*parquet"):
        delvec.convert(spark, path, target)
    first = delvec.convert(spark, path, target, copy_files=True, verify="rows")
    assert (first.files_added, first.files_copied, first.vectors_added) == (2, 2, 2)
    assert rows(spark.table(target)) == rows(as_delta_spark_reads(spark, path))

    # Vectors of copies are replaced, new files are copied, and known ones are not copied again.
    sql(spark, path, "DELETE FROM {T} WHERE id % 7 = 0")
    sql(spark, path, f"INSERT INTO {{T}} {ROWS.format(start=100, stop=104)}")
    sql(spark, path, "ALTER TABLE {T} RENAME COLUMN l TO list")
    plan = delvec.plan_conversion(spark, path, target, copy_files=True)
    assert plan.mode == "incremental"
    assert plan.counts()["add"] == plan.apply("rows").files_copied > 0
    assert plan.counts()["vector-replace"] == 2
    assert rows(spark.table(target)) == rows(as_delta_spark_reads(spark, path))

    sql(spark, path, "OPTIMIZE {T}")
    assert delvec.convert(spark, path, target, copy_files=True, verify="rows").files_copied == 1
    assert rows(spark.table(target)) == rows(as_delta_spark_reads(spark, path))


@pytest.mark.slow
def test_files_without_any_ids_are_shared_after_column_mapping_was_switched_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, target = tmp_path / "t", "lake.copies.upgraded"
    sql(spark, path, f"CREATE TABLE {{T}} ({COLUMNS}) USING delta")
    sql(spark, path, f"INSERT INTO {{T}} {ROWS.format(start=0, stop=40)}")
    properties = "'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true'"
    sql(spark, path, f"ALTER TABLE {{T}} SET TBLPROPERTIES ({properties})")
    sql(spark, path, "DELETE FROM {T} WHERE id % 5 = 0")
    report = delvec.convert(spark, path, target, verify="rows")
    assert (report.files_added, report.files_copied) == (2, 0)
    assert rows(spark.table(target)) == rows(as_delta_spark_reads(spark, path))
