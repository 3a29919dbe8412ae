"""Tables that delta-spark and delvec write are sound, and repairs help delta-spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.delta.check.report import CheckReport
from tests.delta.builder import TableBuilder
from tests.delta.check.checks import INLINE, PADDED, checked, table_with
from tests.delta.check.test_repair import damaged_checkpoint
from tests.delta.write.write_checks import ids
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import settings_of

pytestmark = pytest.mark.spark

EVERY_TYPE = """
id bigint, part string, i int, s string, b binary, d decimal(20, 4), f double, day date,
at timestamp, ntz timestamp_ntz, flag boolean, st struct<x int, y string>, arr array<string>
"""
VALUES = """
id, concat('p', id % 2), int(id % 7), repeat(concat('s', id), 20), cast(concat('b', id) as binary),
cast(id as decimal(20, 4)), if(id % 9 = 0, double('NaN'), double(id) / 3),
date_add(date'1500-01-01', int(id * 1000)), timestamp_micros(id * 1000003),
timestamp_ntz'2026-01-01 10:00:00' + make_dt_interval(0, 0, 0, id), if(id % 3 = 0, null, true),
if(id % 4 = 0, null, named_struct('x', int(id), 'y', concat('y', id))), array(concat('a', id))
"""
PROPERTIES = {
    "many, in partitions": {"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"},
    "mapped by id": {"delta.columnMapping.mode": "id"},
    "with change feed": {"delta.enableChangeDataFeed": "true"},
    "v2 checkpoints": {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "3"},
    "in-commit timestamps": {"delta.enableInCommitTimestamps": "true"},
    "prefixes": {"delta.randomizeFilePrefixes": "true"},
}
# By default it makes thousands of tasks.
VACUUM = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}
NAMES = "id, part, i, s, b, d, f, day, at, ntz, flag, st, arr"


def made(spark: SparkSession, path: Path, **options: Any) -> None:  # noqa: ANN401
    spark_tables.create(spark, path, EVERY_TYPE, **options)
    for at in range(2):
        rows = f"(SELECT * FROM range({at * 50}, {at * 50 + 50}, 1, 1))"
        spark_tables.sql(spark, path, f"INSERT INTO {{T}} SELECT {VALUES} FROM {rows}")


def changed_by_delta_spark(spark: SparkSession, path: Path) -> None:
    source = f"(SELECT {VALUES} FROM range(90, 110, 1, 1)) AS v({NAMES})"
    spark_tables.sql(
        spark,
        path,
        "DELETE FROM {T} WHERE id % 10 = 0",
        "UPDATE {T} SET s = 'new' WHERE id % 10 = 1",
        f"MERGE INTO {{T}} t USING (SELECT * FROM {source}) s ON t.id = s.id"
        " WHEN MATCHED AND s.id % 2 = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET *"
        " WHEN NOT MATCHED THEN INSERT *",
    )


def changed_by_delvec(spark: SparkSession, path: Path) -> None:
    table = DeltaTable.for_path(spark, path)
    table.delete("id % 10 = 2")
    table.update({"s": "'newer'"}, where="id % 10 = 3")
    source = table.to_df().where("id < 20").selectExpr("*")
    table.merge(source, on="t.id = s.id").when_matched_delete("s.id < 9").execute()


def problems(report: CheckReport) -> list[str]:
    """Errors and warnings; orphan files are no problem."""
    return [str(each) for each in report.findings if each.severity != "info"]


@pytest.mark.slow
@pytest.mark.parametrize("form", PROPERTIES)
def test_tables_are_sound_after_each_writer(spark: SparkSession, tmp_path: Path, form: str) -> None:
    path, parts = tmp_path / "t", ["part"] * ("partitions" in form)
    made(spark, path, partitioned_by=parts, properties=PROPERTIES[form])
    changed_by_delta_spark(spark, path)
    report = checked(path, sample=100)
    assert (problems(report), report.sampled_files) == ([], report.data_files)
    assert report.vectors > 0
    changed_by_delvec(spark, path)
    assert problems(checked(path, sample=100)) == []
    spark_tables.sql(spark, path, "OPTIMIZE {T}", "DELETE FROM {T} WHERE id % 10 = 4")
    DeltaTable.for_path(spark, path).checkpoint()
    report = checked(path, sample=100)
    assert (problems(report), report.checkpoints) == ([], 1)


def vacuum(spark: SparkSession, path: Path, retention: str = "") -> None:
    with settings_of(spark, VACUUM):
        spark_tables.sql(spark, path, f"VACUUM {{T}} {retention}")


@pytest.mark.slow
def test_a_vector_in_the_log_breaks_vacuum_until_it_is_repaired(
    spark: SparkSession, tmp_path: Path
) -> None:
    table_with(tmp_path, INLINE)
    with pytest.raises(Exception, match="MatchError"):
        vacuum(spark, tmp_path)
    before = ids(tmp_path)
    report = checked(tmp_path, repair=True)
    assert (problems(report), report.repaired_version) == ([], 3)
    vacuum(spark, tmp_path)
    assert read_by_delta_spark(spark, tmp_path) == ids(tmp_path) == before
    assert ids(tmp_path, version=2) == before


def read_by_delta_spark(spark: SparkSession, path: Path) -> list[int]:
    spark.catalog.clearCache()
    return sorted(
        row[0] for row in spark_tables.as_delta_spark_reads(spark, path).select("id").collect()
    )


@pytest.mark.slow
def test_a_padded_vector_is_read_rightly_by_delta_spark_once_it_is_repaired(
    spark: SparkSession, tmp_path: Path
) -> None:
    table_with(tmp_path, PADDED)
    checked(tmp_path, repair=True)
    assert read_by_delta_spark(spark, tmp_path) == ids(tmp_path) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    [row] = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}` LIMIT 1").collect()
    assert (row["version"], row["operation"]) == (3, "FSCK REPAIR")
    assert row["operationMetrics"]["numVectorsRewritten"] == "1"


@pytest.mark.slow
def test_an_absolute_vector_survives_vacuum_once_it_is_repaired(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = TableBuilder(tmp_path)
    [vector] = table.write_vectors([3])
    vector |= {"storageType": "p", "pathOrInlineDv": table.vector_path().as_uri()}
    table_with(tmp_path, vector, table=table)
    checked(tmp_path, repair=True)
    vacuum(spark, tmp_path, "RETAIN 0 HOURS")
    assert problems(checked(tmp_path)) == []
    assert read_by_delta_spark(spark, tmp_path) == ids(tmp_path) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.more
def test_delta_spark_goes_by_the_commits_once_a_damaged_checkpoint_is_set_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    damaged_checkpoint(tmp_path, "cut")
    checked(tmp_path, repair=True)
    assert read_by_delta_spark(spark, tmp_path) == ids(tmp_path)
    spark_tables.sql(spark, tmp_path, "INSERT INTO {T} VALUES (1000)")
    assert read_by_delta_spark(spark, tmp_path) == ids(tmp_path)
    assert 1000 in ids(tmp_path)
