"""Writes with wider types than the columns of a table: widened where it allows, else checked."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.errors import InvalidArgumentError
from tests.delta import log_files
from tests.spark.delta import spark_tables
from tests.spark.delta.write.judge import Judged, copy_of, folder, judged_merge, judged_write

pytestmark = [pytest.mark.spark, pytest.mark.more]

ON = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}
# Each column's type, and a value of a wider type.
WIDER = {
    "y": ("TINYINT", "3000000000L"),
    "i": ("INT", "5L"),
    "d": ("INT", "1.5D"),
    "c": ("INT", "CAST(1.5 AS DECIMAL(12, 2))"),
    "g": ("BIGINT", "CAST(1 AS DECIMAL(20, 0))"),
    "f": ("FLOAT", "1.5D"),
    "n": ("DATE", "TIMESTAMP_NTZ'2024-01-01 05:00:00'"),
    "e": ("DECIMAL(5, 2)", "CAST(1.234 AS DECIMAL(8, 3))"),
    "s": ("STRUCT<a: INT, b: ARRAY<INT>>", "named_struct('a', 5L, 'b', array(3000000000L))"),
    "m": ("MAP<INT, ARRAY<STRUCT<x: INT>>>", "map(1L, array(named_struct('x', 7L)))"),
}
OLD = {
    "n": "DATE'2020-01-01'",
    "s": "named_struct('a', 1, 'b', array(1))",
    "m": "map(1, array(named_struct('x', 1)))",
}


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("widening") / "t"
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in WIDER.items())
    spark_tables.create(spark, path, f"id INT, {columns}", properties=ON)
    old = ", ".join(OLD.get(name, "1") for name in WIDER)
    spark_tables.sql(spark, path, f"INSERT INTO {{T}} VALUES (1, {old}), (2, {old})")
    return path


def schema_of(path: Path) -> dict[str, Any]:
    """Give the schema of the newest metadata, as it is in the log."""
    actions = [action for commit in log_files.commits(path) for action in commit]
    texts = [action["metaData"]["schemaString"] for action in actions if "metaData" in action]
    return json.loads(texts[-1])  # type: ignore[no-any-return]


def source(id_: int) -> str:
    return f"SELECT {id_} AS id, " + ", ".join(
        f"{new} AS {name}" for name, (_, new) in WIDER.items()
    )


def evolved(spark: SparkSession, table: Path, word: str, query: str) -> Judged:
    """Append the rows of a query with schema evolution, by both engines."""
    act = partial(DeltaTable.append, merge_schema=True)
    return judged_write(spark, table, word, query, act, mergeSchema="true")


def test_an_append_widens_as_delta_spark_does(spark: SparkSession, table: Path) -> None:
    done = evolved(spark, table, "append", source(3))
    assert done.report is not None
    assert schema_of(done.path) == schema_of(table.parent / "append-theirs")


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_merge_widens_as_delta_spark_does(spark: SparkSession, table: Path, vectors: str) -> None:
    base = copy_of(table, f"base-{vectors}")
    t = DeltaTable.for_path(spark, base)
    t.set_properties({"delta.enableDeletionVectors": vectors})
    query = f"{source(2)} UNION ALL {source(3)}"
    done = judged_merge(spark, base, f"merge-{vectors}", query, evolve=True)
    assert done.report is not None
    assert schema_of(done.path) == schema_of(base.parent / f"merge-{vectors}-theirs")


@pytest.mark.slow
def test_records_of_changes_are_kept_and_old_rows_found_by_the_new_type(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    spark_tables.create(spark, path, "c TINYINT, p INT", partitioned_by=["p"], properties=ON)
    t = DeltaTable.for_path(spark, path)
    for value in ("1Y", "300S", "70000", "3000000000L"):
        t.append(spark.sql(f"SELECT {value} AS c, {value} AS p"), merge_schema=True)
    [c, p] = schema_of(path)["fields"]
    assert [(each["fromType"], each["toType"]) for each in c["metadata"]["delta.typeChanges"]] == [
        ("byte", "short"),
        ("short", "integer"),
        ("integer", "long"),
    ]
    assert p["metadata"]["delta.typeChanges"] == [{"fromType": "integer", "toType": "long"}]
    assert t.delete("c >= 300 AND p < 3000000000").rows_deleted == 2
    rows = {tuple(row) for row in t.to_df().collect()}
    assert rows == {(1, 1), (3000000000, 3000000000)}
    assert {tuple(row) for row in spark.read.format("delta").load(str(path)).collect()} == rows


@pytest.mark.slow
def test_what_is_not_widened(spark: SparkSession, tmp_path: Path) -> None:
    off = DeltaTable.create(spark, tmp_path / "off", "c int, s struct<a: int>")
    for query in ("SELECT 3000000000L AS c", "SELECT named_struct('a', 3000000000L) AS s"):
        before = folder(tmp_path / "off")
        with pytest.raises(InvalidArgumentError, match=r"does not fit into int.*= 3000000000"):
            off.append(spark.sql(query), merge_schema=True)
        assert folder(tmp_path / "off") == before
    path = tmp_path / "on"
    spark_tables.create(spark, path, "id INT, c INT, g INT", properties=ON)
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
def test_generated_columns_and_names_like_steps_into_arrays(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    columns = "k INT, value INT, m MAP<INT, INT>, g INT GENERATED ALWAYS AS (k + 1)"
    spark_tables.create(spark, path, columns, properties=ON | {"delta.columnMapping.mode": "name"})
    spark_tables.sql(
        spark, path, "ALTER TABLE {T} ADD CONSTRAINT few CHECK (m IS NULL OR size(m) < 5)"
    )
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
