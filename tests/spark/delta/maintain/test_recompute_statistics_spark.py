"""Statistics from live rows, as delta-spark uses them: the same rows under every filter."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.delta import log_files
from tests.spark.delta.lake import Lake
from tests.spark.delta.readers import INTERPRETED, settings_of
from tests.spark.delta.write.judge import bag

pytestmark = [pytest.mark.spark, pytest.mark.slow]

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
    *("id < 10", "id > 90", "i = 6", "s > repeat('s98', 9)", "d >= 30", "f > 32", "g < 1"),
    *("f = double('NaN')", "day < date'2026-01-05'", "at >= timestamp_micros(99000000)"),
    *("ntz > timestamp_ntz'2026-01-01 10:01:30'", "st.x > 95", "st.y IS NULL"),
    *("st IS NOT NULL AND st.x < 5", "n IS NULL", "n IS NOT NULL", "flag"),
    "b > cast('b9' as binary)",
)


@pytest.fixture(scope="module", params=["none", "name"])
def made(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Lake:
    """Files whose vectors delete the smallest and the largest values, and all that is null."""
    lake = Lake(spark, tmp_path_factory.mktemp("statistics") / "t")
    lake.create(
        COLUMNS,
        f"INSERT INTO {{T}} SELECT {VALUES} FROM range(0, 100, 1, 1)",
        "DELETE FROM {T} WHERE id < 20 OR id > 80 OR i = 6",
        "DELETE FROM {T} WHERE part = 0 AND n IS NULL",
        parts=["part"],
        properties={"delta.columnMapping.mode": request.param},
    )
    return lake


def matching(lake: Lake, condition: str) -> Counter[str]:
    with settings_of(lake.spark, INTERPRETED):
        return bag(lake.frame().where(condition))


def test_rows_under_filters_are_the_same(made: Lake) -> None:
    lake = made.copy("filtered")
    before = {each: matching(lake, each) for each in FILTERS}
    assert lake.bare.recompute_statistics().files_scanned == 2
    for condition, rows in before.items():
        assert matching(lake, condition) == rows, condition
        assert bag(lake.table.to_df().where(condition)) == rows, condition
    assert lake.rows().total() > 0
    assert lake.history()[0]["operation"] == "COMPUTE STATS"


def test_values_are_those_that_delta_spark_writes(made: Lake) -> None:
    """The live rows of a file, written to a table of their own, have the same statistics."""
    lake = made.copy("compared")
    lake.bare.recompute_statistics()
    for part in (0, 1):
        alone = lake.beside(f"part-{part}").path
        rows = lake.frame().where(f"part = {part}").drop("part")
        with settings_of(lake.spark, INTERPRETED):
            rows.coalesce(1).write.format("delta").save(str(alone))
        [theirs] = [json.loads(add["stats"]) for add in log_files.live_adds(alone)]
        ours = _statistics(lake, part)
        for name in ("minValues", "maxValues", "nullCount"):
            _compare(ours[name], theirs[name], name)


def _statistics(lake: Lake, part: int) -> dict[str, Any]:
    """Give the newest statistics of a partition, by logical names."""
    snapshot = lake.bare.snapshot()
    schema = snapshot.metadata.schema
    inner = schema.field("st").type.fields  # type: ignore[union-attr]
    names = {field.physical_name: field.name for field in (*schema.fields, *inner)}
    key = schema.field("part").physical_name
    adds = [each.add for each in snapshot.files.entries()]
    [entry] = [add for add in adds if add["partitionValues"][key] == str(part)]
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


def test_writers_go_on_with_tight_bounds(lake: Lake) -> None:
    """A vector after that makes bounds wide again, with the null counts that readers want."""
    insert = "INSERT INTO {T} SELECT id, if(id < 5, 1, null) FROM range(0, 20, 1, 1)"
    table = lake.create("id bigint, n int", insert, "DELETE FROM {T} WHERE id < 5")
    table.recompute_statistics()
    lake.sql("DELETE FROM {T} WHERE id = 7")
    assert not matching(lake, "n IS NOT NULL")
    assert matching(lake, "n IS NULL").total() == 14
    [add] = log_files.live_adds(lake.path)
    statistics = json.loads(add["stats"])
    assert (statistics["tightBounds"], statistics["nullCount"]["n"]) == (False, 20)
    table.recompute_statistics()
    table.delete("id = 8")
    assert lake.rows().total() == 13
    table.recompute_statistics()
    table.restore(2)
    lake.sql("OPTIMIZE {T}", "REORG TABLE {T} APPLY (PURGE)")
    assert lake.rows().total() == 15
