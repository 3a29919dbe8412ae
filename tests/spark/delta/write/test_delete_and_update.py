"""What DELETE and UPDATE mean, with delta-spark as the judge."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, SparkSession, functions

from delvec import DeltaTable
from delvec.delta.log.paths import commit_key
from delvec.errors import ConstraintError, DelvecError, FormatError, InvalidArgumentError
from tests.delta import log_files
from tests.delta.builder import TableBuilder
from tests.marks import slow_but
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import settings_of
from tests.spark.delta.write.judge import (
    FEED,
    KINDS,
    New,
    folder,
    judged,
    lazily_made,
    made,
    rows_of,
    set_sql,
)

pytestmark = pytest.mark.spark

INLINE = {  # rows 0 and 5, by delta-rs
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000315c8Xg000f5",
    "sizeInBytes": 36,
    "cardinality": 2,
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files of five rows; row 3 is gone."""
    rows = "SELECT id, IF(id = 7, NULL, concat('t', id)), INT(id % 2)"
    return lazily_made(
        spark,
        tmp_path_factory,
        KINDS,
        "id BIGINT, v STRING, p INT",
        f"INSERT INTO {{T}} {rows} FROM range(0, 5, 1, 1)",
        f"INSERT INTO {{T}} {rows} FROM range(5, 10, 1, 1)",
        "DELETE FROM {T} WHERE id = 3",
    )


Case = tuple[str, str, dict[str, int], Callable[[], Column] | None]


def case(
    kind: str, where: str, delvecs: Callable[[], Column] | None = None, **figures: int
) -> Case:
    """A kind of table, a condition, and what the report says of it."""
    return kind, where, figures, delvecs


CASES: dict[str, Case] = {
    "by vector": case("feed", "id IN (2, 6)", vectors_added=1, vectors_updated=1),
    "copied": case("copied", "v > 't1' AND v < 't6'", files_added=1, rows_copied=6),
    "copied with whole files": case("copied", "id < 5 OR id = 8", files_removed=2, rows_copied=4),
    "by partition": case(
        "parts",
        "p = 1",
        lambda: functions.col("p") == 1,  # a column needs a session
        scans=0,
        vector_files=0,
        files_removed=2,
        rows_deleted=4,
    ),
    "by statistics": case(
        "feed", "id >= 5", scans=0, vector_files=0, files_removed=1, rows_deleted=5, files_pruned=1
    ),
    "the rest of a file": case(
        "feed",
        "v IN ('t0', 't1', 't2', 't4')",
        files_removed=1,
        vector_files=0,
        vectors_removed=1,
        rows_deleted=4,
    ),
    "all": case("feed", "true", rows_deleted=9),
    "null": case("feed", "v > 't5'", rows_deleted=3),
    "nothing": case("feed", "v = 'none'", rows_deleted=0),
    "a condition that is no boolean": case("feed", "id + 1"),
    "an unknown name": case("feed", "nope = 1"),
}
FAST = {"by vector", "by partition", "the rest of a file"}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", slow_but(FAST, CASES))
def test_deletes_are_delta_sparks(spark: SparkSession, tables: dict[str, Path], name: str) -> None:
    kind, where, figures, delvecs = CASES[name]
    statement = f"DELETE FROM {{T}} WHERE {where}"
    result = judged(
        spark,
        tables[kind],
        name,
        statement,
        lambda t: t.delete(delvecs() if delvecs else where),
        "numDeletedRows",
    )
    if figures:
        assert {each: getattr(result.done, each) for each in figures} == figures
    if name == "nothing":
        assert result.done.version is None
    if name == "by vector":  # and again what is gone already, and what is not
        table = DeltaTable.for_path(spark, result.path)
        assert table.delete("id IN (2, 6)").version is None
        assert table.delete("id IN (2, 6, 7)").rows_deleted == 1


# Who makes vectors and who reads them: tasks, if the driver may hold none.
BY_TASKS = {"write": "spark.delvec.write.hitMemory", "scan": "spark.delvec.scan.vectorMemory"}


