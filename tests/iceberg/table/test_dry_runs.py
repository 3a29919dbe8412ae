"""Dry runs of the calls that write to an Iceberg table: counted, checked, and nothing written."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec.errors import InvalidArgumentError
from delvec.iceberg.table import IcebergTable
from delvec.iceberg.write.report import KeyDeleteReport, PositionDeleteReport
from tests.iceberg.deletes.tables import open_new

pytestmark = [pytest.mark.spark, pytest.mark.more]


@pytest.fixture
def table(spark: SparkSession) -> IcebergTable:
    """Ten rows in one snapshot."""
    table = open_new(spark, "id BIGINT, note STRING")
    spark.sql(f"INSERT INTO {table.name} SELECT id, CONCAT('n', id) FROM range(0, 10, 1, 1)")
    return table


def rows(spark: SparkSession, *values: tuple[int, str]) -> DataFrame:
    return spark.createDataFrame(list(values), "id BIGINT, note STRING")


def figures(report: KeyDeleteReport | PositionDeleteReport) -> tuple[bool, int | None]:
    return report.dry_run, report.snapshot_id


def test_keys_and_rows_are_counted_and_nothing_is_written(
    spark: SparkSession, table: IcebergTable
) -> None:
    before = table.snapshots().count()
    added = table.append(rows(spark, (20, "x"), (21, "y")), dry_run=True)
    keys = table.delete_keys([1, 2, 2, None], "id", dry_run=True)
    upsert = table.upsert(
        rows(spark, (1, "a"), (1, "b"), (30, "c")), "id", duplicates="last", dry_run=True
    )
    assert (added.rows_added, keys.keys, keys.null_keys) == (2, 3, 1)
    assert (upsert.keys, upsert.rows_added, upsert.duplicates) == (2, 2, 1)
    assert str(keys).startswith(
        f"DELETE KEYS on {table.name}: dry run: nothing was written, 3 keys would be deleted"
    )
    listed = table.delete("id IN (1, 2)", key="id", dry_run=True)
    found = table.delete("note IN ('n3', 'n4')", dry_run=True)
    every = table.delete(dry_run=True)
    assert "2 rows would be deleted by position" in str(found)
    for report in (added, keys, upsert, listed, found, every):
        assert figures(report) == (True, None)
    assert table.snapshots().count() == before
    assert table.to_df().count() == 10


def test_what_a_write_would_refuse_its_dry_run_refuses(
    spark: SparkSession, table: IcebergTable
) -> None:
    with pytest.raises(InvalidArgumentError, match="has no column idd"):
        table.delete_keys([1], "idd", dry_run=True)
    with pytest.raises(InvalidArgumentError, match="lack note"):
        table.append(rows(spark, (1, "a")).drop("note"), dry_run=True)
    with pytest.raises(InvalidArgumentError):
        table.upsert(rows(spark, (1, "a"), (1, "b")), "id", dry_run=True)


def test_an_index_is_planned_by_metadata(spark: SparkSession, table: IcebergTable) -> None:
    assert table.drop_index(dry_run=True) is False
    tried = table.build_index("id", dry_run=True)
    assert (tried.action, tried.dry_run, tried.snapshot_id) == ("built", True, None)
    assert not spark.catalog.tableExists(tried.index)
    table.build_index("id")
    assert table.build_index("id", dry_run=True).action == "kept"
    table.append(rows(spark, (20, "x")))
    assert table.build_index("id", dry_run=True).action == "updated"
    assert table.drop_index(dry_run=True) is True
    assert spark.catalog.tableExists(tried.index)
