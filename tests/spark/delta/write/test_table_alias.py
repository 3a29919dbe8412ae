"""The table's alias `t`, in all conditions and values, as in those of a merge."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions

from delvec import DeltaTable

pytestmark = [pytest.mark.spark, pytest.mark.more]

ROWS = pa.table({"id": range(10), "v": [0] * 10})


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> DeltaTable:
    made = DeltaTable.create(spark, tmp_path / "t", "id long, v long")
    made.append(ROWS)
    return made


def values(table: DeltaTable) -> dict[int, int]:
    rows = table.to_arrow().to_pylist()
    return {row["id"]: row["v"] for row in rows}


@pytest.mark.slow
def test_conditions_and_values_may_call_the_table_t(table: DeltaTable) -> None:
    table.delete("t.id >= 8")
    table.delete(functions.col("t.id") == 7)
    table.update({"t.v": "t.id + T.v + 1"}, where="t.id < 2")
    assert values(table) == {0: 1, 1: 2, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0}
    table.overwrite(pa.table({"id": [2], "v": [9]}), where="t.id = 2")
    assert values(table)[2] == 9
    assert table.count("t.id + t.v > 5") == table.to_df(where="t.id + t.v > 5").count() == 2
    assert table.optimize("t.id > 0").version is not None
    assert table.purge("t.id > 0").version is None
    assert table.traces("t.id = 7").condition == "t.id = 7"


def test_files_are_pruned_by_a_condition_that_names_the_table(table: DeltaTable) -> None:
    table.append(pa.table({"id": [100], "v": [0]}))
    report = table.delete("t.id = 100")
    assert (report.files_scanned, report.files_removed) == (0, 1)


@pytest.mark.slow
def test_a_struct_called_t_is_what_t_names(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id long, t struct<id: long>")
    table.append(pa.table({"id": [1, 2], "t": [{"id": 2}, {"id": 1}]}))
    assert table.delete("t.id = 2").rows_deleted == 1
    table.update({"t.id": "t.id + 5"})
    assert table.to_arrow().to_pylist() == [{"id": 2, "t": {"id": 6}}]


@pytest.mark.slow
def test_delta_sparks_order_and_names_are_taken(table: DeltaTable) -> None:
    table.update("id < 2", {"v": "5"})  # type: ignore[arg-type]
    table.update(functions.col("id") == 2, {"v": "6"})  # type: ignore[arg-type]
    table.update(updates={"v": "7"}, predicate="id = 3")  # type: ignore[call-arg]
    table.delete(condition="id > 5")  # type: ignore[call-arg]
    source = ROWS.slice(4, 2)
    merge = table.merge(source, condition="t.id = s.id")  # type: ignore[call-arg]
    merge.when_matched_update("s.id = 4", {"v": "8"}).execute()  # type: ignore[arg-type]
    table.append(pa.table({"id": [9], "w": [1]}), mergeSchema=True)  # type: ignore[call-arg]
    assert values(table) == {0: 5, 1: 5, 2: 6, 3: 7, 4: 8, 5: 0, 9: None}