def big(path: Path) -> None:
    """Make a table of two files of 70,000 rows without statistics, in several row groups."""
    table = TableBuilder(path)
    table.create()
    adds = []
    for number in range(2):
        ids = pa.array(range(number * 70_000, (number + 1) * 70_000))
        add = table.write_file(f"part {number}.parquet", {"id": ids}, row_group_size=20_000)
        del add["stats"]
        adds.append(add | {"path": f"part%20{number}.parquet"})
    table.commit(*({"add": add} for add in adds))


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [(), ("write", "scan")])
def test_all_forms_do_the_same_in_files_without_statistics(
    spark: SparkSession, tmp_path: Path, tasks: tuple[str, ...]
) -> None:
    path = tmp_path / "t"
    big(path)
    table = DeltaTable.for_path(spark, path)
    with settings_of(spark, {BY_TASKS[each]: "0" for each in tasks}):
        first = table.delete("id % 69999 = 7 OR id BETWEEN 30000 AND 35000")
        assert (first.rows_deleted, first.vectors_added) == (5003, 2)
        second = table.delete("id IN (69999, 70000, 7, 8, 139999)")
        assert (second.rows_deleted, second.vectors_updated) == (4, 2)
        third = table.delete("id >= 70000 AND id % 1 = 0")
        assert (third.rows_deleted, third.files_removed) == (69_997, 1)
        rows = table.to_df().toArrow().column("id").to_pylist()
    left = set(range(70_000)) - {7, 8, 69_999, *range(30_000, 35_001)}
    assert len(rows) == len(left)
    assert set(rows) == left
    [add] = log_files.live_adds(path)
    assert json.loads(add["stats"])["numRecords"] == 70_000
    prefix = add["deletionVector"]["pathOrInlineDv"][:-20]
    assert len(prefix) == (8 if "write" in tasks else 0)
    vectors = [name for name in folder(path) if name.endswith(".bin")]
    assert any(name.startswith(f"{prefix}/" if prefix else "deletion_vector_") for name in vectors)
    theirs = spark_tables.as_delta_spark_reads(spark, path)
    assert theirs.count() == len(left)
    assert theirs.where("id IN (7, 30000, 69999, 69998)").count() == 1


def test_vectors_by_tasks_of_no_commit_are_gone(
    spark: SparkSession, tmp_path: Path, new: New
) -> None:
    table = new("id long")
    table.append(spark.range(0, 20, 1, 1))
    before = folder(tmp_path / "t")
    with settings_of(spark, {BY_TASKS["write"]: "0"}):
        assert table.delete("id = 3", dry_run=True).rows_deleted == 1
        assert folder(tmp_path / "t") == before
        with pytest.raises(DelvecError):
            table.delete("id = 3 OR raise_error('no') IS NULL")
    assert folder(tmp_path / "t") == before


