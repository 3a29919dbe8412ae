"""The primary-key index: whatever happens to a table, it is what a build of it would be."""

from __future__ import annotations

from itertools import pairwise
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.iceberg.client.catalog import LoadedTable, iceberg_view
from delvec.iceberg.search import index_update
from delvec.iceberg.search.index_rows import sorted_by_hash
from delvec.iceberg.search.index_update import update_index
from delvec.iceberg.search.key_index import KeyIndex, drop_index, open_index
from tests.iceberg.deletes.tables import loaded, new_table
from tests.iceberg.search.indexes import (
    RIGHT,
    IndexDifference,
    append,
    compare_index,
    difference,
    head_of,
    opened,
    updated,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def name(spark: SparkSession) -> str:
    """A table with the ids 0 to 9."""
    name = new_table(spark)
    append(spark, name, 0, 10)
    return name


def test_a_difference_is_noticed(spark: SparkSession, name: str) -> None:
    index = updated(spark, name).table.name
    spark.sql(f"DELETE FROM {index} WHERE pos = 3")
    spark.sql(f"UPDATE {index} SET hash = 5 WHERE pos = 4")
    assert difference(spark, name) == IndexDifference(0, 2, 1)
    append(spark, name, 10, 20)
    assert difference(spark, name) == IndexDifference(1, 2, 1)
    # Whoever changed it, what it reflects is not believed any more.
    assert opened(spark, name).snapshot_id is None


@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_a_rollback_brings_back_are_indexed(spark: SparkSession, version: int) -> None:
    name = new_table(spark, version=version)
    append(spark, name, 0, 10)
    before = head_of(loaded(spark, name))
    spark.sql(f"DELETE FROM {name} WHERE id < 5")
    delvec.IcebergTable.for_name(spark, name).delete_keys([8], "id")
    index = updated(spark, name)
    assert (index.added_rows, index.entries().where("pos >= 0").count()) == (10, 10)
    catalog, _, rest = name.partition(".")
    spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('{rest}', {before})")
    assert difference(spark, name) == RIGHT


def test_an_index_of_files_that_are_gone_is_built_anew(spark: SparkSession, name: str) -> None:
    append(spark, name, 10, 20)
    updated(spark, name)
    catalog, _, rest = name.partition(".")
    compact = f"CALL {catalog}.system.rewrite_data_files(table => '{rest}', options => "
    spark.sql(f"{compact}map('min-input-files', '2'))")
    index = updated(spark, name)
    assert (index.action, index.rows) == ("updated", 43)
    spark.sql(f"{compact}map('rewrite-all', 'true'))")
    index = updated(spark, name)
    assert (index.action, index.rows) == ("built", 21)
    assert "gone" in index.reason
    assert difference(spark, name) == RIGHT
    spark.sql(f"DELETE FROM {name}")
    index = updated(spark, name)
    assert (index.action, index.rows, index.is_usable) == ("built", 0, True)


def test_other_keys_types_and_tables_are_not_trusted(spark: SparkSession, name: str) -> None:
    updated(spark, name, [2])
    assert "other key columns" in (opened(spark, name, [1]).why_not or "")
    assert updated(spark, name, [2, 1]).action == "built"
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN n TO m")
    assert opened(spark, name, [1, 2]).is_usable
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN m TYPE BIGINT")
    assert not opened(spark, name, [1, 2]).is_usable
    index = updated(spark, name, [1, 2])
    assert index.action == "built"
    # A column that was dropped is the key of its deletes still; a new one of its name is another.
    spark.sql(f"ALTER TABLE {name} DROP COLUMN m")
    assert opened(spark, name, [1, 2]).is_usable
    spark.sql(f"ALTER TABLE {name} ADD COLUMN m BIGINT")
    assert opened(spark, name, [1, 2]).is_usable
    assert not opened(spark, name, [1, 4]).is_usable
    spark.sql(f"DROP TABLE {name} PURGE")
    spark.sql(f"CREATE TABLE {name} (id BIGINT, n BIGINT) USING iceberg")
    append(spark, name, 0, 10, "id", "id AS n")
    assert not opened(spark, name, [1, 2]).is_usable


def test_a_snapshot_that_expired_does_no_harm(spark: SparkSession, name: str) -> None:
    reflected = updated(spark, name).snapshot_id
    append(spark, name, 10, 20)
    delvec.IcebergTable.for_name(spark, name).expire_snapshots("2100-01-01", retain_last=1)
    assert reflected not in loaded(spark, name).metadata.snapshots
    index = updated(spark, name)
    assert (index.action, index.added_rows, difference(spark, name)) == ("updated", 10, RIGHT)


def stale(table: LoadedTable, snapshot_id: int, index: KeyIndex) -> index_update._Update:
    """An update of a process that read the index before others committed to it."""
    return index_update._Update(table, snapshot_id, table.metadata.schema, index.key, index)


def test_writers_at_once_never_make_it_wrong(spark: SparkSession, name: str) -> None:
    old = updated(spark, name)
    append(spark, name, 10, 20)
    slow = stale(loaded(spark, name), head_of(loaded(spark, name)), old)
    # Meanwhile another one builds it again, for a state without the first file.
    spark.sql(f"DELETE FROM {name} WHERE id < 10")
    table = loaded(spark, name)
    update_index(table, head_of(table), [1], rebuild=True)
    slow.run(rebuild=False)
    index = opened(spark, name)
    assert index.snapshot_id is None  # it would seem to have the first file
    assert index.indexed_paths().count() == 1
    assert index.rows == 22  # the second one twice
    assert difference(spark, name) == RIGHT
    # Another one indexes other columns in between.
    append(spark, name, 20, 30)
    slow = stale(loaded(spark, name), head_of(loaded(spark, name)), opened(spark, name))
    updated(spark, name, [2])
    slow.run(rebuild=False)
    index = opened(spark, name)
    assert index.snapshot_id is None
    assert index.indexed_paths().count() == 1
    found = compare_index(loaded(spark, name), head_of(loaded(spark, name)), index)
    assert (found.files, found.missing, updated(spark, name).added_files) == (1, 0, 1)
    assert difference(spark, name).missing == difference(spark, name).files == 0


def test_a_crash_loses_nothing(
    spark: SparkSession, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:

    def crash(_: object) -> KeyIndex:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(index_update._Update, "_reopened", crash)
        with pytest.raises(KeyboardInterrupt):
            updated(spark, name)
        append(spark, name, 10, 20)
        with pytest.raises(KeyboardInterrupt):
            updated(spark, name)
    assert opened(spark, name).snapshot_id == head_of(loaded(spark, name))
    assert (updated(spark, name).action, difference(spark, name)) == ("kept", RIGHT)


def test_small_files_are_merged(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_update, "_MOST_RUNS", 2)
    monkeypatch.setattr(index_update, "_MOST_SNAPSHOTS", 3)
    monkeypatch.setattr(index_update, "_KEPT", "2100-01-01")
    name = new_table(spark)
    sizes = []
    for start in range(0, 50, 10):
        append(spark, name, start, start + 10)
        index = updated(spark, name)
        assert index.snapshot_id == head_of(loaded(spark, name))
        sizes.append((index.runs, index.files, index.rows))
    assert sizes == [(0, 1, 11), (1, 2, 22), (2, 3, 33), (0, 1, 44), (1, 2, 55)]
    assert len(index.table.metadata.snapshots) <= 3
    assert difference(spark, name) == RIGHT


def test_a_table_may_have_any_name(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_update, "_MOST_RUNS", 0)
    name = f"lake.db.`it's {uuid4().hex[:8]}`"
    spark.sql(f"CREATE TABLE {name} (id bigint, n int, s string) USING iceberg")
    for start in (0, 10):
        append(spark, name, start, start + 10)
        index = updated(spark, name)
    assert (index.runs, index.files, index.rows) == (0, 1, 22), "merged"
    assert difference(spark, name) == RIGHT
    assert drop_index(loaded(spark, name))
    assert open_index(loaded(spark, name), (1,)) is None


def test_many_new_rows_are_built_anew(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_update, "_MOST_OVERLAPPING", 5)
    name = new_table(spark)
    append(spark, name, 0, 10)
    updated(spark, name)
    append(spark, name, 10, 19)
    assert updated(spark, name).action == "updated"
    append(spark, name, 20, 30)
    index = updated(spark, name)
    assert (index.action, index.rows) == ("built", 32)
    assert "bit by bit" in index.reason


def test_a_file_that_is_registered_twice(spark: SparkSession, name: str) -> None:
    handle = loaded(spark, name).handle
    [[path, size]] = (
        spark.table(f"{name}.files").select("file_path", "file_size_in_bytes").collect()
    )
    view = iceberg_view(spark)
    file = view.DataFiles.builder(handle.spec()).withPath(path).withRecordCount(10)
    handle.newAppend().appendFile(file.withFileSizeInBytes(size).build()).commit()
    index = updated(spark, name)
    assert (index.added_files, difference(spark, name)) == (1, RIGHT)


def test_files_of_another_branch_and_of_other_partitions(spark: SparkSession) -> None:
    name = new_table(spark, rest="PARTITIONED BY (bucket(2, id))")
    append(spark, name, 0, 10)
    updated(spark, name)
    spark.sql(f"ALTER TABLE {name} CREATE BRANCH other")
    spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD bucket(2, id)")
    append(spark, f"{name}.branch_other", 10, 20)
    index = updated(spark, name, branch="other")
    assert (index.action, index.added_rows) == ("updated", 10)
    assert difference(spark, name, "other") == difference(spark, name) == RIGHT


def test_parts_of_an_index_are_ranges_of_hashes(spark: SparkSession) -> None:
    rows = spark.range(2000).selectExpr("xxhash64(id) AS hash")
    ends = spark.createDataFrame([(-(1 << 63),), ((1 << 63) - 1,)], "hash bigint")
    parts = sorted_by_hash(rows.unionAll(ends), 40_000_000)
    found = parts.selectExpr("spark_partition_id() AS part", "hash").collect()
    ranges = sorted(
        (min(hashes), max(hashes), hashes == sorted(hashes))
        for part in {row["part"] for row in found}
        if (hashes := [row["hash"] for row in found if row["part"] == part])
    )
    assert len(ranges) == 10
    assert all(is_sorted for _, _, is_sorted in ranges)
    assert all(one[1] < other[0] for one, other in pairwise(ranges))
