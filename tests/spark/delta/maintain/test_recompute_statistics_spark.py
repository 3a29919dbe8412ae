"""Statistics from live rows, as delta-spark uses them: the same rows under every filter."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from tests.delta import log_files
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import INTERPRETED, settings_of
from tests.spark.delta.write.judge import bag, copy_of, rows_of

pytestmark = pytest.mark.spark

COLUMNS = """
id bigint, part int, i int, s string, d decimal(20, 4), f double, g float, day date,
at timestamp, ntz timestamp_ntz, flag boolean, b binary, st struct<x int, y string>,
arr array<int>, n int
"""
VALUES = """
id, int(id % 2), int(id % 7), repeat(concat('s', id), 9), cast(id as decimal(20, 4)) / 3,
if(id = 13, double('NaN'), double(id) / 3), float(id) / 7, date_add(date'2026-01-01', int(id)),
timestamp_micros(id * 1000003), timestamp_ntz'2026-01-01 10:00:00' + make_dt_interval(0, 0, 0, id),
id % 2 = 0, cast(concat('b', id) as binary), if(id % 3 = 0, null, named_struct('x', int(id),
'y', concat('y', id))), array(int(id)), if(id < 50, null, int(id))
"""
FILTERS = (
    "id < 10",
    "id > 90",
    "i = 6",
    "s > repeat('s98', 9)",
    "d >= 30",
    "f > 32",
    "f = double('NaN')",
    "g < 1",
    "day < date'2026-01-05'",
    "at >= timestamp_micros(99000000)",
    "ntz > timestamp_ntz'2026-01-01 10:01:30'",
    "st.x > 95",
    "st.y IS NULL",
    "st IS NOT NULL AND st.x < 5",
    "n IS NULL",
    "n IS NOT NULL",
    "flag",
    "b > cast('b9' as binary)",
)


@pytest.fixture(scope="module", params=["none", "name"])
def path(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    """Files whose vectors delete the smallest and the largest values, and all that is null."""
    root = tmp_path_factory.mktemp("statistics") / "t"
    properties = {"delta.columnMapping.mode": request.param}
    spark_tables.create(spark, root, COLUMNS, partitioned_by=["part"], properties=properties)
    statement = f"INSERT INTO {{T}} SELECT {VALUES} FROM range(0, 100, 1, 1)"
    spark_tables.sql(spark, root, statement, "DELETE FROM {T} WHERE id < 20 OR id > 80 OR i = 6")
    spark_tables.sql(spark, root, "DELETE FROM {T} WHERE part = 0 AND n IS NULL")
    return root


def matching(spark: SparkSession, path: Path, condition: str) -> Counter[str]:
    found = spark_tables.as_delta_spark_reads(spark, path).where(condition)
    with settings_of(spark, INTERPRETED):
        return bag(found)


@pytest.mark.slow
def test_rows_under_filters_are_the_same(spark: SparkSession, path: Path) -> None:
    path = copy_of(path, "filtered")
    table = DeltaTable.for_path(None, path)
    before = {each: matching(spark, path, each) for each in FILTERS}
    assert table.recompute_statistics().files_scanned == 2
    for condition, rows in before.items():
        assert matching(spark, path, condition) == rows, condition
        ours = bag(DeltaTable.for_path(spark, path).to_df().where(condition))
        assert ours == rows, condition
    assert sum(rows_of(spark, path).values()) > 0
    [row] = spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()
    assert row.operation == "COMPUTE STATS"


@pytest.mark.slow
def test_values_are_those_that_delta_spark_writes(spark: SparkSession, path: Path) -> None:
    """The live rows of a file, written to a table of their own, have the same statistics."""
    path = copy_of(path, "compared")
    DeltaTable.for_path(None, path).recompute_statistics()
    for part in (0, 1):
        copy = path.parent / f"part-{part}"
        rows = spark_tables.as_delta_spark_reads(spark, path).where(f"part = {part}")
        with settings_of(spark, INTERPRETED):
            rows.drop("part").coalesce(1).write.format("delta").save(str(copy))
        [theirs] = [json.loads(add["stats"]) for add in log_files.live_adds(copy)]
        ours = _statistics(path, part)
        for name in ("minValues", "maxValues", "nullCount"):
            _compare(ours[name], theirs[name], name)


def _statistics(path: Path, part: int) -> dict[str, Any]:
    """Give the newest statistics of a partition, by logical names."""
    snapshot = DeltaTable.for_path(None, path).snapshot()
    schema = snapshot.metadata.schema
    names = {field.physical_name: field.name for field in schema.fields}
    inner = schema.field("st").type.fields  # type: ignore[union-attr]
    names |= {field.physical_name: field.name for field in inner}
    key = schema.field("part").physical_name
    [entry] = [
        each.add
        for each in snapshot.files.entries()
        if each.add["partitionValues"][key] == str(part)
    ]
    found: dict[str, Any] = _renamed(json.loads(entry["stats"]), names)
    return found


def _renamed(value: Any, names: dict[str, str]) -> Any:  # noqa: ANN401
    if not isinstance(value, dict):
        return value
    return {names.get(name, name): _renamed(inner, names) for name, inner in value.items()}


def _compare(ours: dict[str, Any], theirs: dict[str, Any], where: str) -> None:
    for name, value in theirs.items():
        if isinstance(value, dict):
            _compare(ours[name], value, f"{where}.{name}")
        elif name == "g":  # as a double here: the very value
            assert ours[name] == pytest.approx(value), where
        elif isinstance(value, str) and "T" in value:
            assert ours[name][:23] == value[:23], where
        elif name != "arr":
            assert ours[name] == value, f"{where}.{name}"


@pytest.mark.slow
def test_writers_go_on_with_tight_bounds(spark: SparkSession, tmp_path: Path) -> None:
    """A vector after that makes bounds wide again, with the null counts that readers want."""
    path = tmp_path / "t"
    spark_tables.create(spark, path, "id bigint, n int")
    statement = "INSERT INTO {T} SELECT id, if(id < 5, 1, null) FROM range(0, 20, 1, 1)"
    spark_tables.sql(spark, path, statement, "DELETE FROM {T} WHERE id < 5")
    table = DeltaTable.for_path(spark, path)
    table.recompute_statistics()
    spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id = 7")
    assert not matching(spark, path, "n IS NOT NULL")
    assert sum(matching(spark, path, "n IS NULL").values()) == 14
    [add] = log_files.live_adds(path)
    statistics = json.loads(add["stats"])
    assert (statistics["tightBounds"], statistics["nullCount"]["n"]) == (False, 20)
    table.recompute_statistics()
    table.delete("id = 8")
    assert sum(rows_of(spark, path).values()) == 13
    table.recompute_statistics()
    table.restore(2)
    spark_tables.sql(spark, path, "OPTIMIZE {T}", "REORG TABLE {T} APPLY (PURGE)")
    assert sum(rows_of(spark, path).values()) == 15
