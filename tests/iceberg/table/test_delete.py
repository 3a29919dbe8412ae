"""`IcebergTable.delete`: which way a condition goes, and that stock Iceberg reads the result."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession

from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.iceberg.table import IcebergTable
from delvec.iceberg.write.report import KeyDeleteReport, PositionDeleteReport
from tests.iceberg.deletes.tables import by_spark, new_table

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(4)]

COLUMNS = "order_id bigint NOT NULL, user_id int, day date, code string, amount decimal(9,2)"
VECTORS = {"write.delete.equality-vector.enabled": "true"}


def orders(
    spark: SparkSession, version: int = 3, properties: Mapping[str, str] | None = None
) -> IcebergTable:
    name = new_table(spark, COLUMNS, version=version, properties=properties)
    rows = spark.range(0, 400, 1, 1).selectExpr(
        "id AS order_id",
        "CAST(nullif(id % 20, 19) AS INT) AS user_id",
        "date_add(date'2026-01-01', CAST(id % 5 AS INT)) AS day",
        "concat('c', id % 7) AS code",
        "CAST(id AS DECIMAL(9,2)) AS amount",
    )
    rows.writeTo(name).append()
    return IcebergTable.for_name(spark, name)


def deleted(spark: SparkSession, table: IcebergTable) -> set[int]:
    return set(range(400)).difference(by_spark(spark, table.name, "order_id"))


# (condition, key, whether it is by key)
CASES: list[tuple[str, str | list[str] | None, bool]] = [
    ("order_id IN (100, 200, 300)", "order_id", True),
    ("ORDER_ID = 100", "order_id", True),
    ("user_id = 5", "user_id", True),
    ("user_id IN (5, NULL)", "user_id", True),
    ("user_id IS NULL", "user_id", True),
    ("user_id <=> NULL OR user_id = '3'", "user_id", True),
    ("user_id = NULL", "user_id", True),
    ("code = 'c3'", "code", True),
    ("day = '2026-01-03'", "day", True),
    ("amount = 7", "amount", True),
    ("user_id = 5 AND code = 'c3'", ["code", "user_id"], True),
    ("(user_id, code) IN ((5, 'c3'), (6, 'c4'))", ["user_id", "code"], True),
    ("order_id IN (100, 200, 300)", None, False),
    ("order_id > 390", "order_id", False),
    ("user_id = 5 AND amount < 100", "user_id", False),
    ("order_id IN (SELECT max(order_id) FROM {table})", "order_id", False),
]


@pytest.mark.parametrize(("where", "key", "by_key"), CASES, ids=[each[0] for each in CASES])
def test_which_way(
    spark: SparkSession,
    where: str,
    key: str | list[str] | None,
    by_key: bool,  # noqa: FBT001
) -> None:
    table = orders(spark)
    where = where.format(table=table.name)
    wanted = {row[0] for row in table.to_df().where(where).select("order_id").collect()}
    report = table.delete(where, key=key)
    assert isinstance(report, KeyDeleteReport if by_key else PositionDeleteReport)
    assert deleted(spark, table) == wanted
    live = {row[0] for row in table.to_df().select("order_id").collect()}
    assert set(range(400)) - live == wanted
    if isinstance(report, KeyDeleteReport):
        assert "by key: the condition lists values of" in str(report)
    else:
        assert report.reason in str(report)
        assert report.reason


# (condition, the column of the key, or why it is by position)
WITHOUT_KEY: list[tuple[str, str, str]] = [
    ("order_id IN (100, 200, 300)", "order_id", ""),
    ("user_id = 5", "user_id", ""),
    ("day = '2026-01-03' OR day IS NULL", "day", ""),
    ("user_id = NULL", "order_id", ""),  # no keys, of whatever column
    ("code = 'c3'", "", "code is not a column that a vector holds"),
    ("order_id = 5 AND user_id = 5", "", "about order_id, user_id, and a vector holds values of"),
    ("order_id = 5 OR user_id = 6", "", "not about one set of columns"),
    ("order_id > 390", "", "is not a comparison with a key"),
]


@pytest.mark.more
def test_with_the_property_a_column_that_a_vector_holds_is_the_key(spark: SparkSession) -> None:
    table = orders(spark, properties=VECTORS)
    expected: set[int] = set()
    for where, column, why in WITHOUT_KEY:
        expected |= {row[0] for row in table.to_df().where(where).select("order_id").collect()}
        report = table.delete(where)
        assert deleted(spark, table) == expected, where
        assert isinstance(report, PositionDeleteReport if why else KeyDeleteReport), where
        if isinstance(report, PositionDeleteReport):
            assert why in report.reason
        else:
            assert f"values of {column}, by the property write.delete.eq" in report.notes[0]
    two = orders(spark, 2, VECTORS).delete("order_id = 5")
    assert isinstance(two, PositionDeleteReport)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.slow
def test_the_key_is_found(spark: SparkSession, version: int) -> None:
    table = orders(spark, version)
    without = table.delete("order_id = 1")
    assert isinstance(without, PositionDeleteReport)
    assert "neither identifier fields nor the property delvec.key" in without.reason
    spark.sql(f"ALTER TABLE {table.name} SET IDENTIFIER FIELDS order_id")
    by_fields = table.delete("order_id = 2")
    assert isinstance(by_fields, KeyDeleteReport)
    assert "identifier fields" in by_fields.notes[0]
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('delvec.key' = 'user_id, code')")
    by_property = table.delete("code = 'c3' AND user_id = 3")
    assert isinstance(by_property, KeyDeleteReport)
    assert "delvec.key" in by_property.notes[0]
    assert isinstance(table.delete("order_id = 4"), PositionDeleteReport)
    assert isinstance(table.delete("order_id = 5", key="order_id"), KeyDeleteReport)
    matching = {each for each in range(400) if each % 20 == 3 and each % 7 == 3}
    assert deleted(spark, table) == {1, 2, 4, 5, *matching}
    spark.sql(f"ALTER TABLE {table.name} DROP COLUMN code")
    stale = table.delete("user_id = 6")
    assert isinstance(stale, PositionDeleteReport)
    assert "no column code" in stale.reason
    with pytest.raises(InvalidArgumentError, match="no column nothing"):
        table.delete("user_id = 6", key="nothing")


def test_staging_branches(spark: SparkSession) -> None:
    table = orders(spark, properties=VECTORS)
    table.create_branch("work", staging=True)
    assert isinstance(table.delete("order_id < 5", branch="work"), PositionDeleteReport)
    keys = table.delete("order_id IN (7, 8)", key="order_id", branch="work")
    assert isinstance(keys, KeyDeleteReport)
    after = table.delete("order_id < 10", branch="work")
    assert isinstance(after, PositionDeleteReport)
    assert after.rows_deleted == 3
    left = {row[0] for row in table.to_df("work").select("order_id").collect()}
    assert (left, deleted(spark, table)) == (set(range(10, 400)), set())


def test_transactions(spark: SparkSession) -> None:
    table = orders(spark)
    for where in ("order_id = 1", "order_id < 10"):  # by key, and by position
        table.delete(where, key="order_id", txn_app_id="a", txn_version=1)
    assert deleted(spark, table) == {1}


@pytest.mark.more
def test_arguments(spark: SparkSession) -> None:
    table = orders(spark)
    with pytest.raises(InvalidArgumentError, match="without a condition"):
        table.delete(True)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="where"):
        table.delete(wher="order_id = 1")  # type: ignore[call-arg]
    with pytest.raises(InvalidArgumentError, match="nothing"):
        table.delete("nothing = 1", key="order_id")
    with pytest.raises(InvalidArgumentError, match="CAST_INVALID_INPUT"):
        table.delete("order_id = 'one'", key="order_id")
    with pytest.raises(UnsupportedFeatureError, match="format version 1"):
        orders(spark, 1).delete("order_id = 1", key="order_id")
    assert deleted(spark, table) == set()
