"""OPTIMIZE and PURGE: files change, rows do not, whoever else writes meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import QueryBuilder
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.errors import ConflictError, DelvecError, InvalidArgumentError, UnsupportedFeatureError
from tests.delta import log_files
from tests.delta.builder import TableBuilder, small_table
from tests.delta.write.write_checks import before_commit, ids, unnamed_files
from tests.spark.delta import spark_tables
from tests.spark.delta.write.judge import bag, rows_of

pytestmark = pytest.mark.spark

EVERY_TYPE = """
id bigint, part string, i int, s string, b binary, d decimal(20, 4), f double, day date,
at timestamp, ntz timestamp_ntz, flag boolean, st struct<x int, y string>, arr array<string>,
m map<string, int>
"""
VALUES = """
id, concat('p', id % 2), int(id % 7), concat('s', id), cast(concat('b', id) as binary),
cast(id as decimal(20, 4)), double(id) / 3, date_add(date'2026-01-01', int(id % 30)),
timestamp_micros(id * 1000003), timestamp_ntz'2026-01-01 10:00:00' + make_dt_interval(0, 0, 0, id),
id % 2 = 0, named_struct('x', int(id), 'y', concat('y', id)),
if(id % 5 = 0, null, array(concat('a', id), null)), map(concat('k', id), int(id))
"""


def made(
    spark: SparkSession,
    path: Path,
    *,
    files: int = 4,
    rows: int = 50,
    partitioned: bool = False,
    properties: dict[str, str] | None = None,
) -> DeltaTable:
    """Let delta-spark make a table of several files with values of every type."""
    parts = ["part"] if partitioned else []
    spark_tables.create(spark, path, EVERY_TYPE, partitioned_by=parts, properties=properties)
    for at in range(files):
        source = f"SELECT id AS id0, * FROM range({at * rows}, {(at + 1) * rows}, 1, 1)"
        spark_tables.sql(spark, path, f"INSERT INTO {{T}} SELECT {VALUES} FROM ({source})")
    return DeltaTable.for_path(spark, path)


def small(path: Path, spark: SparkSession, *, partitioned: bool = False) -> DeltaTable:
    """Make a table of four files of 50 rows by hand, two to a partition."""
    builder = TableBuilder(
        path,
        fields={"id": "long", "part": "string", "s": "string"},
        partition_columns=["part"] if partitioned else [],
    )
    builder.create()
    for at in range(4):
        ids = range(50 * at, 50 * at + 50)
        rows = {"id": list(ids), "part": [f"p{at % 2}"] * 50, "s": [f"s{n}" for n in ids]}
        values = {"part": f"p{at % 2}"} if partitioned else None
        if partitioned:
            del rows["part"]
        builder.commit({"add": builder.write_file(f"part-{at}", rows, values)})
    return DeltaTable.for_path(spark, path)


def history(spark: SparkSession, path: Path) -> dict[str, Any]:
    """Give what delta-spark's history says of the newest version."""
    [row] = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()
    told: dict[str, Any] = row.asDict()
    return told


def added(path: Path) -> list[dict[str, Any]]:
    return [each["add"] for each in log_files.commits(path)[-1] if "add" in each]


def removed(path: Path) -> list[dict[str, Any]]:
    return [each["remove"] for each in log_files.commits(path)[-1] if "remove" in each]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("partitioned", "properties"),
    [
        (False, {}),
        (True, {"delta.columnMapping.mode": "name"}),
        (True, {"delta.enableRowTracking": "true"}),
    ],
    ids=["plain", "mapped", "tracked"],
)
def test_rows_are_the_same_in_every_engine(
    spark: SparkSession, tmp_path: Path, *, partitioned: bool, properties: dict[str, str]
) -> None:
    path = tmp_path / "t"
    table = made(spark, path, partitioned=partitioned, properties=properties)
    spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id % 3 = 0")
    table.delete("id BETWEEN 60 AND 90")
    ids_before = tracked(spark, path) if "delta.enableRowTracking" in properties else None
    before = rows_of(spark, path)
    report = table.optimize()
    assert rows_of(spark, path) == before
    query = QueryBuilder().register("t", Peer(str(path))).execute("SELECT id FROM t")
    assert sorted(pa.table(query.read_all())["id"].to_pylist()) == ids(path)
    assert report.files_added == (2 if partitioned else 1)
    assert report.rows_copied == sum(before.values())
    assert report.vectors_removed
    assert {each["dataChange"] for each in added(path) + removed(path)} == {False}
    assert all(json.loads(each["stats"])["tightBounds"] for each in added(path))
    told = history(spark, path)
    assert told["operation"] == "OPTIMIZE"
    assert told["isolationLevel"] == "SnapshotIsolation"
    assert told["operationMetrics"]["numRemovedFiles"] == str(report.files_removed)
    assert int(told["operationMetrics"]["p50FileSize"]) > 0
    assert not unnamed_files(path)
    assert table.optimize().version is None
    if ids_before is not None:
        assert tracked(spark, path) == ids_before
    # The version before is still there.
    assert bag(table.to_df(version=table.version - 1)) == before


