"""When the index is used to find rows, and what it says of itself; see `test_key_index`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from delvec.errors import InvalidArgumentError, PlanError, UnsupportedFeatureError
from delvec.iceberg.client.catalog import LoadedTable, TableName
from delvec.iceberg.client.file_scan import DataFilesWithKeys
from delvec.iceberg.client.files import EqualityDeleteFile
from delvec.iceberg.deletes.key_filter import ScopedDelete
from delvec.iceberg.search.finder import Strategy, choose
from delvec.iceberg.search.index_update import update_index
from delvec.iceberg.search.key_index import (
    IndexedKey,
    IndexReport,
    KeyIndex,
    drop_index,
    index_name,
    open_index,
    why_no_index,
)
from delvec.iceberg.search.search import Search
from tests.iceberg.deletes.tables import loaded, new_table
from tests.iceberg.search.indexes import RIGHT, append, difference, head_of, opened, updated

NOTHING = cast("Any", None)
TABLE = LoadedTable(NOTHING, TableName("lake", ("db",), "t"), NOTHING, NOTHING, NOTHING)


def search(keys: int, rows: int, files: int, kind: str = "string") -> Search:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "k", "required": 0, "type": kind}]}
    deletes = EqualityDeleteFile("d", "parquet", 0, "[]", (1,), keys, 9, 7)
    listed = pa.table({"path": [f"f{n}" for n in range(files)], "rows": [rows // files] * files})
    planned = DataFilesWithKeys(files, listed, ())
    return Search(TABLE, 5, schema, planned, (ScopedDelete(deletes, -1),))


def index(rows: int, kind: str = "string", why_not: str | None = None, runs: int = 0) -> KeyIndex:
    key = IndexedKey((1,), (kind,), 77)
    return KeyIndex(
        TABLE, key, 1, 5, rows, rows * 12, 1 + rows // 4_000_000, why_not, rows, runs=runs
    )


def test_what_is_asked_for_is_done() -> None:
    some = search(10, 1000, 1)
    assert choose(some, index(1000), "join").strategy == "join"
    assert choose(some, index(1000), "index").strategy == "index"
    assert choose(some, None, "join").reason == "as asked for"


@pytest.mark.parametrize("wanted", ["auto", "index"])
def test_an_index_that_is_missing_or_not_usable_is_not_used(wanted: Strategy) -> None:
    some = search(10, 1_000_000_000, 1000)
    for each, why in (
        (None, "there is no index"),
        (index(1_000_000_000, why_not="it is empty"), "the index is not usable: it is empty"),
    ):
        if wanted == "auto":
            assert choose(some, each, wanted).strategy == "join"
            assert choose(some, each, wanted).reason == why
        else:
            with pytest.raises(InvalidArgumentError, match=why):
                choose(some, each, wanted)


@pytest.mark.parametrize(
    ("keys", "rows", "files", "kind", "expected"),
    [
        (10, 1000, 1, "string", "join"),  # a look-up takes longer than reading everything
        (100, 2_000_000_000, 2000, "string", "index"),  # most files have no candidate
        (100, 2_000_000_000, 2000, "long", "index"),  # and no file is read at all
        (1_000_000, 20_000_000, 16, "long", "join"),  # bits in a filter are hard to beat
        (1_000_000, 2_000_000, 16, "string", "join"),
    ],
)
def test_the_cheaper_one_is_chosen(
    keys: int, rows: int, files: int, kind: str, expected: str
) -> None:
    found = choose(search(keys, rows, files, kind), index(rows, kind), "auto")
    assert found.strategy == expected
    assert found.reason.startswith(f"{keys:,} keys in")


def test_small_files_of_an_index_and_files_that_are_not_indexed_cost_more() -> None:
    some, large = search(1000, 40_000_000, 4000), search(10, 1_000_000_000, 1000, "long")
    for wanted, each, expected in (
        (some, index(40_000_000), "index"),
        (some, index(4_000_000_000, runs=16), "join"),  # its table had a hundred times as many rows
        (large, index(1_000_000_000, "long"), "index"),
        (large, replace(index(10_000_000, "long"), snapshot_id=4), "join"),
    ):
        assert choose(wanted, each, "auto").strategy == expected


@pytest.mark.spark
def test_new_files_are_added_and_nothing_else_is_read(spark: SparkSession) -> None:
    name = new_table(spark)
    append(spark, name, 0, 100)
    assert open_index(loaded(spark, name), [1]) is None
    built = updated(spark, name)
    assert (built.action, built.added_files, built.added_rows) == ("built", 1, 100)
    assert built.reason == "it is empty"
    append(spark, name, 100, 130)
    index = updated(spark, name)
    assert (index.action, index.added_files, index.added_rows) == ("updated", 1, 30)
    assert (index.rows, index.runs, index.is_usable) == (132, 1, True)
    table = loaded(spark, name)
    assert index.snapshot_id == opened(spark, name).snapshot_id == head_of(table)
    assert len(index.table.metadata.snapshots) == 2
    kept = updated(spark, name)
    assert (kept.action, kept.head) == ("kept", index.head)
    spark.sql(f"DELETE FROM {name} WHERE id = 7")
    after = updated(spark, name)
    assert (after.action, after.head) == ("kept", index.head)
    assert after.snapshot_id == head_of(loaded(spark, name)) != index.snapshot_id
    assert difference(spark, name) == RIGHT
    report = IndexReport.of(name, ("id",), index, {})
    assert f"INDEX of {name} by id: updated" in str(report)
    assert "1 file, 30 rows" in str(report)
    assert drop_index(loaded(spark, name))
    assert not drop_index(loaded(spark, name))


@pytest.mark.spark
def test_keys_without_an_index(spark: SparkSession) -> None:
    name = new_table(spark, "a double, b struct<c: int>, d float, e timestamp")
    table = loaded(spark, name)
    assert (why_no_index(table, [1]), why_no_index(table, [4, 3])) == ("a is double", "d is float")
    assert why_no_index(table, [5]) == "b.c is a field of a struct"
    assert why_no_index(table, [4]) is None
    with pytest.raises(UnsupportedFeatureError, match="a is double"):
        update_index(table, 1, [1])


@pytest.mark.spark
def test_a_table_that_has_the_name_by_chance_is_left_alone(spark: SparkSession) -> None:
    name = new_table(spark)
    append(spark, name, 0, 10)
    table = loaded(spark, name)
    spark.sql(f"CREATE TABLE {index_name(table.name)} (id INT) USING iceberg")
    for call in (lambda: open_index(table, [1]), lambda: drop_index(table)):
        with pytest.raises(PlanError, match="is none"):
            call()
    with pytest.raises(PlanError, match="is none"):
        update_index(table, head_of(table), [1])
