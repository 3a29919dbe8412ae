"""The change feed, held against delta-spark's."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec.delta.read.change_feed import change_feed
from delvec.errors import InvalidArgumentError
from delvec.spark.delta.scan.scan import changes
from delvec.storage import Storage
from tests.delta import log_files
from tests.delta.builder import TableBuilder, removed
from tests.spark.delta.lake import Lake

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


@dataclass(frozen=True)
class Fed(Lake):
    """A table with a change feed."""

    def make(self, kind: str, *statements: str) -> None:
        parts, properties = KINDS[kind]
        properties = {"delta.enableChangeDataFeed": "true"} | properties
        columns = "id BIGINT, name STRING, p INT"
        self.create(columns, *statements, parts=parts, properties=properties)

    def theirs(self, end: int, start: int = 0) -> DataFrame:
        reading = self.spark.read.format("delta").option("readChangeFeed", "true")
        reading = reading.option("startingVersion", start).option("endingVersion", end)
        return reading.load(str(self.path))

    def ours(self, start: int | None = 0, end: int | None = None, **times: Any) -> DataFrame:  # noqa: ANN401
        return changes(self.spark, Storage.open(self.path), start, end, **times)


@pytest.fixture
def fed(spark: SparkSession, tmp_path: Path) -> Fed:
    return Fed(spark, tmp_path / "t")


def bag(df: DataFrame) -> Rows:
    return Counter(map(tuple, df.collect()))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_range_gives_the_rows_of_delta_spark(fed: Fed, kind: str) -> None:
    fed.make(kind, *STATEMENTS)
    newest = log_files.newest_version(fed.path)
    whole, found = fed.theirs(newest), fed.ours()
    expected = bag(whole)
    assert [(each.name, each.dataType) for each in found.schema] == [
        (each.name, each.dataType) for each in whole.schema
    ]
    kinds = {"insert", "delete", "update_preimage", "update_postimage"}
    assert {row[3] for row in expected} == kinds
    # Of one kind all ranges, of the others those of one version and the longest.
    ranges = [
        (start, end)
        for start in range(newest + 1)
        for end in range(start, newest + 1)
        if kind == "plain" or start in (0, end)
    ]
    for start, end in ranges:
        wanted = Counter({row: n for row, n in expected.items() if start <= row[4] <= end})
        assert bag(fed.ours(start, end)) == wanted, f"{start} to {end}"
        if (start, end) == (3, 7):
            assert bag(fed.theirs(end, start)) == wanted


@pytest.mark.slow
def test_filters_on_what_was_added_keep_their_rows(fed: Fed) -> None:
    fed.make("partitioned", *STATEMENTS[:6])
    for condition in (
        "_commit_version = 2",
        "_change_type = 'delete' AND p = 1",
        "id > 5 AND _commit_version IN (1, 4)",
        "_commit_timestamp IS NOT NULL AND name LIKE 'n1%'",
        "true",
    ):
        assert bag(fed.ours().where(condition)) == bag(fed.theirs(6).where(condition)), condition


@pytest.mark.slow
def test_new_columns_are_null_in_older_rows(fed: Fed) -> None:
    fed.make("plain", "INSERT INTO {T} VALUES (1, 'a', 0)")
    fed.sql("ALTER TABLE {T} ADD COLUMNS (more STRING)", "INSERT INTO {T} VALUES (2, 'b', 0, 'c')")
    assert bag(fed.ours()) == bag(fed.theirs(3))
    assert bag(fed.ours().select("id", "more")) == Counter([(1, None), (2, "c")])


@pytest.mark.slow
def test_times_choose_versions_as_with_delta_spark(fed: Fed) -> None:
    fed.make("plain", *STATEMENTS[:3])
    moments = fed.theirs(3).selectExpr("_commit_version", "cast(_commit_timestamp as string)")
    times: dict[int, str] = dict(moments.distinct().collect())
    found = fed.ours(None, start_timestamp=times[2], end_timestamp=times[2])
    assert {row[4] for row in bag(found)} == {2}
    assert {row[4] for row in bag(fed.ours(None, start_timestamp="2001-01-01"))} == {1, 2, 3}
    with pytest.raises(InvalidArgumentError, match="no commit as late"):
        fed.ours(None, start_timestamp="2901-01-01")
    for start, time in ((None, None), (1, "2001-01-01")):
        with pytest.raises(InvalidArgumentError, match="start at a version or at a time"):
            fed.ours(start, start_timestamp=time)


def test_ranges_that_cannot_be_read_are_refused(fed: Fed) -> None:
    fed.make(
        "mapped",
        "INSERT INTO {T} VALUES (1, 'a', 0)",
        "ALTER TABLE {T} RENAME COLUMN name TO label",
        "ALTER TABLE {T} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')",
        "ALTER TABLE {T} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "INSERT INTO {T} VALUES (2, 'b', 0)",
    )
    for start, end, message in (
        (1, 2, "at version 1 cannot be read as those of version 2"),
        (2, 4, "version 3 .* did not record"),
        (3, 3, "version 3 .* did not record"),
        (6, None, "no version 6; the newest is 5"),
        (2, 1, "ends before it starts"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            change_feed(Storage.open(fed.path), start, end)
    assert bag(fed.ours(4).select("id")) == Counter([(2,)])


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
