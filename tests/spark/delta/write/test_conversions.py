"""Values of another type than their column: cast, or their column widened where it allows that."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.errors import InvalidArgumentError
from tests.delta import log_files
from tests.marks import slow_but
from tests.spark.delta.readers import settings_of
from tests.spark.delta.write.judge import (
    Judged,
    New,
    copy_of,
    folder,
    judged,
    judged_merge,
    judged_write,
    made,
    set_sql,
)

pytestmark = [pytest.mark.spark, pytest.mark.more]

# Each column's type, what is stored in it, and what is refused.
CASES = {
    "i": ("INT", "' 5 '", "'x'"),
    "d": ("DATE", "'2024-02-29'", "'2024-02-30'"),
    "z": ("TIMESTAMP", "'2024-02-29 01:02:03.5'", "'no'"),
    "n": ("TIMESTAMP_NTZ", "'2024-02-29'", "''"),
    "c": ("DECIMAL(5, 2)", "'1.255'", "'12345.6'"),
    "b": ("BOOLEAN", "'yes'", "'maybe'"),
    "f": ("DOUBLE", "'1e3'", "'1,5'"),
    "y": ("TINYINT", "TRUE", "'300'"),
    "g": ("BIGINT", "TIMESTAMP'2024-01-01 00:00:00'", "'9999999999999999999'"),
    "x": ("BINARY", "'ab'", "5"),
    "t": ("TIMESTAMP", "5", "array(1)"),
    "q": ("BOOLEAN", "2", "DATE'2024-01-01'"),
    "w": ("STRING", "DATE'2024-01-01'", "INTERVAL '1' YEAR"),
    "v": ("STRING", "array(1, NULL)", "INTERVAL '1' YEAR"),
    "s": (
        "STRUCT<a: INT, d: DATE>",
        "named_struct('d', '2024-02-29', 'a', '1')",
        "named_struct('d', 'no', 'a', '1')",
    ),
    "l": ("ARRAY<INT>", "array('1', NULL)", "array('1', '1.5')"),
    "m": ("MAP<INT, DATE>", "map('7', '2024-02-29')", "map('seven', '2024-02-29')"),
}
GOOD = {name: good for name, (_, good, _) in CASES.items()}
LISTED = ", ".join(f"{good} AS {name}" for name, good in GOOD.items())
REFUSED = {name: bad for name, (kind, _, bad) in CASES.items() if kind != "STRING"}
ANSI = "spark.sql.ansi.enabled"


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in CASES.items())
    nulls = ", NULL" * len(CASES)
    rows = f"INSERT INTO {{T}} VALUES (1{nulls}), (2{nulls})"
    return made(spark, tmp_path_factory.mktemp("casts") / "t", f"id INT, {columns}", rows)


@pytest.mark.slow
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_an_update_casts_as_delta_spark_does(spark: SparkSession, table: Path, ansi: str) -> None:
    statement = f"UPDATE {{T}} SET {set_sql(GOOD)} WHERE id = 1"
    with settings_of(spark, {ANSI: ansi}):
        done = judged(spark, table, f"update-{ansi}", statement, lambda t: t.update(GOOD, "id = 1"))
    assert done.done.rows_updated == 1


@pytest.mark.slow
def test_a_merge_casts_as_delta_spark_does(spark: SparkSession, table: Path) -> None:
    query = f"SELECT 2 AS id, {LISTED} UNION ALL SELECT 3, {', '.join(GOOD.values())}"
    done = judged_merge(spark, table, "merge", query).done
    assert (done.rows_updated, done.rows_inserted) == (1, 1)


def appended(spark: SparkSession, table: Path, word: str, query: str) -> Judged:
    """Append the rows of a query by both engines."""
    rows = spark.sql(query)
    return judged(
        spark,
        table,
        word,
        lambda path: rows.writeTo(f"delta.`{path}`").append(),
        lambda t: t.append(rows),
    )


@pytest.mark.parametrize("ansi", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_an_append_casts_as_delta_spark_does(spark: SparkSession, table: Path, ansi: str) -> None:
    with settings_of(spark, {ANSI: ansi}):
        done = appended(spark, table, f"append-{ansi}", f"SELECT 4 AS id, {LISTED}")
    assert done.done.rows_inserted == 1


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", slow_but({"i", "s"}, REFUSED))
def test_delta_spark_refuses_the_same(spark: SparkSession, table: Path, name: str) -> None:
    bad = REFUSED[name]
    query = f"SELECT 4 AS id, {bad} AS {name}"
    assert name in str(appended(spark, table, f"append-{name}", query).error)
    statement = f"UPDATE {{T}} SET {name} = {bad} WHERE id = 1"
    done = judged(spark, table, f"set-{name}", statement, lambda t: t.update({name: bad}, "id = 1"))
    assert name in str(done.error)


# Wider types.
ON = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}
# Each column's type, an old value, and one of a wider type.
WIDER = {
    "y": ("TINYINT", "1", "3000000000L"),
    "i": ("INT", "1", "5L"),
    "d": ("INT", "1", "1.5D"),
    "c": ("INT", "1", "CAST(1.5 AS DECIMAL(12, 2))"),
    "g": ("BIGINT", "1", "CAST(1 AS DECIMAL(20, 0))"),
    "f": ("FLOAT", "1", "1.5D"),
    "n": ("DATE", "DATE'2020-01-01'", "TIMESTAMP_NTZ'2024-01-01 05:00:00'"),
    "e": ("DECIMAL(5, 2)", "1", "CAST(1.234 AS DECIMAL(8, 3))"),
    "s": (
        "STRUCT<a: INT, b: ARRAY<INT>>",
        "named_struct('a', 1, 'b', array(1))",
        "named_struct('a', 5L, 'b', array(3000000000L))",
    ),
    "m": (
        "MAP<INT, ARRAY<STRUCT<x: INT>>>",
        "map(1, array(named_struct('x', 1)))",
        "map(1L, array(named_struct('x', 7L)))",
    ),
}
SOURCE = ", ".join(f"{new} AS {name}" for name, (_, _, new) in WIDER.items())


@pytest.fixture(scope="module")
def narrow(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in WIDER.items())
    old = ", ".join(old for _, old, _ in WIDER.values())
    rows = f"INSERT INTO {{T}} VALUES (1, {old}), (2, {old})"
    path = tmp_path_factory.mktemp("widening") / "t"
    return made(spark, path, f"id INT, {columns}", rows, properties=ON)


def schema_of(path: Path) -> dict[str, Any]:
    """Give the schema of the newest metadata, as it is in the log."""
    actions = [action for commit in log_files.commits(path) for action in commit]
    texts = [action["metaData"]["schemaString"] for action in actions if "metaData" in action]
    return json.loads(texts[-1])  # type: ignore[no-any-return]


def evolved(spark: SparkSession, table: Path, word: str, query: str) -> Judged:
    """Append the rows of a query with schema evolution, by both engines."""
    act = partial(DeltaTable.append, merge_schema=True)
    return judged_write(spark, table, word, query, act, mergeSchema="true")


def test_an_append_widens_as_delta_spark_does(spark: SparkSession, narrow: Path) -> None:
    done = evolved(spark, narrow, "append", f"SELECT 3 AS id, {SOURCE}")
    assert done.report is not None
    assert schema_of(done.path) == schema_of(narrow.parent / "append-theirs")


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_merge_widens_as_delta_spark(spark: SparkSession, narrow: Path, vectors: str) -> None:
    base = copy_of(narrow, f"base-{vectors}")
    t = DeltaTable.for_path(spark, base)
    t.set_properties({"delta.enableDeletionVectors": vectors})
    query = f"SELECT 2 AS id, {SOURCE} UNION ALL SELECT 3 AS id, {SOURCE}"
    done = judged_merge(spark, base, f"merge-{vectors}", query, evolve=True)
    assert done.report is not None
    assert schema_of(done.path) == schema_of(base.parent / f"merge-{vectors}-theirs")


@pytest.mark.slow
def test_old_rows_are_found_by_the_new_type(spark: SparkSession, tmp_path: Path) -> None:
    path = made(spark, tmp_path / "t", "c TINYINT, p INT", partitioned_by=["p"], properties=ON)
    t = DeltaTable.for_path(spark, path)
    for value in ("1Y", "300S", "70000", "3000000000L"):
        t.append(spark.sql(f"SELECT {value} AS c, {value} AS p"), merge_schema=True)
    [c, p] = schema_of(path)["fields"]
    kinds = ("byte", "short", "integer", "long")
    assert c["metadata"]["delta.typeChanges"] == [
        {"fromType": old, "toType": wide} for old, wide in pairwise(kinds)
    ]
    assert p["metadata"]["delta.typeChanges"] == [{"fromType": "integer", "toType": "long"}]
    assert t.delete("c >= 300 AND p < 3000000000").rows_deleted == 2
    rows = {tuple(row) for row in t.to_df().collect()}
    assert rows == {(1, 1), (3000000000, 3000000000)}
    assert {tuple(row) for row in spark.read.format("delta").load(str(path)).collect()} == rows


@pytest.mark.slow
def test_what_is_not_widened(spark: SparkSession, tmp_path: Path, new: New) -> None:
    off, before = new("c int, s struct<a: int>"), folder(tmp_path / "t")
    for query in ("SELECT 3000000000L AS c", "SELECT named_struct('a', 3000000000L) AS s"):
        with pytest.raises(InvalidArgumentError, match=r"does not fit into int.*= 3000000000"):
            off.append(spark.sql(query), merge_schema=True)
        assert folder(tmp_path / "t") == before
    path = made(spark, tmp_path / "on", "id INT, c INT, g INT", properties=ON)
    on = DeltaTable.for_path(spark, path)
    with pytest.raises(InvalidArgumentError, match="does not fit"):
        on.append(spark.sql("SELECT 3000000000L AS c"))  # without merge_schema
    on.append(spark.sql("SELECT 7S AS c, 8 AS g"), merge_schema=True)  # narrower
    assert str(on.schema.field("c").type) == "integer"
    on.add_constraint("small", "c < 10")
    with pytest.raises(InvalidArgumentError, match="constraint small names it"):
        on.append(spark.sql("SELECT 1L AS c"), merge_schema=True)
    on.append(spark.sql("SELECT 1 AS c, 1L AS g"), merge_schema=True)
    assert str(on.schema.field("g").type) == "long"


@pytest.mark.slow
def test_generated_columns_and_names_like_steps(spark: SparkSession, tmp_path: Path) -> None:
    columns = "k INT, value INT, m MAP<INT, INT>, g INT GENERATED ALWAYS AS (k + 1)"
    rule = "ALTER TABLE {T} ADD CONSTRAINT few CHECK (m IS NULL OR size(m) < 5)"
    mapped = ON | {"delta.columnMapping.mode": "name"}
    path = made(spark, tmp_path / "t", columns, rule, properties=mapped)
    for word, query in {
        "value": "SELECT 1 AS k, 5L AS value",
        "generated": "SELECT 1 AS k, 2L AS g",
        "m": "SELECT 1 AS k, map(1, 5L) AS m",
    }.items():
        done = evolved(spark, path, word, query)
        assert (done.error is None) == (word == "value"), word
    table = DeltaTable.for_path(spark, path)
    table.rename_column("value", "element")
    table.drop_column("element")
    with pytest.raises(InvalidArgumentError, match="constraint few names it"):
        table.drop_column("m")
