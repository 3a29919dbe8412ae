"""The primary-key index: it is what a build of it would be, and finds what the join finds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import delvec
from delvec import IcebergTable
from delvec.iceberg.client.catalog import LoadedTable, iceberg_view
from delvec.iceberg.search import finder, index_update
from delvec.iceberg.search.finder import _Lookup, find_by_index
from delvec.iceberg.search.index_update import update_index
from delvec.iceberg.search.key_index import KeyIndex, drop_index, open_index, sorted_by_hash
from tests.iceberg.deletes.foreign import column, delete_by_java, table_of
from tests.iceberg.deletes.tables import loaded, new_table, open_new
from tests.iceberg.search.indexes import (
    RIGHT,
    IndexDifference,
    append,
    compare_index,
    difference,
    found_by_both,
    head_of,
    opened,
    places,
    search_of,
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


UTC = timezone.utc
BITS = (1 << 64) - 1


def indexed(table: IcebergTable, ids: Sequence[int] = (1,)) -> KeyIndex:
    return updated(table.spark, table.name, ids)


def put(table: IcebergTable, rows: list[Any], columns: str) -> None:
    table.append(table.spark.createDataFrame(rows, columns).coalesce(1))


@pytest.mark.parametrize("kind", ["string", "bigint"])
def test_rows_are_found_in_files_with_candidates_alone(spark: SparkSession, kind: str) -> None:
    table = open_new(spark, f"k {kind}, n int")
    for part in range(3):
        rows = spark.range(part, 30, 3, 1).selectExpr(f"CAST(id AS {kind}) AS k", "0 AS n")
        table.append(rows)
    index = indexed(table)
    spark.sql(f"DELETE FROM {table.name} WHERE k = '9'")
    table.delete_keys([str(n) if kind == "string" else n for n in (0, 3, 9, 100)], "k")
    search = search_of(spark, table.name)
    assert search.files.files.num_rows == 3
    # Deleted before, 9 is a candidate all the same, and no live row.
    lookup = _Lookup(search, index)
    assert (len(lookup.paths()), found_by_both(search, index)) == (1, 2)
    # Later files are not indexed yet, and have no deleted row: it is older.
    put(table, [("3" if kind == "string" else 3, 1)], f"k {kind}, n int")
    table.delete_keys(["3" if kind == "string" else 3], "k")
    search = search_of(spark, table.name)
    assert (found_by_both(search, index), found_by_both(search, indexed(table))) == (3, 3)


def test_keys_of_the_same_hash_are_told_apart(spark: SparkSession) -> None:
    table = open_new(spark, "a int, b int, n int")
    rows = [(None, 5, 0), (5, None, 1), (5, 5, 2), (None, None, 3)]
    put(table, rows, "a int, b int, n int")
    # By its bounds, this file may have the deleted key.
    put(table, [(5, None, 4), (None, 4, 5), (None, 6, 6)], "a int, b int, n int")
    hashes = spark.table(table.name).orderBy("n").selectExpr("xxhash64(a, b)").collect()
    assert hashes[0] == hashes[1] == hashes[4] != hashes[2]
    index = indexed(table, (2, 1))
    table.delete_keys([(None, 5)], columns=["a", "b"])
    search = search_of(spark, table.name)
    assert (len(_Lookup(search, index).paths()), found_by_both(search, index)) == (2, 1)
    assert places(find_by_index(search, index))[0][1] == 0


def rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & BITS


def value_of_hash(wanted: int) -> int:
    """The bigint that has a hash: Spark's xxhash64 of one value, run backwards."""
    one, two, three = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    four, five = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
    found = wanted ^ (wanted >> 32)
    found = found * pow(three, -1, 1 << 64) & BITS
    found ^= (found >> 29) ^ (found >> 58)
    found = found * pow(two, -1, 1 << 64) & BITS
    found ^= found >> 33
    found = (found - four) * pow(one, -1, 1 << 64) & BITS
    found = rotated(found, 64 - 27) ^ ((42 + five + 8) & BITS)
    found = rotated(found * pow(one, -1, 1 << 64) & BITS, 64 - 31)
    found = found * pow(two, -1, 1 << 64) & BITS
    return found - (1 << 64) if found >> 63 else found


