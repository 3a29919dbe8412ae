"""Resolving in place and from a staging branch, by the join and by the index."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec import IcebergTable
from tests.iceberg.deletes.tables import by_pyiceberg, by_spark, deletes_of, new_table

pytestmark = pytest.mark.spark

VERSIONS = pytest.mark.parametrize("version", [2, 3])


def rows(spark: SparkSession, *ids: int, n: int = 0) -> DataFrame:
    return spark.createDataFrame(
        [(each, n, f"s{each}") for each in ids], "id bigint, n int, s string"
    )


@pytest.mark.quick_cases(1)
@VERSIONS
def test_in_place(spark: SparkSession, version: int) -> None:
    name = new_table(spark, version=version)
    table = IcebergTable.for_name(spark, name)
    table.append(rows(spark, *range(10)))
    table.delete_keys([2, 3, 99], "id")
    table.append(rows(spark, 3, 20))
    table.upsert(rows(spark, 5, n=1), "id")
    report = table.resolve(verify="rows")
    assert by_spark(spark, name) == [0, 1, 3, 4, 5, 6, 7, 8, 9, 20]
    assert all(content == 1 for content, _, _ in deletes_of(spark, name))
    assert (report.keys, report.absent, report.rows_deleted) == (4, 1, 3)
    if version == 3:
        assert by_pyiceberg(spark, name) == [0, 1, 3, 4, 5, 6, 7, 8, 9, 20]
    again = table.resolve()
    assert again.snapshot_id is None


@pytest.mark.quick_cases(1)
@VERSIONS
def test_staging(spark: SparkSession, version: int) -> None:
    name = new_table(spark, version=version)
    table = IcebergTable.for_name(spark, name)
    table.append(rows(spark, *range(10)))
    table.create_branch("st", staging=version == 3)
    table.upsert(rows(spark, 5, 100, n=1), "id", branch="st")
    table.upsert(rows(spark, 5, 101, n=2), "id", branch="st")
    table.delete_keys([1, 100], "id", branch="st")
    table.append(rows(spark, 100, n=3), branch="st")
    assert by_spark(spark, name) == list(range(10))
    report = table.resolve("id", staging="st", verify="rows", unique_keys=True)
    assert (report.keys, report.absent, report.rows_deleted) == (4, 1, 4)
    assert by_spark(spark, name) == [0, 2, 3, 4, 5, 6, 7, 8, 9, 100, 101]
    assert by_spark(spark, name, "n") == [0] * 8 + [2, 2, 3]
    assert all(content == 1 for content, _, _ in deletes_of(spark, name))
    assert table.resolve("id", staging="st").snapshot_id is None
    table.upsert(rows(spark, 100, n=5), "id", branch="st")
    report = table.resolve("id", staging="st")
    assert (report.staged_snapshots, report.keys, report.absent) == (1, 1, 0)
    assert by_spark(spark, name, "n") == [0] * 8 + [2, 2, 5]
