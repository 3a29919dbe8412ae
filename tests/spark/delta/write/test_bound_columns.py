"""Columns of DataFrames, such as `df["id"]`, in conditions and values."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession, functions

from delvec import DeltaTable
from delvec.errors import InvalidArgumentError
from tests.delta.write.write_checks import before_commit
from tests.spark.delta.write.judge import folder

pytestmark = [pytest.mark.spark, pytest.mark.more]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> DeltaTable:
    t = DeltaTable.create(
        spark, tmp_path / "t", "id int, v int, s struct<a: int, b: int>, l array<struct<x: int>>"
    )
    t.append(
        spark.sql(
            "SELECT int(id), int(id) * 10 v, named_struct('a', int(id), 'b', 0) s,"
            " array(named_struct('x', int(id))) l FROM range(6)"
        )
    )
    return t


def rows(table: DeltaTable) -> list[tuple[int, int, int]]:
    return sorted(tuple(row) for row in table.to_df().select("id", "v", "s.b").collect())


@pytest.mark.slow
def test_columns_of_the_tables_own_dataframe(
    spark: SparkSession, table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = table.to_df()
    assert table.delete(df["id"] == 0).rows_deleted == 1
    # Another writer's commit in between: the columns are of an older version by now.
    other = DeltaTable.for_path(spark, table.storage.root)
    tried = before_commit(monkeypatch, lambda: other.delete("id = 1 or id = 2"))
    report = table.update(
        {"v": df["v"] + functions.lit(1) + df.s.a, "s.b": table.to_df()["l"]["x"][0]},
        (df.where("id > 0")["s"]["a"] <= 3) & df.id.isin(1, 2, 3),
    )
    assert (report.rows_updated, len(tried)) == (1, 2)
    assert rows(table) == [(3, 34, 3), (4, 40, 0), (5, 50, 0)]
    nothing = spark.sql("SELECT 5 AS id WHERE false")
    table.overwrite(nothing, table.to_df()["id"] == 5)
    assert [row[0] for row in rows(table)] == [3, 4]


def test_columns_of_the_tables_own_dataframe_in_reads(
    spark: SparkSession, table: DeltaTable
) -> None:
    df = table.to_df()
    assert table.count(df["id"] < 2) == 2
    assert table.count(functions.abs(df["v"]) == 30) == 1
    assert [row.id for row in table.to_df(where=df["s"]["a"] == 4, columns=["id"]).collect()] == [4]
    assert table.to_arrow(df["id"] == 5)["v"].to_pylist() == [50]
    alien = spark.range(3)["id"] == 1
    for read in (table.count, table.to_arrow, lambda where: table.to_df(where=where)):
        with pytest.raises(InvalidArgumentError, match="bound to a DataFrame"):
            read(alien)


def test_both_sides_of_a_merge(spark: SparkSession, table: DeltaTable) -> None:
    df, source = table.to_df(), spark.sql("SELECT 1 AS id, 5 AS w UNION ALL SELECT 9, 6")
    (
        table.merge(source, df["id"] == source["id"])
        .when_matched_update({"v": source["w"] + df["v"]}, df["v"] == 10)
        .when_not_matched_insert({"id": source["id"], "v": source.w})
        .when_not_matched_by_source_delete(df["id"] > 2)
        .execute()
    )
    assert rows(table) == [(0, 0, 0), (1, 15, 0), (2, 20, 0), (9, 6, None)]
    with pytest.raises(InvalidArgumentError, match=r"both sides.*\n?.*t\.id or s\.id"):
        table.merge(df, df["id"] == functions.col("t.id"))


def test_columns_of_other_dataframes_are_refused(spark: SparkSession, table: DeltaTable) -> None:
    df = table.to_df()
    before = folder(Path(table.storage.root))
    same = DeltaTable.for_path(spark, table.storage.root).to_df()
    for alien in (spark.range(3)["id"], df.withColumn("v2", functions.col("v"))["v2"], same["id"]):
        with pytest.raises(InvalidArgumentError, match=r"functions\.col"):
            table.delete(alien == 1)
        with pytest.raises(InvalidArgumentError, match="bound to a DataFrame"):
            table.update({"v": alien})
    assert folder(Path(table.storage.root)) == before
