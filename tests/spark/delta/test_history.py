"""History and versions at a time, held against those of delta-spark."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from delvec.delta.log.history import SCHEMA, find_version_at, history
from delvec.delta.log.paths import commit_key
from delvec.errors import InvalidArgumentError
from delvec.storage import Storage

NOON = datetime(2024, 1, 31, 12, tzinfo=timezone.utc)


def set_time(root: Path, version: int, moment: datetime) -> None:
    nanoseconds = round(moment.timestamp() * 1000) * 1_000_000
    os.utime(root / commit_key(version), ns=(nanoseconds, nanoseconds))


def described(spark: SparkSession, path: Path) -> list[dict[str, Any]]:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    frame = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").select(*SCHEMA.names)
    table: pa.Table = frame.toArrow()
    return [comparable(row) for row in table.cast(SCHEMA).to_pylist()]


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    maps = ("operationParameters", "operationMetrics")
    return row | {name: None if row[name] is None else dict(row[name]) for name in maps}


def recent(*numbers: float) -> list[datetime]:
    """Give times of today: delta-spark reads no version older than what VACUUM keeps."""
    morning = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(hours=10)
    return [morning + timedelta(hours=number) for number in numbers]


def agree_on_times(spark: SparkSession, path: Path) -> None:
    """Ask delta-spark and delvec for the version at, just before and just after each commit."""
    storage = Storage.open(path)
    rows = history(storage)
    step = timedelta(milliseconds=1)
    moments = [moment + n * step for moment in rows["timestamp"].to_pylist() for n in (-1, 0, 1)]
    for moment in moments:
        text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
        ours = theirs = None
        try:
            ours = find_version_at(storage, text)
        except InvalidArgumentError as error:
            assert "newest" in str(error) or "oldest" in str(error)  # noqa: PT017
        reader = spark.read.format("delta").option("timestampAsOf", text)
        try:
            # Version n has the rows 0 to n: their count tells which one was read.
            theirs = reader.load(str(path)).count() - 1
        except Exception as error:  # noqa: BLE001
            assert "DELTA_TIMESTAMP_" in str(error)  # noqa: PT017
        assert ours == theirs, text


def write_rows(spark: SparkSession, path: Path, start: int, end: int) -> None:
    for number in range(start, end):
        row = spark.range(number, number + 1)
        row.coalesce(1).write.format("delta").mode("append").save(str(path))


@pytest.mark.spark
@pytest.mark.slow
def test_history_is_that_of_delta_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_rows(spark, path, 0, 2)
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors'=true)")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id FROM range(100, 120, 1, 1)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id IN (103, 105) AND id > 3")
    spark.sql(f"UPDATE delta.`{path}` SET id = id + 1000 WHERE id = 110")
    spark.sql(f"OPTIMIZE delta.`{path}`")
    spark.sql(f"RESTORE delta.`{path}` TO VERSION AS OF 3")
    set_time(path, 4, datetime(2024, 5, 6, tzinfo=timezone.utc))
    found = [comparable(row) for row in history(Storage.open(path)).to_pylist()]
    assert found == described(spark, path)
    assert [row["operation"] for row in found][:4] == ["RESTORE", "OPTIMIZE", "UPDATE", "DELETE"]


@pytest.mark.spark
@pytest.mark.slow
def test_versions_at_times_of_files_are_those_of_delta_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    write_rows(spark, path, 0, 5)
    for version, moment in enumerate(recent(0, 2, 1, 2, 3)):
        set_time(path, version, moment)
    found = [comparable(row) for row in history(Storage.open(path)).to_pylist()]
    assert found == described(spark, path)
    agree_on_times(spark, path)


@pytest.mark.slow
@pytest.mark.spark
def test_versions_at_times_in_commits_are_those_of_delta_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    write_rows(spark, path, 0, 2)
    for version, moment in enumerate(recent(0, 1)):
        set_time(path, version, moment)
    spark.sql(
        f"CREATE OR REPLACE TABLE delta.`{path}` USING delta"
        " TBLPROPERTIES ('delta.enableInCommitTimestamps'='true') AS SELECT id FROM range(3)"
    )
    write_rows(spark, path, 3, 6)
    for version in range(2, 6):
        set_time(path, version, NOON)
    found = [comparable(row) for row in history(Storage.open(path)).to_pylist()]
    assert found == described(spark, path)
    agree_on_times(spark, path)