def tracked(spark: SparkSession, path: Path) -> set[tuple[int, ...]]:
    """Read row ids and versions by delta-spark."""
    rows = spark_tables.as_delta_spark_reads(spark, path).select(
        "id", "_metadata.row_id", "_metadata.row_commit_version"
    )
    return {tuple(row) for row in spark_tables.collected(rows)}


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("timestamp", ("2026-01-01 00:00:00", "2026-01-01T00:00:00.000000Z")),
        ("decimal(10,2)", ("1.5", "1.50")),
    ],
)
def test_a_partition_that_is_spelled_in_two_ways_is_one(
    spark: SparkSession, tmp_path: Path, kind: str, texts: tuple[str, str]
) -> None:
    builder = TableBuilder(tmp_path, fields={"id": "long", "p": kind}, partition_columns=["p"])
    builder.create()
    for at, text in enumerate(texts):
        builder.commit({"add": builder.write_file(f"part-{at}", {"id": [at]}, {"p": text})})
    before = rows_of(spark, tmp_path)
    DeltaTable.for_path(spark, tmp_path).optimize()
    [new] = added(tmp_path)
    assert new["partitionValues"] == {"p": texts[1]}, "which is the same in sessions of any zone"
    assert rows_of(spark, tmp_path) == before
    read = QueryBuilder().register("t", Peer(str(tmp_path)))
    assert read.execute("SELECT id FROM t").read_all().num_rows == 2


def test_a_lone_file_is_rewritten_if_many_of_its_rows_are_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = made(spark, path, files=1)
    table.delete("id < 2")
    assert table.optimize(max_deleted_ratio=0.05).version is None  # 4 %
    table.delete("id < 25")
    assert table.optimize(dry_run=True).files_removed == 1
    assert table.optimize().files_added == 1
    assert ids(path) == list(range(25, 50))


