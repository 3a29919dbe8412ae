"""History and versions at a time, held against those of delta-spark."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from delvec.delta.log.history import SCHEMA, find_version_at, history
from delvec.delta.log.paths import commit_key
from delvec.errors import InvalidArgumentError
from delvec.storage import Storage
from tests.spark.delta.lake import Lake
from tests.spark.delta.readers import ZONE, settings_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOON = datetime(2024, 1, 31, 12, tzinfo=timezone.utc)
IN_COMMITS = "'delta.enableInCommitTimestamps'='true'"


def set_times(lake: Lake, *moments: datetime, first: int = 0) -> None:
    for version, moment in enumerate(moments, first):
        nanoseconds = round(moment.timestamp() * 1000) * 1_000_000
        os.utime(lake.path / commit_key(version), ns=(nanoseconds, nanoseconds))


def agree(lake: Lake) -> list[dict[str, Any]]:
    """Compare the histories of both engines."""
    with settings_of(lake.spark, {ZONE: "UTC"}):
        frame = lake.spark.sql(f"DESCRIBE HISTORY delta.`{lake.path}`").select(*SCHEMA.names)
        theirs: pa.Table = frame.toArrow().cast(SCHEMA)
    found = [comparable(row) for row in history(Storage.open(lake.path)).to_pylist()]
    assert found == [comparable(row) for row in theirs.to_pylist()]
    return found


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    maps = ("operationParameters", "operationMetrics")
    return row | {name: None if row[name] is None else dict(row[name]) for name in maps}


def recent(*numbers: float) -> list[datetime]:
    """Give times of today: delta-spark reads no version older than what VACUUM keeps."""
    morning = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(hours=10)
    return [morning + timedelta(hours=number) for number in numbers]


def agree_on_times(lake: Lake) -> None:
    """Ask delta-spark and delvec for the version at, just before and just after each commit."""
    storage, step = Storage.open(lake.path), timedelta(milliseconds=1)
    times = [row["timestamp"] for row in agree(lake)]
    for moment in (time + n * step for time in times for n in (-1, 0, 1)):
        text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
        ours = theirs = None
        try:
            ours = find_version_at(storage, text)
        except InvalidArgumentError as error:
            assert "newest" in str(error) or "oldest" in str(error)  # noqa: PT017
        reader = lake.spark.read.format("delta").option("timestampAsOf", text)
        try:
            # Version n has the rows 0 to n: their count tells which one was read.
            theirs = reader.load(str(lake.path)).count() - 1
        except Exception as error:  # noqa: BLE001
            assert "DELTA_TIMESTAMP_" in str(error)  # noqa: PT017
        assert ours == theirs, text


def write_rows(lake: Lake, start: int, end: int) -> None:
    for number in range(start, end):
        row = lake.spark.range(number, number + 1).coalesce(1)
        row.write.format("delta").mode("append").save(str(lake.path))


def test_history_is_that_of_delta_spark(lake: Lake) -> None:
    write_rows(lake, 0, 2)
    lake.sql(
        "ALTER TABLE {T} SET TBLPROPERTIES ('delta.enableDeletionVectors'=true)",
        "INSERT INTO {T} SELECT id FROM range(100, 120, 1, 1)",
        "DELETE FROM {T} WHERE id IN (103, 105) AND id > 3",
        "UPDATE {T} SET id = id + 1000 WHERE id = 110",
        "OPTIMIZE {T}",
        "RESTORE {T} TO VERSION AS OF 3",
    )
    set_times(lake, datetime(2024, 5, 6, tzinfo=timezone.utc), first=4)
    operations = [row["operation"] for row in agree(lake)]
    assert operations[:4] == ["RESTORE", "OPTIMIZE", "UPDATE", "DELETE"]


def test_versions_at_times_of_files_are_those_of_delta_spark(lake: Lake) -> None:
    write_rows(lake, 0, 5)
    set_times(lake, *recent(0, 2, 1, 2, 3))
    agree_on_times(lake)


def test_versions_at_times_in_commits_are_those_of_delta_spark(lake: Lake) -> None:
    write_rows(lake, 0, 2)
    set_times(lake, *recent(0, 1))
    replaced = f"CREATE OR REPLACE TABLE {{T}} USING delta TBLPROPERTIES ({IN_COMMITS})"
    lake.sql(f"{replaced} AS SELECT id FROM range(3)")
    write_rows(lake, 3, 6)
    set_times(lake, *[NOON] * 4, first=2)
    agree_on_times(lake)
