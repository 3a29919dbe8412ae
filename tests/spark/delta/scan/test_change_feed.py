"""The change feed, held against delta-spark's."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from delvec.delta.read.change_feed import change_feed
from delvec.errors import InvalidArgumentError
from delvec.spark.delta.scan.scan import changes
from delvec.storage import Storage
from tests.delta import log_files
from tests.delta.builder import TableBuilder, removed
from tests.spark.delta import spark_tables

Rows = Counter[Any]

pytestmark = pytest.mark.spark

ROWS = "SELECT id, concat('n', id) name, CAST(id % 2 AS INT) p FROM range({}, {}, 1, 1)"
MERGE = (
    "MERGE INTO {T} t USING (SELECT id, concat('m', id) name, 0 p FROM range(18, 34, 4)) s"
    " ON t.id = s.id WHEN MATCHED AND s.id = 22 THEN DELETE WHEN MATCHED THEN UPDATE SET"
    " name = s.name WHEN NOT MATCHED THEN INSERT *"
)
STATEMENTS = (
    "INSERT INTO {T} " + ROWS.format(0, 20),
    "DELETE FROM {T} WHERE id IN (3, 4)",
    "DELETE FROM {T} WHERE id IN (5, 6)",
    "UPDATE {T} SET name = 'changed' WHERE id IN (7, 8)",
    "INSERT INTO {T} " + ROWS.format(20, 30),
    MERGE,
    "RESTORE {T} TO VERSION AS OF 2",
    "DELETE FROM {T} WHERE id < 2",
    "OPTIMIZE {T}",
    "INSERT INTO {T} " + ROWS.format(40, 44),
    "DELETE FROM {T} WHERE p = 0",
    "DELETE FROM {T}",
)
KINDS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "plain": ((), {}),
    "partitioned": (("p",), {}),
    "mapped": (("p",), {"delta.columnMapping.mode": "name"}),
    "mapped_by_id": ((), {"delta.columnMapping.mode": "id"}),
}


def table_of(spark: SparkSession, path: Path, kind: str) -> None:
    partitions, properties = KINDS[kind]
    spark_tables.create(
        spark,
        path,
        "id BIGINT, name STRING, p INT",
        partitioned_by=partitions,
        properties={"delta.enableChangeDataFeed": "true"} | properties,
    )


def as_delta_spark_reads(spark: SparkSession, path: Path, start: int, end: int) -> DataFrame:
    reading = spark.read.format("delta").option("readChangeFeed", "true")
    return reading.option("startingVersion", start).option("endingVersion", end).load(str(path))


def as_delvec_reads(
    spark: SparkSession, path: Path, start: int, end: int | None = None
) -> DataFrame:
    return changes(spark, Storage.open(path), start, end)


def bag(df: DataFrame) -> Rows:
    return Counter(map(tuple, df.collect()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_range_gives_the_rows_of_delta_spark(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "t"
    table_of(spark, path, kind)
    spark_tables.sql(spark, path, *STATEMENTS)
    newest = log_files.newest_version(path)
    whole = as_delta_spark_reads(spark, path, 0, newest)
    expected = bag(whole)
    found = as_delvec_reads(spark, path, 0)
    assert found.columns == whole.columns
    assert [field.dataType for field in found.schema] == [field.dataType for field in whole.schema]
    assert {row[3] for row in expected} == {
        "insert",
        "delete",
        "update_preimage",
        "update_postimage",
    }
    # Of one kind all ranges, of the others those of one version and the longest.
    ranges = [
        (start, end)
        for start in range(newest + 1)
        for end in range(start, newest + 1)
        if kind == "plain" or start in (0, end)
    ]
    for start, end in ranges:
        wanted = Counter({row: n for row, n in expected.items() if start <= row[4] <= end})
        assert bag(as_delvec_reads(spark, path, start, end)) == wanted, f"{start} to {end}"
    assert bag(as_delta_spark_reads(spark, path, 3, 7)) == Counter(
        {row: n for row, n in expected.items() if 3 <= row[4] <= 7}
    )


@pytest.mark.slow
def test_filters_on_what_was_added_keep_their_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table_of(spark, path, "partitioned")
    spark_tables.sql(spark, path, *STATEMENTS[:6])
    whole = as_delta_spark_reads(spark, path, 0, 6)
    for condition in (
        "_commit_version = 2",
        "_change_type = 'delete' AND p = 1",
        "id > 5 AND _commit_version IN (1, 4)",
        "_commit_timestamp IS NOT NULL AND name LIKE 'n1%'",
    ):
        found = as_delvec_reads(spark, path, 0).where(condition)
        assert bag(found) == bag(whole.where(condition)), condition
    assert as_delvec_reads(spark, path, 0).count() == whole.count()


@pytest.mark.slow
def test_new_columns_are_null_in_older_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table_of(spark, path, "plain")
    spark_tables.sql(
        spark,
        path,
        "INSERT INTO {T} VALUES (1, 'a', 0)",
        "ALTER TABLE {T} ADD COLUMNS (more STRING)",
        "INSERT INTO {T} VALUES (2, 'b', 0, 'c')",
    )
    found = as_delvec_reads(spark, path, 0)
    assert bag(found) == bag(as_delta_spark_reads(spark, path, 0, 3))
    assert bag(found.select("id", "more")) == Counter([(1, None), (2, "c")])


@pytest.mark.slow
def test_times_choose_versions_as_with_delta_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table_of(spark, path, "plain")
    spark_tables.sql(spark, path, *STATEMENTS[:3])
    times: dict[int, str] = dict(
        as_delta_spark_reads(spark, path, 0, 3)
        .select("_commit_version", functions.col("_commit_timestamp").cast("string"))
        .distinct()
        .collect()
    )
    storage = Storage.open(path)
    found = changes(spark, storage, start_timestamp=times[2], end_timestamp=times[2])
    assert {row[4] for row in bag(found)} == {2}
    found = changes(spark, storage, start_timestamp="2001-01-01")
    assert {row[4] for row in bag(found)} == {1, 2, 3}
    with pytest.raises(InvalidArgumentError, match="no commit as late"):
        changes(spark, storage, start_timestamp="2901-01-01")
    for version, time in ((None, None), (1, "2001-01-01")):
        with pytest.raises(InvalidArgumentError, match="start at a version or at a time"):
            changes(spark, storage, version, start_timestamp=time)


def test_ranges_that_cannot_be_read_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table_of(spark, path, "mapped")
    spark_tables.sql(
        spark,
        path,
        "INSERT INTO {T} VALUES (1, 'a', 0)",
        "ALTER TABLE {T} RENAME COLUMN name TO label",
        "ALTER TABLE {T} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')",
        "ALTER TABLE {T} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "INSERT INTO {T} VALUES (2, 'b', 0)",
    )
    storage = Storage.open(path)
    for start, end, message in (
        (1, 2, "at version 1 cannot be read as those of version 2"),
        (2, 4, "version 3 .* did not record"),
        (3, 3, "version 3 .* did not record"),
        (6, None, "no version 6; the newest is 5"),
        (2, 1, "ends before it starts"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            change_feed(storage, start, end)
    assert bag(as_delvec_reads(spark, path, 4).select("id")) == Counter([(2,)])


def test_a_commit_that_was_cleaned_up_is_named(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path, properties={"delta.enableChangeDataFeed": "true"})
    table.create()
    add = table.write_file("a", {"id": [1]})
    table.commit({"add": add})
    table.checkpoint([add])
    table.commit({"add": table.write_file("b", {"id": [2]})})
    table.drop_commits(0, 1)
    with pytest.raises(InvalidArgumentError, match=r"version 0 .* cannot be read any more"):
        change_feed(Storage.open(tmp_path), 0)
    with pytest.raises(InvalidArgumentError, match=r"changes of version 1 .* cleaned up"):
        change_feed(Storage.open(tmp_path), 1)
    assert len(change_feed(Storage.open(tmp_path), 2).whole.files) == 1


def test_what_changes_no_rows_is_left_out(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path, properties={"delta.enableChangeDataFeed": "true"})
    table.create()
    add = table.write_file("a", {"id": [1]})
    table.commit({"add": add | {"dataChange": False}})
    metrics = {f"numTargetRows{what}": "0" for what in ("Inserted", "Updated", "Deleted")}
    info = {"commitInfo": {"operation": "MERGE", "operationMetrics": metrics}}
    table.version += 1
    lines = (info, {"remove": removed(add)}, {"add": add | {"path": "b"}})
    table.commit_path(2).write_text("".join(json.dumps(line) + "\n" for line in lines))
    feed = change_feed(Storage.open(tmp_path), 0)
    assert [len(part.files) for part in (feed.whole, feed.partial, feed.recorded)] == [0, 0, 0]