def test_a_purge_rewrites_exactly_the_files_with_vectors(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = made(spark, path)
    table.delete("id IN (3, 60)")
    before = rows_of(spark, path)
    plan = table.purge(dry_run=True)
    assert (plan.version, plan.files_removed, plan.vectors_removed) == (None, 2, 2)
    assert "2 files would become 1" in str(plan)
    report = table.purge()
    assert (report.files_removed, report.vectors_removed, report.rows_copied) == (2, 2, 98)
    assert rows_of(spark, path) == before
    told = history(spark, path)
    assert told["operation"] == "REORG"
    assert told["operationMetrics"]["numDeletionVectorsRemoved"] == "2"
    assert table.detail().files_with_vectors == 0
    assert table.purge().version is None


@pytest.mark.slow
def test_files_are_chosen_by_a_condition(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(spark, path, partitioned=True)
    before = rows_of(spark, path)
    assert table.optimize("part = 'p0'").files_removed == 4
    assert table.optimize("id < 60", max_deleted_ratio=1).files_removed == 2
    assert rows_of(spark, path) == before


@pytest.mark.slow
def test_bins_are_written_to_a_file_each(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(spark, path, files=9, rows=20)
    table.delete("id % 20 = 7")
    sizes = table.arrow_files().column("size").to_pylist()
    before = rows_of(spark, path)
    report = table.optimize(target_file_size=int(2.5 * max(sizes)), max_deleted_ratio=0)
    assert report.files_removed == 9
    assert 4 <= report.files_added <= 5
    assert rows_of(spark, path) == before


@pytest.mark.slow
def test_files_without_live_rows_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    builder, live = small_table(path)
    # delta-spark would remove such a file; others have left them.
    [vector] = builder.write_vectors(range(10))
    builder.delete(live[0], vector)
    report = DeltaTable.for_path(spark, path).purge()
    assert (report.files_added, report.files_removed) == (1, 2)
    assert ids(path) == [10, 11, 12, 15, 16, 17, 18, 19]


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(2, 10), (1, 13)], ids=["none left", "one hides the other"])
def test_rows_are_not_lost_where_the_log_counts_wrong(
    spark: SparkSession, tmp_path: Path, counts: tuple[int, int]
) -> None:
    path = tmp_path / "t"
    builder, live = small_table(path)
    # Two rows of each are deleted. Some writers count the live rows only.
    for at, count in enumerate(counts):
        entry = {**live[at], "stats": json.dumps({"numRecords": count, "tightBounds": False})}
        builder.commit({"add": entry})
    table = DeltaTable.for_path(spark, path)
    acts: list[Callable[[], object]] = [
        table.purge,
        table.optimize,
        lambda: table.optimize(zorder_by=["id"]),
    ]
    for act in acts:
        with pytest.raises(DelvecError):
            act()
    assert unnamed_files(path) == set()


@pytest.mark.slow
def test_rows_in_order_of_several_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    spark_tables.create(spark, path, "part string, x int, y string, z double")
    source = (
        "SELECT string(id % 2), int(pmod(hash(id), 1000)), string(pmod(hash(id, 1), 1000)),"
        " if(id % 9 = 0, null, rand(1)) FROM range(0, 20000, 1, 4)"
    )
    spark_tables.sql(spark, path, f"INSERT INTO {{T}} {source}")
    table = DeltaTable.for_path(spark, path)
    table.delete("x % 10 = 3")
    before = rows_of(spark, path)
    size = table.detail().bytes // 8
    report = table.optimize(zorder_by=["x", "y"], target_file_size=size, min_file_size=0)
    assert rows_of(spark, path) == before
    assert report.files_added >= 6
    assert json.loads(history(spark, path)["operationParameters"]["zOrderBy"]) == ["x", "y"]
    for condition in ("x < 100", "y < '100'"):
        files = table.to_df(where=condition).select("x")
        assert files.count() > 0
    bounds = [json.loads(each["stats"]) for each in added(path)]
    narrow = [each for each in bounds if each["maxValues"]["x"] - each["minValues"]["x"] < 600]
    assert len(narrow) >= len(bounds) / 2
    report = table.optimize(zorder_by=["z"], target_file_size=size, min_file_size=0)
    assert report.files_added >= 6
    assert rows_of(spark, path) == before


@pytest.mark.slow
def test_zorder_of_partitions(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(spark, path, partitioned=True, properties={"delta.enableRowTracking": "true"})
    table.delete("id % 3 = 0")
    before, ids_before = rows_of(spark, path), tracked(spark, path)
    report = table.optimize(zorder_by=["i", "st.x", "at"])
    assert 2 <= report.files_added <= 3  # a range may end inside of a partition
    assert rows_of(spark, path) == before
    assert tracked(spark, path) == ids_before


def test_wrong_arguments_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(
        spark,
        tmp_path / "t",
        "id long, part string, m map<string, int>, arr array<int>, flag boolean",
        partition_by=["part"],
        properties={"delta.dataSkippingStatsColumns": "id"},
    )
    for columns, what in (
        (["part"], "partition column"),
        (["m"], "no order"),
        (["arr"], "no order"),
        (["nosuch"], "nosuch"),
        (["flag"], "no statistics"),
        (["id"] * 8, "7 are the most"),
        ("id", "is a list of strings"),
    ):
        with pytest.raises(InvalidArgumentError, match=what):
            table.optimize(zorder_by=columns)
    with pytest.raises(InvalidArgumentError, match="target_file_size"):
        table.optimize(target_file_size=0)
    with pytest.raises(InvalidArgumentError, match="needs a Spark session"):
        DeltaTable.for_path(None, tmp_path / "t").optimize()
    for act in (table.optimize, table.purge):
        with pytest.raises(InvalidArgumentError, match="nosuch"):
            act("nosuch = 1")
        assert act().version is None


@pytest.mark.more
def test_zorder_of_a_clustered_table_is_refused_as_by_delta_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    spark_tables.sql(spark, path, "CREATE TABLE {T} (id long, v long) USING delta CLUSTER BY (id)")
    spark_tables.sql(spark, path, "INSERT INTO {T} SELECT id, id FROM range(9)")
    with pytest.raises(PySparkException, match="DELTA_CLUSTERING_WITH_ZORDER_BY"):
        spark_tables.sql(spark, path, "OPTIMIZE {T} ZORDER BY (v)")
    table = DeltaTable.for_path(spark, path)
    with pytest.raises(UnsupportedFeatureError, match="is clustered: a Z-order would undo"):
        table.optimize(zorder_by=["v"])
    assert table.version == 1


# Other writers meanwhile.


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
def test_a_delete_that_lands_meanwhile_is_carried_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, partitioned: bool
) -> None:
    path = tmp_path / "t"
    table = small(path, spark, partitioned=partitioned)
    table.delete("id % 10 = 4")
    tried = before_commit(
        monkeypatch,
        lambda: [table.delete(where) for where in ("id % 7 = 0 AND id < 120", "id = 8")],
    )
    report = table.optimize()
    assert tried == [0]
    assert report.reconciled
    gone = {n for n in range(200) if n % 10 == 4 or (n % 7 == 0 and n < 120) or n == 8}
    assert ids(path) == sorted(set(range(200)) - gone)
    assert sum(rows_of(spark, path).values()) == 200 - len(gone)
    assert all("deletionVector" in each for each in added(path))
    assert not unnamed_files(path)
    table.purge()
    assert ids(path) == sorted(set(range(200)) - gone)


@pytest.mark.slow
def test_a_delete_of_the_rest_meanwhile_leaves_no_new_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    table = small(path, spark)
    table.delete("id % 2 = 0")
    # The log says that these files have rows, and deletes them one file after the other.
    before_commit(
        monkeypatch, lambda: [table.delete(f"id % 50 <> 49 AND id < {n}") for n in (9, 200)]
    )
    table.optimize()
    assert ids(path) == [49, 99, 149, 199]
    assert not unnamed_files(path)


Act = Callable[[DeltaTable], object]


def new_rows(table: DeltaTable) -> object:
    assert table.spark is not None
    return table.append(table.spark.range(200, 210).selectExpr("id", "'p0' AS part", "'new' AS s"))


def restored(table: DeltaTable) -> None:
    assert table.spark is not None
    statement = "RESTORE TABLE {T} TO VERSION AS OF 4"
    spark_tables.sql(table.spark, Path(table.storage.root), statement)


# What is done, what another does before its commit, how often it is tried, and the ids in the end.
THIRD = {id_ for id_ in range(200) if id_ % 3}
MEANWHILE: dict[str, tuple[Act, Act, int, set[int]]] = {
    "others rewrite some files": (lambda t: t.purge(), lambda t: t.purge("part = 'p0'"), 1, THIRD),
    "others rewrite all files": (lambda t: t.optimize(), lambda t: t.optimize(), 1, THIRD),
    "others restore rows": (lambda t: t.purge(), restored, 1, set(range(200))),
    "others append": (lambda t: t.optimize(), new_rows, 1, THIRD | set(range(200, 210))),
    "others update": (
        lambda t: t.optimize(),
        lambda t: t.update({"s": "'new'"}, "id IN (1, 77, 199)"),
        1,
        THIRD,
    ),
    "others delete while rows are ordered": (
        lambda t: t.optimize(zorder_by=["id", "s"]),
        lambda t: t.delete("id = 5"),
        2,
        THIRD - {5},
    ),
    "others optimize while rows are deleted": (
        lambda t: t.delete("id IN (5, 103)"),
        lambda t: t.optimize(),
        2,
        THIRD - {5, 103},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MEANWHILE)
def test_no_row_is_lost_or_comes_back_whatever_others_do_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / "t"
    table = small(path, spark, partitioned=True)
    table.delete("id % 3 = 0")
    act, other, tries, expected = MEANWHILE[name]
    tried = before_commit(monkeypatch, lambda: other(table))
    act(table)
    assert len(tried) == tries
    assert ids(path) == sorted(expected)
    assert sum(rows_of(spark, path).values()) == len(expected)
    assert not unnamed_files(path)
    if name == "others update":
        assert table.count("s = 'new'") == 3
    if "rewrite" in name:
        assert table.detail().files_with_vectors == 0


@pytest.mark.slow
def test_rows_of_a_type_that_cannot_be_compared_are_not_moved_blindly(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    spark_tables.create(spark, path, "id bigint, v variant")
    for start in (0, 10):
        rows = f"range({start}, {start + 10})"
        json_text = "concat('{\"a\":', id, '}')"
        source = f"SELECT id, parse_json({json_text}) FROM {rows}"
        spark_tables.sql(spark, path, f"INSERT INTO {{T}} {source}")
    table = DeltaTable.for_path(spark, path)
    tried = before_commit(monkeypatch, lambda: table.delete("id = 3"))
    table.optimize()
    assert len(tried) == 2  # given up, and begun again
    assert ids(path) == [n for n in range(20) if n != 3]


@pytest.mark.slow
def test_without_retries_a_conflict_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    table = small(path, spark)
    before_commit(monkeypatch, table.optimize)
    with pytest.raises(ConflictError, match="changed all files"):
        table.optimize(max_retries=0)
    assert not unnamed_files(path)
