"""OPTIMIZE and PURGE: files change, rows do not, whoever else writes meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import QueryBuilder
from pyspark.errors import PySparkException

from delvec import DeltaTable
from delvec.errors import ConflictError, DelvecError, InvalidArgumentError, UnsupportedFeatureError
from tests.delta import log_files
from tests.delta.builder import TableBuilder, small_table
from tests.delta.write.write_checks import before_commit, ids, unnamed_files
from tests.spark.delta import spark_tables
from tests.spark.delta.lake import Lake
from tests.spark.delta.write.judge import bag

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
TRACKED = {"delta.enableRowTracking": "true"}


def made(
    lake: Lake,
    *parts: str,
    files: int = 4,
    rows: int = 50,
    properties: dict[str, str] | None = None,
) -> DeltaTable:
    """Let delta-spark make a table of several files with values of every type."""
    starts = range(0, files * rows, rows)
    inserts = (
        f"INSERT INTO {{T}} SELECT {VALUES} FROM range({n}, {n + rows}, 1, 1)" for n in starts
    )
    return lake.create(EVERY_TYPE, *inserts, parts=parts, properties=properties)


def small(lake: Lake, *parts: str) -> DeltaTable:
    """Make a table of four files of 50 rows by hand, two to a partition."""
    fields = {"id": "long", "part": "string", "s": "string"}
    builder = TableBuilder(lake.path, fields=fields, partition_columns=list(parts))
    builder.create()
    for at in range(4):
        ids = range(50 * at, 50 * at + 50)
        rows: dict[str, list[Any]] = {
            "id": list(ids),
            "part": [f"p{at % 2}"] * 50,
            "s": [f"s{n}" for n in ids],
        }
        values = {name: rows.pop(name)[0] for name in parts}
        builder.commit({"add": builder.write_file(f"part-{at}", rows, values or None)})
    return lake.table


def last(path: Path, kind: str) -> list[dict[str, Any]]:
    """Give the actions of a kind of the newest commit."""
    return [each[kind] for each in log_files.commits(path)[-1] if kind in each]


def by_deltalake(path: Path) -> list[int]:
    query = QueryBuilder().register("t", Peer(str(path))).execute("SELECT id FROM t")
    return sorted(pa.table(query.read_all())["id"].to_pylist())


def tracked(lake: Lake) -> set[tuple[int, ...]]:
    """Read row ids and versions by delta-spark."""
    names = "id", "_metadata.row_id", "_metadata.row_commit_version"
    return set(map(tuple, spark_tables.collected(lake.frame().select(*names))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "properties"),
    [((), {}), (("part",), {"delta.columnMapping.mode": "name"}), (("part",), TRACKED)],
    ids=["plain", "mapped", "tracked"],
)
def test_rows_are_the_same_in_every_engine(
    lake: Lake, parts: tuple[str, ...], properties: dict[str, str]
) -> None:
    path, table = lake.path, made(lake, *parts, properties=properties)
    lake.sql("DELETE FROM {T} WHERE id % 3 = 0")
    table.delete("id BETWEEN 60 AND 90")
    ids_before = tracked(lake) if properties == TRACKED else None
    before = lake.rows()
    report = table.optimize()
    assert lake.rows() == before
    assert by_deltalake(path) == ids(path)
    assert (report.files_added, report.rows_copied) == (1 + len(parts), before.total())
    assert report.vectors_removed
    added = last(path, "add")
    assert {each["dataChange"] for each in added + last(path, "remove")} == {False}
    assert all(json.loads(each["stats"])["tightBounds"] for each in added)
    [told] = lake.history()
    assert (told["operation"], told["isolationLevel"]) == ("OPTIMIZE", "SnapshotIsolation")
    assert told["operationMetrics"]["numRemovedFiles"] == str(report.files_removed)
    assert int(told["operationMetrics"]["p50FileSize"]) > 0
    assert not unnamed_files(path)
    assert table.optimize().version is None
    if ids_before is not None:
        assert tracked(lake) == ids_before
    # The version before is still there.
    assert bag(table.to_df(version=table.version - 1)) == before


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("timestamp", ("2026-01-01 00:00:00", "2026-01-01T00:00:00.000000Z")),
        ("decimal(10,2)", ("1.5", "1.50")),
    ],
)
def test_a_partition_that_is_spelled_in_two_ways_is_one(
    lake: Lake, kind: str, texts: tuple[str, str]
) -> None:
    builder = TableBuilder(lake.path, fields={"id": "long", "p": kind}, partition_columns=["p"])
    builder.create()
    for at, text in enumerate((texts[0], texts[1], texts[0])):
        builder.commit({"add": builder.write_file(f"part-{at}", {"id": [at]}, {"p": text})})
    before = lake.rows()
    report = lake.table.optimize()
    assert (report.files_removed, report.files_added) == (3, 1)
    [new] = last(lake.path, "add")
    assert new["partitionValues"] == {"p": texts[1]}, "which is the same in sessions of any zone"
    assert lake.rows() == before
    assert by_deltalake(lake.path) == [0, 1, 2]


def test_a_lone_file_is_rewritten_if_many_of_its_rows_are_deleted(lake: Lake) -> None:
    table = made(lake, files=1)
    table.delete("id < 2")
    assert table.optimize(max_deleted_ratio=0.05).version is None  # 4 %
    table.delete("id < 25")
    assert table.optimize(dry_run=True).files_removed == 1
    assert table.optimize().files_added == 1
    assert ids(lake.path) == list(range(25, 50))


def test_a_purge_rewrites_exactly_the_files_with_vectors(lake: Lake) -> None:
    table = made(lake)
    table.delete("id IN (3, 60)")
    before = lake.rows()
    plan = table.purge(dry_run=True)
    assert (plan.version, plan.files_removed, plan.vectors_removed) == (None, 2, 2)
    assert "2 files would become 1" in str(plan)
    report = table.purge()
    assert (report.files_removed, report.vectors_removed, report.rows_copied) == (2, 2, 98)
    assert lake.rows() == before
    [told] = lake.history()
    assert told["operation"] == "REORG"
    assert told["operationMetrics"]["numDeletionVectorsRemoved"] == "2"
    assert table.detail().files_with_vectors == 0
    assert table.purge().version is None


@pytest.mark.slow
def test_files_are_chosen_by_a_condition(lake: Lake) -> None:
    table = made(lake, "part")
    before = lake.rows()
    assert table.optimize("part = 'p0'").files_removed == 4
    assert table.optimize("id < 60", max_deleted_ratio=1).files_removed == 2
    assert lake.rows() == before


@pytest.mark.slow
def test_bins_are_written_to_a_file_each(lake: Lake) -> None:
    table = made(lake, files=9, rows=20)
    table.delete("id % 20 = 7")
    sizes = table.arrow_files().column("size").to_pylist()
    before = lake.rows()
    report = table.optimize(target_file_size=int(2.5 * max(sizes)), max_deleted_ratio=0)
    assert report.files_removed == 9
    assert 4 <= report.files_added <= 5
    assert lake.rows() == before


@pytest.mark.slow
def test_files_without_live_rows_are_removed(lake: Lake) -> None:
    builder, live = small_table(lake.path)
    # delta-spark would remove such a file; others have left them.
    [vector] = builder.write_vectors(range(10))
    builder.delete(live[0], vector)
    report = lake.table.purge()
    assert (report.files_added, report.files_removed) == (1, 2)
    assert ids(lake.path) == [10, 11, 12, 15, 16, 17, 18, 19]


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(2, 10), (1, 13)], ids=["none left", "one hides the other"])
def test_rows_are_not_lost_where_the_log_counts_wrong(lake: Lake, counts: tuple[int, int]) -> None:
    builder, live = small_table(lake.path)
    # Two rows of each are deleted. Some writers count the live rows only.
    for at, count in enumerate(counts):
        entry = {**live[at], "stats": json.dumps({"numRecords": count, "tightBounds": False})}
        builder.commit({"add": entry})
    table = lake.table
    ordered = partial(table.optimize, zorder_by=["id"])
    for act in (table.purge, table.optimize, ordered):
        with pytest.raises(DelvecError):
            act()
    assert unnamed_files(lake.path) == set()


@pytest.mark.slow
def test_rows_in_order_of_several_columns(lake: Lake) -> None:
    source = (
        "SELECT string(id % 2), int(pmod(hash(id), 1000)), string(pmod(hash(id, 1), 1000)),"
        " if(id % 9 = 0, null, rand(1)) FROM range(0, 20000, 1, 4)"
    )
    table = lake.create("part string, x int, y string, z double", f"INSERT INTO {{T}} {source}")
    table.delete("x % 10 = 3")
    before = lake.rows()
    size = table.detail().bytes // 8
    report = table.optimize(zorder_by=["x", "y"], target_file_size=size, min_file_size=0)
    assert lake.rows() == before
    assert report.files_added >= 6
    assert json.loads(lake.history()[0]["operationParameters"]["zOrderBy"]) == ["x", "y"]
    bounds = [json.loads(each["stats"]) for each in last(lake.path, "add")]
    narrow = [each for each in bounds if each["maxValues"]["x"] - each["minValues"]["x"] < 600]
    assert len(narrow) >= len(bounds) / 2
    report = table.optimize(zorder_by=["z"], target_file_size=size, min_file_size=0)
    assert report.files_added >= 6
    assert lake.rows() == before


@pytest.mark.slow
def test_zorder_of_partitions(lake: Lake) -> None:
    table = made(lake, "part", properties=TRACKED)
    table.delete("id % 3 = 0")
    before, ids_before = lake.rows(), tracked(lake)
    report = table.optimize(zorder_by=["i", "st.x", "at"])
    assert 2 <= report.files_added <= 3  # a range may end inside of a partition
    assert (lake.rows(), tracked(lake)) == (before, ids_before)


def test_wrong_arguments_are_refused(lake: Lake) -> None:
    columns = "id long, part string, m map<string, int>, arr array<int>, flag boolean"
    few = {"delta.dataSkippingStatsColumns": "id"}
    table = DeltaTable.create(lake.spark, lake.path, columns, ["part"], few)
    for names, what in (
        (["part"], "partition column"),
        (["m"], "no order"),
        (["arr"], "no order"),
        (["nosuch"], "nosuch"),
        (["flag"], "no statistics"),
        (["id"] * 8, "7 are the most"),
        ("id", "is a list of strings"),
    ):
        with pytest.raises(InvalidArgumentError, match=what):
            table.optimize(zorder_by=names)
    with pytest.raises(InvalidArgumentError, match="target_file_size"):
        table.optimize(target_file_size=0)
    with pytest.raises(InvalidArgumentError, match="needs a Spark session"):
        lake.bare.optimize()
    for act in (table.optimize, table.purge):
        with pytest.raises(InvalidArgumentError, match="nosuch"):
            act("nosuch = 1")
        assert act().version is None


@pytest.mark.more
def test_zorder_of_a_clustered_table_is_refused_as_by_delta_spark(lake: Lake) -> None:
    lake.sql("CREATE TABLE {T} (id long, v long) USING delta CLUSTER BY (id)")
    lake.sql("INSERT INTO {T} SELECT id, id FROM range(9)")
    with pytest.raises(PySparkException, match="DELTA_CLUSTERING_WITH_ZORDER_BY"):
        lake.sql("OPTIMIZE {T} ZORDER BY (v)")
    with pytest.raises(UnsupportedFeatureError, match="is clustered by id: a Z-order would undo"):
        lake.table.optimize(zorder_by=["v"])
    with pytest.raises(UnsupportedFeatureError, match="no partitions to choose from"):
        lake.table.optimize("id = 1")
    assert lake.table.version == 1


# Other writers meanwhile.


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("parts", [(), ("part",)], ids=["plain", "partitioned"])
def test_a_delete_that_lands_meanwhile_is_carried_over(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, parts: tuple[str, ...]
) -> None:
    table = small(lake, *parts)
    table.delete("id % 10 = 4")
    meanwhile = ("id % 7 = 0 AND id < 120", "id = 8")
    tried = before_commit(monkeypatch, lambda: [table.delete(where) for where in meanwhile])
    report = table.optimize()
    assert tried == [0]
    assert report.reconciled
    gone = {n for n in range(200) if n % 10 == 4 or (n % 7 == 0 and n < 120) or n == 8}
    assert ids(lake.path) == sorted(set(range(200)) - gone)
    assert lake.rows().total() == 200 - len(gone)
    assert all("deletionVector" in each for each in last(lake.path, "add"))
    assert not unnamed_files(lake.path)
    table.purge()
    assert ids(lake.path) == sorted(set(range(200)) - gone)


@pytest.mark.slow
def test_a_delete_of_the_rest_meanwhile_leaves_no_new_file(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = small(lake)
    table.delete("id % 2 = 0")
    # The log says that these files have rows, and deletes them one file after the other.
    before_commit(
        monkeypatch, lambda: [table.delete(f"id % 50 <> 49 AND id < {n}") for n in (9, 200)]
    )
    table.optimize()
    assert ids(lake.path) == [49, 99, 149, 199]
    assert not unnamed_files(lake.path)


Act = Callable[[DeltaTable, Lake], object]


def new_rows(table: DeltaTable, lake: Lake) -> object:
    return table.append(lake.spark.range(200, 210).selectExpr("id", "'p0' AS part", "'new' AS s"))


RESTORE = "RESTORE TABLE {T} TO VERSION AS OF 4"
THIRD = {id_ for id_ in range(200) if id_ % 3}
PURGE: Act = lambda t, _: t.purge()  # noqa: E731
OPTIMIZE: Act = lambda t, _: t.optimize()  # noqa: E731
DELETE: Act = lambda t, _: t.delete("id IN (5, 103)")  # noqa: E731
ORDER: Act = lambda t, _: t.optimize(zorder_by=["id", "s"])  # noqa: E731
UPDATE: Act = lambda t, _: t.update({"s": "'new'"}, "id IN (1, 77, 199)")  # noqa: E731
# What is done, what another does before its commit, how often it is tried, and the ids in the end.
MEANWHILE: dict[str, tuple[Act, Act, int, set[int]]] = {
    "others rewrite some files": (PURGE, lambda t, _: t.purge("part = 'p0'"), 1, THIRD),
    "others rewrite all files": (OPTIMIZE, OPTIMIZE, 1, THIRD),
    "others restore rows": (PURGE, lambda _, lake: lake.sql(RESTORE), 1, set(range(200))),
    "others append": (OPTIMIZE, new_rows, 1, THIRD | set(range(200, 210))),
    "others update": (OPTIMIZE, UPDATE, 1, THIRD),
    "others delete while rows are ordered": (ORDER, DELETE, 2, THIRD - {5, 103}),
    "others optimize while rows are deleted": (DELETE, OPTIMIZE, 2, THIRD - {5, 103}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MEANWHILE)
def test_no_row_is_lost_or_comes_back_whatever_others_do_meanwhile(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    table = small(lake, "part")
    table.delete("id % 3 = 0")
    act, other, tries, expected = MEANWHILE[name]
    tried = before_commit(monkeypatch, lambda: other(table, lake))
    act(table, lake)
    assert len(tried) == tries
    assert ids(lake.path) == sorted(expected)
    assert lake.rows().total() == len(expected)
    assert not unnamed_files(lake.path)
    if name == "others update":
        assert table.count("s = 'new'") == 3
    if "rewrite" in name:
        assert table.detail().files_with_vectors == 0


@pytest.mark.slow
def test_rows_of_a_type_that_cannot_be_compared_are_not_moved_blindly(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = "INSERT INTO {T} SELECT id, parse_json(concat('[', id, ']')) FROM range"
    lake.create("id bigint, v variant", f"{insert}(10)", f"{insert}(10, 20)")
    tried = before_commit(monkeypatch, lambda: lake.table.delete("id = 3"))
    lake.table.optimize()
    assert len(tried) == 2  # given up, and begun again
    assert ids(lake.path) == [n for n in range(20) if n != 3]


@pytest.mark.slow
def test_without_retries_a_conflict_is_told(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = small(lake)
    before_commit(monkeypatch, table.optimize)
    with pytest.raises(ConflictError, match="changed all files"):
        table.optimize(max_retries=0)
    assert not unnamed_files(lake.path)
