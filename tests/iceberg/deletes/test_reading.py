"""Reads through equality deletes: keys as bits and keys joined give what stock Iceberg reads."""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from delvec import IcebergTable
from delvec.errors import FormatError, InvalidArgumentError
from delvec.iceberg.deletes import key_bits
from tests.iceberg.deletes.tables import by_spark, open_new

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(2)]

LONG = 1 << 63


def ids(table: IcebergTable, column: str = "id", **options: Any) -> list[Any]:  # noqa: ANN401
    rows = table.to_df(**options).select(column).collect()
    return sorted((row[0] for row in rows), key=lambda each: (each is not None, each))


BIGINTS = [None, -LONG, 1 - LONG, -65, -64, -1, 0, 1, 63, 64, 127, 128, LONG - 2, LONG - 1]
VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "bigint": (BIGINTS, [-65, 0, 63, 127]),
    "BIGINT": (BIGINTS, [-LONG, 2 - LONG]),
    "Bigint": (BIGINTS, [LONG - 1, None]),
    "int": ([None, -(2**31), -1, 0, 5, 2**31 - 1], [None, -1, 5]),
    "date": ([None, date(1969, 12, 31), date(1970, 1, 1), date(2026, 1, 1)], [date(1969, 12, 31)]),
    "timestamp": (
        [None, *(datetime(2026, 1, day, 0, 0, 0, 1, tzinfo=timezone.utc) for day in range(1, 5))],
        [datetime(2026, 1, 3, 0, 0, 0, 1, tzinfo=timezone.utc)],
    ),
    "string": ([None, "", "a", "b"], ["a"]),
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("form", ["bits", "join"])
@pytest.mark.parametrize("kind", VALUES)
def test_keys_of_all_forms_are_compared_as_by_stock_iceberg(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: str, form: str
) -> None:
    if form == "join":
        monkeypatch.setattr(key_bits, "_MOST_KEYS", 0)
    values, deleted = VALUES[kind]
    table = open_new(spark, f"id {kind}, n int")
    rows = [(value, n) for n, value in enumerate(values)]
    table.append(spark.createDataFrame(rows, f"id {kind}, n int").coalesce(1))
    table.delete_keys(deleted, "id")
    plan = table.plan_read()
    assert plan.files_with_keys == 1
    assert ("joined" in plan.reason) == (form == "join" or kind == "string")
    expected = sorted(n for n, value in enumerate(values) if value not in deleted)
    assert ids(table, "n") == by_spark(spark, table.name, "n") == expected


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("most_scans", [16, 0])
def test_a_delete_applies_to_older_files_of_its_partition_only(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, most_scans: int
) -> None:
    monkeypatch.setattr(key_bits, "_MOST_SCANS", most_scans)
    table = open_new(spark, "id bigint, p string", "PARTITIONED BY (p)")
    for p in ("a", "b", None):
        table.append(spark.range(10).selectExpr("id", f"{'null' if p is None else repr(p)} AS p"))
    table.delete_keys([1], "id")
    table.delete_keys([2], "id", partition={"p": "a"})
    table.delete_keys([3], "id", partition={"p": None})
    table.append(spark.range(1, 4).selectExpr("id", "'a' AS p"))
    table.delete_keys([3], "id", partition={"p": "a"})
    found = sorted(map(tuple, table.to_df().collect()), key=str)
    assert found == sorted(map(tuple, spark.table(table.name).collect()), key=str)
    expected = {
        "a": [0, 1, 2, 4, 5, 6, 7, 8, 9],
        "b": [0, 2, 3, 4, 5, 6, 7, 8, 9],
        None: [0, 2, 4, 5, 6, 7, 8, 9],
    }
    for p, numbers in expected.items():
        assert sorted(row[0] for row in found if row[1] == p) == numbers
    wrong: list[Any] = [{}, {"id": 1}, {"p": "a", "id": 1}]
    for each in wrong:
        with pytest.raises(InvalidArgumentError, match="expected p"):
            table.delete_keys([1], "id", partition=each)