@pytest.mark.parametrize("deleted", [None, "value"])
def test_null_and_the_value_of_its_hash_differ(spark: SparkSession, deleted: str | None) -> None:
    value = value_of_hash(42)
    table = open_new(spark, "k bigint, n int")
    put(table, [(None, 0), (value, 1), (7, 2)], "k bigint, n int")
    hashes = spark.table(table.name).orderBy("n").selectExpr("xxhash64(k)").collect()
    assert hashes[0][0] == hashes[1][0] != hashes[2][0]
    index = indexed(table)
    table.delete_keys([None if deleted is None else value], "k")
    search = search_of(spark, table.name)
    assert found_by_both(search, index) == 1
    assert places(find_by_index(search, index))[0][1] == (0 if deleted is None else 1)


def test_few_keys_read_a_part_of_the_index(spark: SparkSession) -> None:
    table = open_new(spark, "k string, n int")
    table.append(spark.range(0, 20_000, 1, 1).selectExpr("CAST(id AS STRING) AS k", "0 AS n"))
    index = indexed(table)
    small = "'write.parquet.row-group-size-bytes' = '4096'"
    spark.sql(f"ALTER TABLE {index.table.name} SET TBLPROPERTIES ({small})")
    now = loaded(spark, table.name)
    index = update_index(now, head_of(now), [1], rebuild=True)
    hashes = [row[0] for row in index.entries().where("pos < 2").collect()]
    assert index.key.signature in hashes
    found, scanned, plan = read(index, hashes)
    assert found == 2 + 1  # and the mark of the file
    assert "hash in" in plan.lower()
    assert 3 <= scanned < 10_000
    # Iceberg looks at no bounds for more than 200 values of one condition: there are several.
    many = [row[0] for row in index.entries().where("pos < 500 AND pos >= 0").collect()]
    found, scanned, _ = read(index, sorted(many)[:250])
    assert (found, scanned < 18_000) == (250, True)


def read(index: KeyIndex, hashes: list[int]) -> tuple[int, int, str]:
    """The entries of hashes that are found, the rows that are read for them, and the plan."""
    rows = index.entries().where(finder._is_one_of(F.col("hash"), hashes))
    plan = rows._jdf.queryExecution().executedPlan()
    found = len(rows.collect())
    [scan] = [plan.collectLeaves().apply(n) for n in range(plan.collectLeaves().size())]
    return found, scan.metrics().apply("numOutputRows").value(), plan.toString()


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("version", [2, 3])
def test_partitions_sequences_and_positions_count(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, version: int, *, few: bool
) -> None:
    if not few:
        monkeypatch.setattr(finder, "FEW_KEYS", 0)
    table = open_new(spark, "k bigint, p string", "PARTITIONED BY (p)", version)
    columns = "k bigint, p string"
    for p in ("a", "b"):
        put(table, [(n, p) for n in range(6)], columns)
    spark.sql(f"DELETE FROM {table.name} WHERE k = 0")
    table.delete_keys([0, 1], "k")
    table.delete_keys([2], "k", partition={"p": "a"})
    put(table, [(1, "a"), (2, "a"), (3, "a")], columns)
    table.delete_keys([3], "k", partition={"p": "a"})
    index = indexed(table)
    assert found_by_both(search_of(spark, table.name), index) == 2 + 1 + 2
    spark.sql(f"ALTER TABLE {table.name} ADD PARTITION FIELD bucket(2, k)")
    put(table, [(3, "a"), (4, "b")], columns)
    table.delete_keys([4], "k")
    for each in (index, indexed(table)):
        assert found_by_both(search_of(spark, table.name), each) == 2 + 1 + 2 + 3


def test_keys_that_are_read_otherwise_now_are_joined(spark: SparkSession) -> None:
    table = open_new(spark, "k int, n int")
    put(table, [(n, n) for n in range(10)], "k int, n int")
    index = indexed(table)
    spark.sql(f"ALTER TABLE {table.name} ALTER COLUMN k TYPE BIGINT")
    table.delete_keys([5], "k")
    assert found_by_both(search_of(spark, table.name), index) == 1
    assert found_by_both(search_of(spark, table.name), indexed(table)) == 1


