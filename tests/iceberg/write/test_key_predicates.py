"""Conditions as lists of keys, compared with what Spark itself finds for them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delvec.iceberg.client.catalog import LoadedTable, load_table, table_name
from delvec.iceberg.write.key_predicates import Condition, KeyList, find_key, keys_of
from tests.spark.delta.readers import settings_of

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(20)]

ANSI = "spark.sql.ansi.enabled"
COLUMNS = (
    "id bigint, must bigint not null, n int, s string, d date, ts timestamp, tn timestamp_ntz,"
    " m decimal(10,2), b binary, f boolean, x double, st struct<a: bigint, z: string>"
)
ROWS = """
    (1L, 1L, 1, 'a', date'2026-01-01', timestamp'2026-01-01 00:00:00',
     timestamp_ntz'2026-01-01 00:00:00', 1.50BD, X'0102', true, 0.0D,
     named_struct('a', 5L, 'z', 'p')),
    (5L, 5L, 5, 'A', date'2026-01-02', timestamp'2026-01-01 00:00:00.000001',
     timestamp_ntz'2026-06-01 12:00:00', 1.00BD, X'', false, -0.0D,
     named_struct('a', CAST(NULL AS BIGINT), 'z', 'q')),
    (-7L, -7L, -7, '5', date'1969-12-31', timestamp'1969-12-31 23:59:59',
     timestamp_ntz'1969-12-31 23:59:59', -1.50BD, X'01', NULL, 5.0D, NULL),
    (9007199254740993L, 2L, 2147483647, ' a ', date'0001-01-01', timestamp'2026-03-29 02:30:00',
     timestamp_ntz'2026-03-29 02:30:00', 99999999.99BD, X'FF', true, CAST('NaN' AS DOUBLE),
     named_struct('a', 7L, 'z', 'a')),
    (NULL, 0L, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""

ALL: Any = "not a list of keys"
DAY = date(2026, 1, 1)
NOON = datetime(2026, 1, 1, tzinfo=timezone.utc)
# (condition, key, expected keys; for both settings of ANSI, or for (on, off))
CASES: list[tuple[str, str, Any]] = [
    ("id = 5", "id", [5]),
    ("5 = id", "id", [5]),
    ("ID = 5", "id", [5]),
    ("`id` = 5", "id", [5]),
    ("id = 5 OR id = 1", "id", [1, 5]),
    ("id IN (5, 1, 1)", "id", [1, 5]),
    ("id IN (5)", "id", [5]),
    ("id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)", "id", list(range(1, 13))),
    ("id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, NULL)", "id", list(range(1, 12))),
    ("id IN (1, NULL)", "id", [1]),
    ("id IN (NULL)", "id", []),
    ("id = NULL", "id", []),
    ("id <=> NULL", "id", [None]),
    ("id <=> 5", "id", [5]),
    ("id IS NULL", "id", [None]),
    ("id IS NULL OR id = 5", "id", [None, 5]),
    ("id IS NULL OR id IN (5, NULL)", "id", [None, 5]),
    ("id IS NULL AND id = 5", "id", []),
    ("id IS NOT NULL AND id IN (5, 1)", "id", [1, 5]),
    ("id IN (1, 5) AND id IN (5, 6)", "id", [5]),
    ("must IS NULL", "must", []),
    ("must = 5", "must", [5]),
    ("id = '5'", "id", [5]),
    ("id = ' 5 '", "id", [5]),
    ("id = '5.0'", "id", (ALL, [5])),
    ("id = 'five'", "id", (ALL, [])),
    ("id = '99999999999999999999'", "id", (ALL, [])),
    ("id IN ('1', '5')", "id", ([1, 5], ALL)),
    ("id = 5.0", "id", [5]),
    ("id = 5.5", "id", []),
    ("id = 5e0", "id", ALL),
    ("id IN (1, 5.5)", "id", [1]),
    ("id = 99999999999999999999", "id", []),
    ("id = 5Y", "id", [5]),
    ("id = 2 + 3", "id", [5]),
    ("id = -7", "id", [-7]),
    ("id = 9007199254740993", "id", [9007199254740993]),
    ("id = length('abcde')", "id", [5]),
    ("NOT (id <> 5)", "id", [5]),
    ("id + 1 = 6", "id", ALL),
    ("id > 4", "id", ALL),
    ("id BETWEEN 5 AND 5", "id", ALL),
    ("id <> 5", "id", ALL),
    ("NOT id = 5", "id", ALL),
    ("id NOT IN (1, 2)", "id", ALL),
    ("id IS NOT NULL", "id", ALL),
    ("id = n", "id", ALL),
    ("id = 5 AND n = 5", "id", ALL),
    ("id = 5 OR n = 1", "id", ALL),
    ("n = 5", "id", ALL),
    ("id = rand()", "id", ALL),
    ("true", "id", ALL),
    ("false", "id", []),
    ("CAST(NULL AS BOOLEAN)", "id", []),
    ("id = 5 AND false", "id", []),
    ("id = 5 AND 1 = 1", "id", [5]),
    ("id = (SELECT 5)", "id", [5]),
    ("id IN (SELECT 5L)", "id", ALL),
    ("id IN (SELECT col1 FROM VALUES (5L), (1L))", "id", ALL),
    ("n = 5", "n", [5]),
    ("n = 5L", "n", [5]),
    ("n = 3000000000", "n", []),
    ("n IN (5, 3000000000)", "n", [5]),
    ("n = 2147483647", "n", [2147483647]),
    ("n <=> 3000000000", "n", []),
    ("s = 'a'", "s", ["a"]),
    ("s IN ('a', 'A', '')", "s", ["", "A", "a"]),
    ("s = 5", "s", ALL),
    ("s = 'a' COLLATE UTF8_LCASE", "s", ALL),
    ("lower(s) = 'a'", "s", ALL),
    ("s LIKE 'a'", "s", (["a"], ["a"])),
    ("s = '\\u00e4\\u0001'", "s", ["ä\x01"]),
    ("d = '2026-01-01'", "d", [DAY]),
    ("d = date'2026-01-01'", "d", [DAY]),
    ("d IN (date'2026-01-01', date'1969-12-31')", "d", [date(1969, 12, 31), DAY]),
    ("d = timestamp'2026-01-01 00:00:00'", "d", [DAY]),
    ("d = timestamp'2026-01-01 00:00:01'", "d", []),
    ("d = '0001-01-01'", "d", [date(1, 1, 1)]),
    ("ts = '2026-01-01'", "ts", [NOON]),
    ("ts = timestamp'2026-01-01 00:00:00'", "ts", [NOON]),
    ("ts = timestamp'2026-01-01 00:00:00.000001'", "ts", [NOON.replace(microsecond=1)]),
    ("ts = '2026-01-01T01:00:00+01:00'", "ts", [NOON]),
    ("tn = '2026-01-01'", "tn", [NOON.replace(tzinfo=None)]),
    ("m = 1.5", "m", [Decimal("1.50")]),
    ("m = 1", "m", [Decimal("1.00")]),
    ("m IN (1.5, 1, 99999999.99)", "m", [Decimal("1.00"), Decimal("1.50"), Decimal("99999999.99")]),
    ("m = 1.555", "m", []),
    ("m = 1.5e0", "m", ALL),
    ("m = 999999999999", "m", ALL),
    ("b = X'0102'", "b", [b"\x01\x02"]),
    ("b IN (X'', X'FF')", "b", [b"", b"\xff"]),
    ("f", "f", [True]),
    ("NOT f", "f", [False]),
    ("f = false OR f IS NULL", "f", [None, False]),
    ("f IN (true, false)", "f", [False, True]),
    ("st.a = 5", "id", ALL),
    ("n = 1 AND s = 'a'", "n, s", [(1, "a")]),
    ("s = 'a' AND n = 1", "n, s", [(1, "a")]),
    ("s = 'a' AND n = 1", "s, n", [("a", 1)]),
    ("n = 1 AND s IN ('a', 'b')", "n, s", [(1, "a"), (1, "b")]),
    ("n = 1 AND s IS NULL", "n, s", [(1, None)]),
    ("n IS NULL AND s IS NULL", "n, s", [(None, None)]),
    ("n <=> 1 AND s <=> NULL", "n, s", [(1, None)]),
    ("(n = 1 AND s = 'a') OR (n = 5 AND s = 'A')", "n, s", [(1, "a"), (5, "A")]),
    ("(n, s) IN ((1, 'a'), (5, 'A'))", "n, s", [(1, "a"), (5, "A")]),
    ("(s, n) IN (('a', 1), ('A', 5))", "n, s", [(1, "a"), (5, "A")]),
    ("(n, s) IN ((1, NULL))", "n, s", ALL),
    ("n = 1", "n, s", ALL),
    ("n = 1 OR s = 'a'", "n, s", ALL),
    ("n = 1 AND s = 'a' AND id = 1", "n, s", ALL),
    ("n = 1 AND s = NULL", "n, s", []),
]
NAMES = [f"{condition} by {key}" for condition, key, _ in CASES]


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> LoadedTable:
    spark.sql(f"CREATE TABLE IF NOT EXISTS lake.predicates.t ({COLUMNS}) USING iceberg")
    return load_table(spark, table_name(spark, "lake.predicates.t"))


@pytest.fixture(scope="module", params=["ansi", "not-ansi"])
def ansi(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    is_on = request.param == "ansi"
    zone = {"spark.sql.session.timeZone": "UTC"}
    with settings_of(spark, {ANSI: str(is_on).lower(), **zone}):
        yield is_on


@pytest.fixture(scope="module")
def rows(spark: SparkSession, ansi: bool) -> DataFrame:  # noqa: FBT001
    names = ", ".join(part.split()[0] for part in COLUMNS.split(", ")[:-1])
    del ansi
    found = spark.sql(f"SELECT * FROM VALUES {ROWS} AS t({names})")
    return found.withColumn("must", F.col("must")).localCheckpoint()


def cells(row: Any, key: str) -> Any:  # noqa: ANN401
    values = []
    for name in key.split(", "):
        value: Any = row
        for part in name.split("."):
            value = None if value is None else value[part]
        values.append(bytes(value) if isinstance(value, bytearray) else value)
    return tuple(values) if len(values) > 1 else values[0]


def listed(found: KeyList) -> list[Any]:
    columns = [column.to_pylist() for column in found.keys.columns]
    keys = list(zip(*columns, strict=True)) if len(columns) > 1 else columns[0]
    return sorted(keys, key=repr)


@pytest.mark.quick_cases(60)
@pytest.mark.parametrize(("condition", "key", "expected"), CASES, ids=NAMES)
def test_keys_are_those_of_the_rows_that_spark_finds(
    table: LoadedTable,
    rows: DataFrame,
    ansi: bool,  # noqa: FBT001
    condition: str,
    key: str,
    expected: Any,  # noqa: ANN401
) -> None:
    chosen = find_key(table.metadata, "t", key.split(", "))
    found = keys_of(table, Condition(condition), chosen)
    wanted = (expected[0] if ansi else expected[1]) if isinstance(expected, tuple) else expected
    if wanted is ALL:
        assert not isinstance(found, KeyList), listed(found)
        assert found.reason
        return
    assert isinstance(found, KeyList), found.reason
    assert (listed(found), found.columns) == (sorted(wanted, key=repr), chosen.columns)
    keys = {*listed(found)}
    plain = rows.selectExpr("*", f"coalesce({condition}, false) AS matched").collect()
    for row in plain:
        value = cells(row, key)
        value = value.replace(tzinfo=timezone.utc) if key == "ts" and value else value
        assert row.matched == (value in keys), (row, listed(found))


def test_columns_of_spark(table: LoadedTable) -> None:
    key = find_key(table.metadata, "t", "id")
    by_name = F.col("id")
    for condition in (by_name == 5, F.expr("id = 5"), F.col("ID").isin(5), F.lit(5) == by_name):
        found = keys_of(table, Condition(condition), key)
        assert isinstance(found, KeyList)
        assert listed(found) == [5]


def test_no_condition_and_wrong_ones_are_no_keys(table: LoadedTable) -> None:
    key = find_key(table.metadata, "t", "id")
    for condition in (None, "nothing = 5", "id = = 5", "_file = 'x'", "st = 5"):
        found = keys_of(table, Condition(condition), key)
        assert not isinstance(found, KeyList)
        assert found.reason


def test_case_matters_if_the_session_says_so(spark: SparkSession, table: LoadedTable) -> None:
    key = find_key(table.metadata, "t", "id")
    with settings_of(spark, {"spark.sql.caseSensitive": "true"}):
        assert isinstance(keys_of(table, Condition("id = 5"), key), KeyList)
        assert not isinstance(keys_of(table, Condition("ID = 5"), key), KeyList)


def test_qualified_names(table: LoadedTable) -> None:
    key = find_key(table.metadata, "t", "id")
    alias = ("lake", "predicates", "t")
    for condition in ("id = 5", "t.id = 5", "predicates.t.id = 5", "lake.predicates.t.id = 5"):
        assert isinstance(keys_of(table, Condition(condition, alias), key), KeyList)
    assert not isinstance(keys_of(table, Condition("o.id = 5", alias), key), KeyList)
    assert isinstance(keys_of(table, Condition("o.id = 5", ("o",)), key), KeyList)


@pytest.mark.more
def test_many_terms(table: LoadedTable) -> None:
    key = find_key(table.metadata, "t", "id")
    numbers = [str(each) for each in range(20_000)]
    found = keys_of(table, Condition(f"id IN ({', '.join(numbers)})"), key)
    assert isinstance(found, KeyList)
    assert found.keys.num_rows == 20_000
    some = keys_of(table, Condition(" OR ".join(f"id = {each}" for each in range(40))), key)
    assert isinstance(some, KeyList)
    assert listed(some) == sorted(range(40), key=repr)
