"""`delvec.sql` in a session whose door is closed: Iceberg and Delta tables; everything else."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.delta.write.report import WriteReport
from delvec.errors import InvalidArgumentError, TableNotFoundError, UnsupportedFeatureError
from delvec.iceberg.write.report import KeyDeleteReport, PositionDeleteReport
from tests.iceberg.deletes.tables import by_spark, new_table

pytestmark = pytest.mark.spark


@pytest.fixture
def orders(spark: SparkSession) -> str:
    name = new_table(spark, "id bigint, n int, s string, t struct<id: int>")
    spark.range(0, 30, 1, 1).selectExpr(
        "id",
        "CAST(id % 10 AS INT) AS n",
        "concat('s', id) AS s",
        "named_struct('id', CAST(id AS INT)) AS t",
    ).writeTo(name).append()
    return name


def gone(spark: SparkSession, name: str) -> set[int]:
    return set(range(30)).difference(by_spark(spark, name))


def run(spark: SparkSession, statement: str, key: str | None = None) -> object:
    return delvec.sql(spark, statement, key=key)


def test_keys_of_an_iceberg_table(spark: SparkSession, orders: str) -> None:
    spark.sql(f"ALTER TABLE {orders} SET TBLPROPERTIES ('delvec.key' = 'id')")
    for statement, key in (
        (f"DELETE FROM {orders} WHERE id IN (1, 2, NULL)", None),
        (f"delete from {orders} o where o.id = '3'", None),
        (f"DELETE FROM {orders} WHERE {orders}.id = 4", None),
        (f"DELETE FROM {orders} WHERE n = 5", "n"),
    ):
        assert isinstance(run(spark, statement, key), KeyDeleteReport)
    with pytest.raises(InvalidArgumentError, match="there is no column"):  # an alias hides names
        run(spark, f"DELETE FROM {orders} AS o WHERE {orders}.id = 1")
    assert gone(spark, orders) == {1, 2, 3, 4, 5, 15, 25}


@pytest.mark.slow
def test_positions_of_an_iceberg_table(spark: SparkSession, orders: str) -> None:
    short = orders.rpartition(".")[2]
    for condition in (
        "id < 2",
        f"{short}.id = 2 AND {short}.n < 9",
        f"db.{short}.t.id = 3",
        "t.id = 4",
        f"id IN (SELECT max(id) FROM {orders})",
        f"EXISTS (SELECT 1 FROM (SELECT id AS other FROM {orders}) WHERE other = {short}.id + 22)",
        "s = 's8' OR s = \"s9\" -- a comment",
    ):
        report = run(spark, f"DELETE FROM {orders} WHERE {condition}")
        assert isinstance(report, PositionDeleteReport), condition
    run(spark, f"DELETE FROM {orders} AS o WHERE o.id > 20 AND o.id IN (SELECT 21)")
    assert gone(spark, orders) == {0, 1, 2, 3, 4, 5, 6, 8, 9, 21, 29}
    run(spark, f"DELETE FROM {orders}")
    assert gone(spark, orders) == set(range(30))


@pytest.mark.more
def test_names_by_the_current_catalog(spark: SparkSession, orders: str) -> None:
    short = orders.rpartition(".")[2]
    spark.sql("USE lake.db")
    try:
        run(spark, f"DELETE FROM {short} WHERE id = 1")
        run(spark, f"DELETE FROM `{short}` WHERE {short}.id = 2")
    finally:
        spark.sql("USE spark_catalog.default")
    assert gone(spark, orders) == {1, 2}


def test_branches(spark: SparkSession, orders: str) -> None:
    with pytest.raises(TableNotFoundError, match="no branch audit, only main"):
        run(spark, f"DELETE FROM {orders}.branch_audit WHERE id < 5")
    spark.sql(f"ALTER TABLE {orders} CREATE BRANCH audit")
    run(spark, f"DELETE FROM {orders}.branch_audit WHERE id < 5")
    run(spark, f"DELETE FROM {orders}.branch_audit AS b WHERE b.id = 5", "id")
    assert by_spark(spark, orders, at="'audit'") == list(range(6, 30))
    assert gone(spark, orders) == set()


def test_delta_tables(spark: SparkSession, tmp_path: Path) -> None:
    name = f"t_{uuid4().hex[:8]}"
    path = tmp_path / "a b"
    table = delvec.DeltaTable.create(spark, path, "id long, s string")
    table.append(spark.range(0, 10, 1, 1).selectExpr("id", "concat('s', id) AS s"))
    spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{path}'")
    try:
        assert isinstance(run(spark, f"DELETE FROM delta.`{path}` WHERE id = 1"), WriteReport)
        run(spark, f"DELETE FROM delta.`{path}` AS d WHERE d.id = 2 AND upper(d.s) = 'S2'")
        run(spark, f"DELETE FROM {name} WHERE {name}.id IN (SELECT 3L)")
        run(spark, f"DELETE FROM default.{name} WHERE default.{name}.id = 4")
        assert {row.id for row in table.to_df().collect()} == {0, 5, 6, 7, 8, 9}
        with pytest.raises(InvalidArgumentError, match="key"):
            run(spark, f"DELETE FROM {name} WHERE id = 5", "id")
        run(spark, f"DELETE FROM delta.`{path}`")
        assert table.to_df().count() == 0
    finally:
        spark.sql(f"DROP TABLE {name}")


def test_statements_on_delta_tables(spark: SparkSession, tmp_path: Path) -> None:
    name = f"delta.`{tmp_path / 't'}`"
    table = delvec.DeltaTable.create(spark, tmp_path / "t", "id long, s string")
    table.append(spark.range(0, 4, 1, 1).selectExpr("id", "'a' AS s"))
    tricky = "' OR true OR s = '"
    both = "WHEN MATCHED THEN UPDATE SET s = :s WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    for statement, args, changed in (
        (f"UPDATE {name} SET s = 'x' WHERE id = 1", None, 1),
        (f"UPDATE {name} x SET s = :s WHERE x.id = :id", {"s": tricky, "id": 2}, 1),
        (f"DELETE FROM {name} WHERE s = ? AND id < ?", [tricky, 2], 0),
        (
            f"MERGE INTO {name} t USING (VALUES (3L), (9L) AS _(id)) s ON t.id = s.id {both}",
            {"s": "m"},
            2,
        ),
    ):
        report = delvec.sql(spark, statement, args)
        assert isinstance(report, WriteReport), statement
        assert report.rows_updated + report.rows_deleted + report.rows_inserted == changed
    rows = {tuple(row) for row in table.to_df().collect()}
    assert rows == {(0, "a"), (1, "x"), (2, tricky), (3, "m"), (9, None)}
    found = delvec.sql(spark, f"DESCRIBE HISTORY {name} LIMIT 2")
    assert [row.operation for row in found.collect()] == ["MERGE", "UPDATE"]  # type: ignore[union-attr]
    assert delvec.sql(spark, f"OPTIMIZE {name}").columns == ["path", "metrics"]  # type: ignore[union-attr]
    assert delvec.sql(spark, f"RESTORE {name} TO VERSION AS OF 1").count() == 1  # type: ignore[union-attr]
    assert table.to_df().where("s = 'a'").count() == 4
    with pytest.raises(UnsupportedFeatureError, match="parameters"):
        delvec.sql(spark, f"OPTIMIZE {name} WHERE id = :x", {"x": 1})
    with pytest.raises(TableNotFoundError, match="not a Delta table"):
        delvec.sql(spark, "VACUUM nothing")


@pytest.mark.more
def test_maintenance_of_iceberg_tables(spark: SparkSession, orders: str) -> None:
    def told(statement: str) -> str:
        found = delvec.sql(spark, statement).collect()  # type: ignore[union-attr]
        return "\n".join(row.report for row in found)

    run(spark, f"DELETE FROM {orders} WHERE id IN (1, 2)", "id")
    assert "dry run" in told(f"RESOLVE {orders} INTO main ON (id) VERIFY rows DRY RUN").lower()
    told(f"RESOLVE TABLE {orders}")
    assert gone(spark, orders) == {1, 2}
    spark.sql(f"ALTER TABLE {orders} CREATE BRANCH staging")
    run(spark, f"DELETE FROM {orders}.branch_staging WHERE id = 3", "id")
    told(f"RESOLVE {orders} FROM staging")
    assert gone(spark, orders) == {1, 2, 3}
    assert orders in told(f"CHECK TABLE {orders}")
    with pytest.raises(UnsupportedFeatureError, match="repairs Delta"):
        told(f"CHECK TABLE {orders} REPAIR")
    with pytest.raises(TableNotFoundError, match="not an Iceberg table"):
        told("RESOLVE nothing")
    with pytest.raises(InvalidArgumentError, match="expected FROM"):
        told(f"RESOLVE {orders} TO main")


@pytest.mark.more
def test_other_tables_are_refused(spark: SparkSession, orders: str) -> None:
    name = f"p_{uuid4().hex[:8]}"
    spark.sql(f"CREATE TABLE {name} USING parquet AS SELECT 1L AS id")
    spark.range(3).createOrReplaceTempView("some_view")
    try:
        for other in (name, "nothing", "lake.db.nothing", "nothing.at.all", "lake.no.such"):
            with pytest.raises(TableNotFoundError, match="neither"):
                run(spark, f"DELETE FROM {other} WHERE id = 1")
        with pytest.raises(TableNotFoundError, match="temporary view"):
            run(spark, "DELETE FROM some_view WHERE id = 1")
        with pytest.raises(TableNotFoundError, match="neither"):
            run(spark, f"UPDATE {name} SET id = 1")
        with pytest.raises(UnsupportedFeatureError, match="metadata table"):
            run(spark, f"DELETE FROM {orders}.files WHERE record_count > 0")
        with pytest.raises(TableNotFoundError):
            run(spark, "DELETE FROM delta.`/nothing/here` WHERE id = 1")
    finally:
        spark.sql(f"DROP TABLE {name}")
        spark.catalog.dropTempView("some_view")
    assert gone(spark, orders) == set()


def test_other_statements(spark: SparkSession, orders: str) -> None:
    found = delvec.sql(spark, f"SELECT count(*) FROM {orders}")
    assert [tuple(row) for row in found.collect()] == [(30,)]  # type: ignore[union-attr]
    delvec.sql(spark, f"INSERT INTO {orders} VALUES (30, 1, 'x', NULL)")
    delvec.sql(spark, f"ALTER TABLE {orders} SET TBLPROPERTIES ('a' = 'b')")
    assert len(by_spark(spark, orders)) == 31
    refused = {
        f"UPDATE {orders} SET n = 1": "not UPDATE",
        f"MERGE INTO {orders} USING {orders} s ON false WHEN MATCHED THEN DELETE": "not MERGE",
        f"WITH x AS (SELECT 1L) DELETE FROM {orders} WHERE id IN (SELECT * FROM x)": "after WITH",
        f"DELETE FROM identifier('{orders}') WHERE id = 1": "not written as a name",
    }
    for statement, reason in refused.items():
        with pytest.raises(UnsupportedFeatureError, match=reason):
            delvec.sql(spark, statement)
    for wrong in ("DELETE FORM t", "", f"DELETE FROM {orders} WHERE", "DELETE FROM t; SELECT 1"):
        with pytest.raises(InvalidArgumentError):
            delvec.sql(spark, wrong)
    with pytest.raises(InvalidArgumentError):
        delvec.sql(spark, f"DELETE FROM {orders} WHERE id = :x")
    with pytest.raises(InvalidArgumentError, match="session"):
        delvec.sql("SELECT 1", "x")  # type: ignore[arg-type]
    assert len(by_spark(spark, orders)) == 31