def test_many_rows_are_compared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder, "_MOST_FOUND", 5)
    table = open_new(spark, "k bigint, n int")
    put(table, [(n % 2, n) for n in range(12)], "k bigint, n int")
    index = indexed(table)
    table.delete_keys([1], "k")
    search = search_of(spark, table.name)
    assert _Lookup(search, index).proven_rows() is None
    assert found_by_both(search, index) == 6


DAYS = [datetime(2026, 1, day, 1, 2, 3, 4, tzinfo=UTC) for day in range(1, 5)]
TYPES: dict[str, tuple[str, list[Any]]] = {
    "int": ("int", [None, -1, 0, 2**31 - 1]),
    "date": ("date", [None, date(1969, 12, 31), date(2026, 1, 1)]),
    "timestamptz": ("timestamp", [None, *DAYS]),
    "timestamp": ("timestamp_ntz", [None, *(each.replace(tzinfo=None) for each in DAYS)]),
    "binary": ("binary", [None, b"", b"\0", b"ab"]),
    "decimal(9, 2)": ("decimal(9, 2)", [None, Decimal("-1.00"), Decimal("7.25")]),
    "decimal(38, 2)": ("decimal(38, 2)", [None, Decimal("-1.00"), Decimal(10**30)]),
    "boolean": ("boolean", [None, True, False]),
    "string": ("string", [None, "", "a", "\u00e9", "e\u0301"]),
    "string in orc": ("string", [None, "3", "14", "x"]),
    "string in avro": ("string", [None, "3", "14", "x"]),
}


@pytest.mark.parametrize("kind", TYPES)
def test_keys_of_all_types(spark: SparkSession, kind: str) -> None:
    sql, values = TYPES[kind]
    form = {"write.format.default": kind.partition(" in ")[2] or "parquet"}
    table = open_new(spark, f"k {sql}, n int", properties=form)
    put(table, [(value, n) for n, value in enumerate(values)], f"k {sql}, n int")
    put(table, [(values[-1], -1)], f"k {sql}, n int")
    index = indexed(table)
    for value in (values[1], None):
        table.delete_keys([value], "k")
    assert found_by_both(search_of(spark, table.name), index) == 2


def test_uuids_written_by_others(spark: SparkSession) -> None:
    table = table_of(spark, [column(1, "k", "uuid"), column(2, "n", "int")])
    values = [f"0000000{n}-0000-4000-8000-00000000000a" for n in range(4)]
    put(table, [(value, n) for n, value in enumerate(values)], "k string, n int")
    index = indexed(table)
    delete_by_java(table, [{"k": values[2]}], ["k"])
    assert found_by_both(search_of(spark, table.name), index) == 1


def test_another_branch_and_a_rollback(spark: SparkSession) -> None:
    table = open_new(spark, "k string, n int")
    put(table, [(str(n), n) for n in range(10)], "k string, n int")
    before = head_of(loaded(spark, table.name))
    spark.sql(f"DELETE FROM {table.name} WHERE n < 5")
    index = indexed(table)
    spark.sql(f"ALTER TABLE {table.name} CREATE BRANCH old AS OF VERSION {before}")
    table.delete_keys(["3", "7"], "k", branch="old")
    assert found_by_both(search_of(spark, table.name, "old"), index) == 2
    catalog, _, rest = table.name.partition(".")
    spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('{rest}', {before})")
    table.delete_keys(["3", "7"], "k")
    assert found_by_both(search_of(spark, table.name), index) == 2


def test_files_of_the_same_hash_are_told_apart(spark: SparkSession) -> None:
    table = open_new(spark, "k bigint, n int")
    put(table, [(n, n) for n in range(10)], "k bigint, n int")
    index = indexed(table)
    table.delete_keys([3], "k")
    search = search_of(spark, table.name)
    assert _Lookup(search, index).proven_rows() is not None
    # As if the path of a file that is gone had the hash of this one's.
    name = str(index.table.name)
    spark.sql(f"INSERT INTO {name} SELECT hash, file, pos, 'other' FROM {name} WHERE pos < 0")
    index = indexed(table)
    assert _Lookup(search, index).proven_rows() is None
    assert found_by_both(search, index) == 1
