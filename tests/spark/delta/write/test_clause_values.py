"""Names and values in SET and INSERT as delta-spark's users write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.errors import InvalidArgumentError
from tests.spark.delta import spark_tables
from tests.spark.delta.write.judge import insert, judged, judged_merge, update

pytestmark = [pytest.mark.spark, pytest.mark.more]

COLUMNS = "id INT, v INT DEFAULT 7, n STRING, t STRUCT<v: INT, only: INT>, q STRUCT<a: INT>"
DEFAULTS = {"delta.feature.allowColumnDefaults": "supported"}
ROWS = "VALUES (1, 1, 'a', named_struct('v', 8, 'only', 9), named_struct('a', 0))"
SOURCE = "SELECT 1 AS id, 5 AS w UNION ALL SELECT 2, 6"


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("values") / "t"
    spark_tables.create(spark, path, COLUMNS, properties=DEFAULTS)
    spark_tables.sql(spark, path, f"INSERT INTO {{T}} {ROWS}")
    return path


@pytest.mark.slow
def test_the_alias_of_the_table_in_assigned_columns(spark: SparkSession, table: Path) -> None:
    # `t.v` is the column v, though there is a column t with a field v.
    set_ = {"t.v": "s.w", "t.t.v": "10", "T.`q`.A": "t.v"}
    values = {"`t`.id": "s.id", "t.v": "s.w", "t": "named_struct('v', 1, 'only', s.w)"}
    judged_merge(spark, table, "alias", SOURCE, (update(set_), insert(values)))


def test_names_behind_an_alias_that_are_no_columns(spark: SparkSession, table: Path) -> None:
    merge = DeltaTable.for_path(spark, table).merge(spark.sql(SOURCE), on="t.id = s.id")
    # A field of the column t, since the table has no column `only`.
    report = merge.when_matched_update({"t.only": "1"}).execute(dry_run=True)
    assert report.rows_updated == 1
    for name, message in {"s.v": "no column 's'", "t.nope": "nope", "t.v.x": "x"}.items():
        with pytest.raises(InvalidArgumentError, match=message):
            merge.when_matched_update({name: "1"}).execute()
    with pytest.raises(InvalidArgumentError, match="one clause sets both"):
        merge.when_matched_update({"t.v": "1", "v": "2"}).execute()


@pytest.mark.slow
def test_default_as_a_value(spark: SparkSession, table: Path) -> None:
    judged(
        spark,
        table,
        "default",
        "UPDATE {T} SET v = DEFAULT, n = DEFAULT",
        lambda t: t.update({"v": "DEFAULT", "n": " default"}),
    )
    merged = DeltaTable.for_path(spark, table.parent / "default-ours")
    (
        merged.merge(spark.sql(SOURCE), on="t.id = s.id and false")
        .when_not_matched_insert({"id": "s.id", "v": "DEFAULT", "n": "DEFAULT"})
        .when_not_matched_by_source_update({"n": "'kept'", "v": "DEFAULT"})
        .execute()
    )
    rows = merged.to_df().select("id", "v", "n").collect()
    assert {tuple(row) for row in rows} == {(1, 7, "kept"), (1, 7, None), (2, 7, None)}


def test_default_stands_alone_and_for_whole_columns(spark: SparkSession, table: Path) -> None:
    t = DeltaTable.for_path(spark, table)
    for name, value in {"v": "DEFAULT + 1", "t.v": "DEFAULT", "n": "upper(DEFAULT)"}.items():
        with pytest.raises(InvalidArgumentError, match=r"(?i)default"):
            t.update({name: value})


@pytest.mark.slow
def test_a_column_called_default_and_generated_columns(spark: SparkSession, tmp_path: Path) -> None:
    columns = "id INT, v INT DEFAULT 7, `default` INT, g INT GENERATED ALWAYS AS (id + 1)"
    path = tmp_path / "t"
    spark_tables.create(spark, path, columns, properties=DEFAULTS)
    spark_tables.sql(spark, path, "INSERT INTO {T} (id, v, `default`) VALUES (1, 1, 33)")
    judged(
        spark, path, "column", "UPDATE {T} SET v = DEFAULT", lambda t: t.update({"v": "DEFAULT"})
    )
    plain = DeltaTable.create(spark, tmp_path / "plain", "id int, default_ int")
    plain.append(spark.sql("SELECT 1 AS id, 2 AS default_"))
    plain.update({"default_": "DEFAULT"})
    assert plain.to_df().first() == (1, None)
    generated = DeltaTable.for_path(spark, path)
    merge = generated.merge(spark.sql("SELECT 5 AS id"), on="t.id = s.id")
    merge.when_not_matched_insert({"id": "s.id", "g": "DEFAULT"}).execute()
    assert generated.to_df().where("id = 5").first() == (5, 7, None, 6)