@pytest.mark.more
def test_a_condition_skips_deletes_and_files(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint, p int", "PARTITIONED BY (p)")
    for p in range(4):
        table.append(spark.range(p * 100, p * 100 + 100).selectExpr("id", f"{p} AS p"))
    table.delete_keys([5, 105, 205, 305], "id")
    table.delete_keys([399], "id")
    everything = table.plan_read()
    assert (everything.data_files, everything.files_with_keys, everything.skipped) == (4, 4, 0)
    plan = table.plan_read(where="p = 0 AND id < 50", columns=["id"])
    assert (plan.data_files, plan.files_with_keys, plan.skipped) == (1, 1, 1)
    assert sorted(row[0] for row in plan.to_df().collect()) == [n for n in range(50) if n != 5]
    elsewhere = table.plan_read(where="p = 3 AND id > 310 AND id < 390")
    assert (elsewhere.reader, elsewhere.skipped, elsewhere.to_df().count()) == ("iceberg", 2, 79)
    # A condition that Iceberg does not understand prunes nothing, and holds all the same.
    odd = table.plan_read(where="hash(id) % 2 = 0 AND p = 0")
    assert odd.data_files == 1
    expected = spark.table(table.name).where("hash(id) % 2 = 0 AND p = 0")
    assert odd.to_df().collect() == expected.collect()


@pytest.mark.slow
def test_filters_of_a_query_prune_and_never_repeat_rows(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint, p int", "PARTITIONED BY (p)")
    for p in range(3):
        table.append(spark.range(p * 10, p * 10 + 10).selectExpr("id", f"{p} AS p"))
    table.delete_keys([1, 11], "id")
    rows = table.to_df()
    stock = spark.table(table.name)
    for condition in (
        "p = 1",
        "id < 12",
        "id IN (1, 2, 11, 25)",
        "p <> 1 OR id = 11",
        "id IS NULL",
    ):
        assert sorted(rows.where(condition).collect()) == sorted(stock.where(condition).collect())
    joined = rows.alias("a").join(rows.alias("b"), "id")
    assert joined.count() == 28
    assert rows.groupBy("p").count().sort("p").collect() == (
        stock.groupBy("p").count().sort("p").collect()
    )
    assert rows.unionAll(rows).distinct().count() == 28


def test_vectors_of_a_staging_branch_are_read_or_refused(spark: SparkSession) -> None:
    properties = {"write.delete.equality-vector.enabled": "true"}
    table = open_new(spark, "id bigint", properties=properties)
    table.append(spark.range(1000).coalesce(1))
    table.create_branch("upserts", staging=True)
    report = table.delete_keys(np.arange(100, 900), "id", branch="upserts")
    assert (report.key_vectors, report.delete_files) == (1, 0)
    assert ids(table, branch="upserts") == [*range(100), *range(900, 1000)]
    assert table.to_df().count() == spark.table(table.name).count() == 1000
    [vector] = table.files(branch="upserts").where("content LIKE 'equality%'").collect()
    assert vector.content == "equality-delete-vector"
    damaged(vector.path)
    with pytest.raises(FormatError, match=r"edv\.puffin"):
        table.to_df("upserts")


def damaged(path: str) -> None:
    with open(path.removeprefix("file:"), "r+b") as file:  # noqa: PTH123
        file.seek(20)
        file.write(b"\xff\xff\xff")


def test_a_vector_beside_an_ordinary_file_is_used_and_may_be_lost(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    properties = {"write.delete.equality-vector.enabled": "true"}
    table = open_new(spark, "id bigint", properties=properties)
    table.append(spark.range(1000).coalesce(1))
    report = table.delete_keys(range(500), "id")
    assert (report.key_vectors, report.delete_files) == (1, 1)
    expected = [*range(500, 1000)]
    assert ids(table) == by_spark(spark, table.name) == expected
    metadata = table._load().metadata
    [(companion, _)] = metadata.statistics_of_files("delete-file").values()
    damaged(companion)
    assert ids(table) == expected
    assert "not usable" in caplog.text


def test_a_dropped_key_column_still_deletes(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint, k bigint, s string")
    table.append(spark.range(10).selectExpr("id", "id + 100 AS k", "string(id) AS s"))
    table.delete_keys([101], "k")
    table.delete_keys(["2"], "s")
    spark.sql(f"ALTER TABLE {table.name} DROP COLUMN k")
    spark.sql(f"ALTER TABLE {table.name} DROP COLUMN s")
    spark.sql(f"ALTER TABLE {table.name} ADD COLUMN k bigint")
    assert (table.to_df().columns, ids(table)) == (["id", "k"], [0, 3, 4, 5, 6, 7, 8, 9])
    table.delete_keys([101], "k")  # another column, which is null
    assert ids(table) == [0, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.more
def test_keys_that_are_far_apart_are_joined(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint")
    table.append(spark.createDataFrame([(-LONG,), (0,), (LONG - 1,)], "id bigint").coalesce(1))
    table.delete_keys([-LONG, LONG - 1], "id")
    assert "32 MiB" in table.plan_read().reason
    assert ids(table) == by_spark(spark, table.name) == [0]


def test_an_empty_table_is_read(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint")
    assert table.to_df(where="id > 1").collect() == []
    assert table.plan_read().snapshot_id is None
