"""What UPDATE means, with delta-spark as the judge."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions

from delvec import DeltaTable
from delvec.errors import ConstraintError, InvalidArgumentError
from tests.delta import log_files
from tests.marks import slow_but
from tests.spark.delta import spark_tables
from tests.spark.delta.write.judge import FEED, KINDS, folder, judged, lazily_made, rows_of, set_sql

pytestmark = pytest.mark.spark

COLUMNS = (
    "id BIGINT, a INT, b INT, p STRING, s STRUCT<x: INT, y: STRUCT<z: STRING>>,"
    " l ARRAY<INT>, m MAP<STRING, INT>, d DECIMAL(5, 2), day DATE"
)
ROWS = (
    "SELECT id, INT(id), IF(id = 5, NULL, INT(id * 10)), IF(id = 4, NULL, STRING(id % 2)),"
    " named_struct('x', INT(id), 'y', named_struct('z', 'z')), array(INT(id)),"
    " map('k', INT(id)), DECIMAL(id), DATE'2024-01-01' FROM range({}, {}, 1, 1)"
)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two files or more of four rows each; row 2 is gone."""
    inserts = [f"INSERT INTO {{T}} {ROWS.format(at, at + 4)}" for at in (0, 4)]
    gone = "DELETE FROM {T} WHERE id = 2"
    return lazily_made(spark, tmp_path_factory, KINDS, COLUMNS, *inserts, gone)


# The kind of table, new values, the condition.
CASES: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "fields, lists, maps and a swap": (
        "feed",
        {
            "a": "b",
            "B": "a",
            "s.x": "s.x + 1",
            "S.y.z": "upper(s.y.z)",
            "l": "array(1, NULL)",
            "m": "map('k', a)",
            "d": "1.005",
        },
        "id % 3 = 0",
    ),
    "everything, copied": ("copied", {"a": "a + 1"}, None),
    "some, copied": ("copied", {"b": 0}, "b > 30"),
    "partitions": ("parts", {"p": "concat(p, 'é/ %')", "a": None}, "p = '1' OR p IS NULL"),
    "everything": ("feed", {"p": "'x'"}, None),
    "a condition that is null": ("feed", {"a": 1}, "b > NULL"),
    "no row": ("parts", {"a": 1}, "id > 100"),
    "other types": (
        "parts",
        {
            "a": "id",
            "d": "a",
            "p": "a",
            "id": "CAST(1 AS TINYINT)",
            "day": "TIMESTAMP'2024-02-03 04:05:06'",
        },
        None,
    ),
    "too large": ("feed", {"a": "id + 3000000000"}, "id = 1"),
    "no such name in the condition": ("feed", {"a": 1}, "no = 1"),
}
FAST = {"fields, lists, maps and a swap", "some, copied"}


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(FAST, CASES))
def test_delta_spark_does_the_same(spark: SparkSession, tables: dict[str, Path], name: str) -> None:
    kind, values, where = CASES[name]
    result = judged(
        spark,
        tables[kind],
        name,
        f"UPDATE {{T}} SET {set_sql(values)} WHERE {where or 'true'}",
        lambda t: t.update(values, where),
        "numUpdatedRows",
    )
    if name in ("no row", "a condition that is null"):
        assert result.done.version is None


@pytest.mark.slow
def test_a_condition_that_is_different_each_time_counts_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id long, v double", properties=FEED)
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
    spark_tables.create(
        spark,
        tmp_path / "t",
        "`a.b` int, `c``d` string, s struct<`x.y`: int, z: int>, l array<int>, d decimal(5,2),"
        " day date, flag boolean, bytes binary, c char(3), v varchar(3)",
        properties={"delta.columnMapping.mode": "name"},
    )
    table = DeltaTable.for_path(spark, tmp_path / "t")
    table.append(spark.sql("SELECT 1 `a.b`, 'x' `c``d`, named_struct('x.y', 1, 'z', 2) s"))
    table.update(
        {
            "a.b": "`a.b` + 1",
            "`c``d`": "concat(`c``d`, 'y')",
            "s.`x.y`": 7,
            "l": [1, 2],
            "d": Decimal("1.50"),
            "day": dt.date(2024, 2, 29),
            "flag": True,
            "bytes": b"\x01",
            "c": "'q'",
            "v": "'abc'",
        }
    )
    assert table.update({"`a.b`": "`a.b` * 10", "c`d": "'z'"}).rows_updated == 1
    [row] = table.to_df().collect()
    day = dt.date(2024, 2, 29)
    expected = (20, "z", (7, 2), [1, 2], Decimal("1.50"), day, True, b"\x01", "q  ", "abc")
    assert tuple(row) == expected
    assert sum(rows_of(spark, tmp_path / "t").values()) == 1
    before = folder(tmp_path / "t")
    for column in ("c", "v"):
        with pytest.raises(ConstraintError):
            table.update({column: "'abcd'"})
    for name in ("a", "s.x", "a.b.c", "", "c"):
        with pytest.raises(InvalidArgumentError):
            table.update({name: "no_such_name"})
    with pytest.raises(InvalidArgumentError):
        table.update({})
    with pytest.raises(InvalidArgumentError, match=r"a\.b does not fit into .* a\.b = 17x"):
        table.update({"`a.b`": "'17x'"})
    assert folder(tmp_path / "t") == before


@pytest.mark.slow
def test_whole_files_go_by_the_log_and_a_plan_leaves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id long, p int", partition_by=["p"])
    table.append(spark.range(0, 6, 1, 1).selectExpr("id", "int(id % 2) p"))
    table.delete("id = 3")
    before = folder(tmp_path / "t")
    dry = table.update({"id": "id + 100"}, where="p = 1", dry_run=True)
    assert (dry.version, dry.rows_updated, dry.files_removed) == (None, 2, 1)
    assert folder(tmp_path / "t") == before
    report = table.update({"id": "id + 100"}, where="p = 1")
    assert (report.rows_updated, report.scans, report.vectors_added) == (2, 0, 0)
    assert Counter(row.id for row in table.to_df().collect()) == Counter([0, 2, 4, 101, 105])
    assert sum(rows_of(spark, tmp_path / "t").values()) == 5
