"""Shallow clones beside delta-spark's: the same entries, and both engines work on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.delta.write.change import ROW_TRACKING_DOMAIN, high_water_mark
from tests.delta import log_files
from tests.spark.delta import spark_tables
from tests.spark.delta.write.judge import FEED, Kind, Lazily, lazily_made, rows_of

pytestmark = pytest.mark.spark

KINDS: dict[str, Kind] = {
    "plain": (("part",), {}),
    "mapped": (("part",), {"delta.columnMapping.mode": "name"}),
    "tracked": (("part",), FEED | {"delta.enableRowTracking": "true"}),
    "prefixed": (("part",), {"delta.randomizeFilePrefixes": "true"}),
}


@pytest.fixture(scope="module")
def sources(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lazily:
    """Tables with partitions whose names need escapes, and files with vectors."""

    values = "SELECT id, if(id % 2 = 0, 'a b/c', 'ä%20'), int(id) FROM range(0, 40, 1, 1)"
    return lazily_made(
        spark,
        tmp_path_factory,
        KINDS,
        "id bigint, part string, v int",
        f"INSERT INTO {{T}} {values}",
        "DELETE FROM {T} WHERE id % 10 = 3 OR id % 10 = 6",
        "DELETE FROM {T} WHERE id = 7",
    )


def entries(path: Path) -> list[dict[str, Any]]:
    """Give the live files by their decoded names."""
    found = []
    for add in log_files.live_adds(path):
        vector = dict(add.get("deletionVector") or {"pathOrInlineDv": ""})
        vector["pathOrInlineDv"] = unquote(vector["pathOrInlineDv"])
        facts = {key: add[key] for key in ("partitionValues", "size", "stats", "dataChange")}
        found.append({"path": unquote(add["path"]), "vector": vector, **facts})
    return sorted(found, key=lambda each: str(each["path"]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_clone_is_that_of_delta_spark(
    spark: SparkSession, sources: Lazily, tmp_path: Path, kind: str
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    DeltaTable.for_path(None, sources[kind]).clone(ours)
    spark_tables.sql(spark, sources[kind], f"CREATE TABLE delta.`{theirs}` SHALLOW CLONE {{T}}")
    assert rows_of(spark, ours) == rows_of(spark, sources[kind])
    assert entries(ours) == entries(theirs)
    assert all(entry["vector"].get("storageType") == "p" for entry in entries(ours))
    first, second = (DeltaTable.for_path(None, path) for path in (ours, theirs))
    assert first.protocol == second.protocol
    assert set(first.properties) == set(second.properties)
    assert first.schema == second.schema
    marks = [each.snapshot().domains.get(ROW_TRACKING_DOMAIN) for each in (first, second)]
    assert high_water_mark(marks[0]) == high_water_mark(marks[1])
    [told] = spark.sql(f"DESCRIBE HISTORY delta.`{ours}`").collect()
    [expected] = spark.sql(f"DESCRIBE HISTORY delta.`{theirs}`").collect()
    assert told.operation == expected.operation == "CLONE"
    assert told.operationParameters == expected.operationParameters
    assert told.operationMetrics == expected.operationMetrics


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "tracked"])
def test_both_engines_change_a_clone_and_not_its_source(
    spark: SparkSession, sources: Lazily, tmp_path: Path, kind: str
) -> None:
    source, path = DeltaTable.for_path(spark, sources[kind]), tmp_path / "clone"
    before = rows_of(spark, sources[kind])
    source.clone(path)
    table = DeltaTable.for_path(spark, path)
    spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id = 10")
    table.delete("id = 11")
    spark_tables.sql(spark, path, "UPDATE {T} SET v = -1 WHERE id = 12")
    table.update({"v": "-2"}, "id = 14")
    expected = sum(before.values()) - 2
    assert sum(rows_of(spark, path).values()) == expected
    table.recompute_statistics()
    assert sum(rows_of(spark, path).values()) == expected
    spark_tables.sql(spark, path, "REORG TABLE {T} APPLY (PURGE)")
    assert sum(rows_of(spark, path).values()) == expected
    table.restore(0)
    assert rows_of(spark, path) == before
    assert rows_of(spark, sources[kind]) == before