def test_vectors_of_any_kind_grow(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    builder = TableBuilder(path)
    builder.create()
    adds = [builder.write_file(f"{n}.parquet", {"id": range(n * 10, n * 10 + 10)}) for n in (0, 1)]
    builder.commit(*({"add": add} for add in adds))
    builder.delete(adds[0], INLINE)
    [vector] = builder.write_vectors([3])
    name = str(builder.vector_path())
    absolute = vector | {"storageType": "p", "pathOrInlineDv": f"file://{name}"}
    builder.delete(adds[1], absolute)
    table = DeltaTable.for_path(spark, path)
    report = table.delete("id IN (0, 5, 6, 10)")
    assert (report.rows_deleted, report.vectors_updated) == (2, 2)
    expected = set(range(20)) - {0, 5, 6, 10, 13}
    assert {row.id for row in table.to_df().collect()} == expected
    assert sum(rows_of(spark, path).values()) == len(expected)


def test_a_file_is_written_anew_at_the_ratio(spark: SparkSession, tmp_path: Path, new: New) -> None:
    table = new("id long, v string", properties=FEED)
    table.append(spark.range(0, 20, 1, 2).selectExpr("id", "'x' v"))
    report = table.delete("id IN (1, 10, 11, 12, 13, 14)", rewrite_ratio=0.5)
    assert (report.vectors_added, report.files_added, report.files_removed) == (1, 1, 1)
    assert (report.rows_deleted, report.rows_copied) == (6, 5)
    gone = table.changes(report.version).collect()
    assert sorted((row.id, row._change_type) for row in gone) == [
        (row, "delete") for row in (1, 10, 11, 12, 13, 14)
    ]
    assert sum(rows_of(spark, tmp_path / "t").values()) == 14
    for ratio in (0, -1, 1.5):
        with pytest.raises(InvalidArgumentError, match="rewrite_ratio"):
            table.delete("id = 1", rewrite_ratio=ratio)


def test_conditions_that_need_other_rows(spark: SparkSession, new: New) -> None:
    table = new("id long")
    table.append(spark.range(10))
    spark.range(3, 5).createOrReplaceTempView("doomed")
    assert table.delete("id IN (SELECT id FROM doomed)").rows_deleted == 2
    assert table.delete("id < (SELECT min(id) - 2 FROM doomed)").rows_deleted == 1
    with settings_of(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):  # by a shuffle
        assert table.delete("id IN (SELECT id * 2 FROM doomed)").rows_deleted == 2
        assert table.update({"id": "-id"}, where="id IN (SELECT id + 2 FROM doomed)").rows_updated
    spark.catalog.dropTempView("doomed")
    assert sorted(row.id for row in table.to_df().collect()) == [-5, 1, 2, 7, 9]
    with pytest.raises(InvalidArgumentError):
        table.delete("sum(id) > 3")
    with pytest.raises(InvalidArgumentError):
        table.delete("id =")
    before = table.count()
    report = table.delete("rand() < 0.5")
    assert table.count() == before - report.rows_deleted


@pytest.mark.slow
def test_the_feed_of_whole_files_has_no_rows_of_others(spark: SparkSession, new: New) -> None:
    table = new("id long, day string", ["day"], FEED)
    days = spark.sql("SELECT explode(array('a', 'b', 'c')) day")
    table.append(spark.range(6).crossJoin(days).coalesce(1))
    table.delete("id = 0")
    with settings_of(spark, {BY_TASKS["scan"]: "0"}):
        version = table.delete("day = 'a' or (day = 'b' and id > 3)", rewrite_ratio=0.3).version
    found = table.changes(version).groupBy("day", "_change_type").count().collect()
    assert sorted(map(tuple, found)) == [("a", "delete", 5), ("b", "delete", 2)]


def test_a_wrong_row_count_removes_no_file(spark: SparkSession, tmp_path: Path, new: New) -> None:
    table = new("id long")
    table.append(spark.range(10).coalesce(1))
    table.delete("id < 3")
    file = tmp_path / "t" / commit_key(2)
    text = file.read_text()
    wrong = text.replace('\\"numRecords\\":10', '\\"numRecords\\":7')
    assert wrong != text
    file.write_text(wrong)
    table = DeltaTable.for_path(spark, tmp_path / "t")
    with pytest.raises(FormatError, match=r"10 rows in .*, by its footer, found numRecords 7"):
        table.delete("id between 3 and 6 and id % 1 = 0")
    assert sorted(row.id for row in table.to_df().collect()) == [3, 4, 5, 6, 7, 8, 9]


# UPDATE
WIDE = (
    "id BIGINT, a INT, b INT, p STRING, s STRUCT<x: INT, y: STRUCT<z: STRING>>,"
    " l ARRAY<INT>, m MAP<STRING, INT>, d DECIMAL(5, 2), day DATE"
)
WIDE_ROWS = (
    "SELECT id, INT(id), IF(id = 5, NULL, INT(id * 10)), IF(id = 4, NULL, STRING(id % 2)),"
    " named_struct('x', INT(id), 'y', named_struct('z', 'z')), array(INT(id)),"
    " map('k', INT(id)), DECIMAL(id), DATE'2024-01-01' FROM range({}, {}, 1, 1)"
)


@pytest.fixture(scope="module")
def wide(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two files or more of four rows each; row 2 is gone."""
    inserts = [f"INSERT INTO {{T}} {WIDE_ROWS.format(at, at + 4)}" for at in (0, 4)]
    gone = "DELETE FROM {T} WHERE id = 2"
    return lazily_made(spark, tmp_path_factory, KINDS, WIDE, *inserts, gone)


# The kind of table, the condition, new values.
UPDATES: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "fields, lists, maps and a swap": (
        "feed",
        "id % 3 = 0",
        {"a": "b", "B": "a", "s.x": "s.x + 1", "S.y.z": "upper(s.y.z)", "d": "1.005"}
        | {"l": "array(1, NULL)", "m": "map('k', a)"},
    ),
    "everything, copied": ("copied", None, {"a": "a + 1"}),
    "some, copied": ("copied", "b > 30", {"b": 0}),
    "partitions": ("parts", "p = '1' OR p IS NULL", {"p": "concat(p, 'é/ %')", "a": None}),
    "everything": ("feed", None, {"p": "'x'"}),
    "a condition that is null": ("feed", "b > NULL", {"a": 1}),
    "no row": ("parts", "id > 100", {"a": 1}),
    "other types": (
        "parts",
        None,
        {"a": "id", "d": "a", "p": "a", "id": "CAST(1 AS TINYINT)"}
        | {"day": "TIMESTAMP'2024-02-03 04:05:06'"},
    ),
    "too large": ("feed", "id = 1", {"a": "id + 3000000000"}),
    "no such name in the condition": ("feed", "no = 1", {"a": 1}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", UPDATES)
def test_updates_are_delta_sparks(spark: SparkSession, wide: dict[str, Path], name: str) -> None:
    kind, where, values = UPDATES[name]
    statement = f"UPDATE {{T}} SET {set_sql(values)} WHERE {where or 'true'}"
    act = lambda t: t.update(values, where)  # noqa: E731
    done = judged(spark, wide[kind], f"update {name}", statement, act, "numUpdatedRows")
    if name in ("no row", "a condition that is null"):
        assert done.done.version is None


@pytest.mark.slow
def test_a_random_condition_counts_once(spark: SparkSession, tmp_path: Path, new: New) -> None:
    table = new("id long, v double", properties=FEED)
    table.append(spark.range(0, 1000, 1, 2).selectExpr("id", "-1d v"))
    report = table.update({"v": functions.rand()}, where="rand() < 0.5")
    changed = {(row.id, row.v) for row in table.to_df().where("v <> -1").collect()}
    assert table.count() == 1000
    assert len(changed) == report.rows_updated
    assert 0 < len(changed) < 1000
    adds = log_files.live_adds(tmp_path / "t")
    marked = sum(add["deletionVector"]["cardinality"] for add in adds if "deletionVector" in add)
    assert marked == report.rows_updated
    told = table.changes(report.version).where("_change_type = 'update_postimage'").collect()
    assert {(row.id, row.v) for row in told} == changed


@pytest.mark.slow
def test_plain_values_and_odd_names(spark: SparkSession, tmp_path: Path) -> None:
    columns = (
        "`a.b` int, `c``d` string, s struct<`x.y`: int, z: int>, l array<int>, d decimal(5,2),"
        " day date, flag boolean, bytes binary, c char(3), v varchar(3)"
    )
    path = made(spark, tmp_path / "t", columns, properties={"delta.columnMapping.mode": "name"})
    table = DeltaTable.for_path(spark, path)
    table.append(spark.sql("SELECT 1 `a.b`, 'x' `c``d`, named_struct('x.y', 1, 'z', 2) s"))
    day, bytes_ = dt.date(2024, 2, 29), b"\x01"
    plain = {"l": [1, 2], "d": Decimal("1.50"), "day": day, "flag": True, "bytes": bytes_}
    sql = {"a.b": "`a.b` + 1", "`c``d`": "concat(`c``d`, 'y')", "c": "'q'", "v": "'abc'"}
    table.update({**sql, "s.`x.y`": 7, **plain})
    assert table.update({"`a.b`": "`a.b` * 10", "c`d": "'z'"}).rows_updated == 1
    [row] = table.to_df().collect()
    expected = (20, "z", (7, 2), *plain.values(), "q  ", "abc")
    assert tuple(row) == expected
    assert sum(rows_of(spark, tmp_path / "t").values()) == 1
    before = folder(tmp_path / "t")
    wrong: list[tuple[type[DelvecError], dict[str, str], str | None]] = [
        *((ConstraintError, {name: "'abcd'"}, None) for name in ("c", "v")),
        *((InvalidArgumentError, {name: "no"}, None) for name in ("a", "s.x", "a.b.c", "", "c")),
        (InvalidArgumentError, {}, None),
        (InvalidArgumentError, {"`a.b`": "'17x'"}, r"a\.b does not fit into .* a\.b = 17x"),
    ]
    for error, values, message in wrong:
        with pytest.raises(error, match=message):
            table.update(values)
    assert folder(tmp_path / "t") == before
