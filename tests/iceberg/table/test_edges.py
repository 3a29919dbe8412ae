"""Cases where a name, a time or a moment could mean two things."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec import IcebergTable
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.iceberg.commit.branch_commit import commit_change
from tests.iceberg.deletes.tables import open_new
from tests.spark.delta.readers import settings_of

pytestmark = [pytest.mark.spark, pytest.mark.more]

UPDATES = {"write.update.mode": "merge-on-read"}
ENABLED = {"write.delete.equality-vector.enabled": "true"}


def ids(table: IcebergTable, **options: Any) -> list[int]:  # noqa: ANN401
    return sorted(row[0] for row in table.to_df(**options).select("id").collect())


def test_columns_are_named_in_any_case(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint, v int")
    table.append(spark.range(10).selectExpr("id", "int(id) v"))
    table.delete_keys([3], "ID")
    assert ids(table, where="ID < 5 AND V >= 0") == [0, 1, 2, 4]
    table.delete("V = 1 OR Id > 7")
    assert ids(table) == [0, 2, 4, 5, 6, 7]


@pytest.mark.slow
def test_a_branch_is_read_with_the_columns_that_the_table_has_now(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint, v int")
    table.append(spark.range(5).selectExpr("id", "int(id) v").coalesce(1))
    table.append(spark.range(5, 10).selectExpr("id", "null v").coalesce(1))
    table.create_branch("audit")
    table.delete_keys([7], "id", branch="audit")
    spark.sql(f"ALTER TABLE {table.name} RENAME COLUMN v TO w")
    assert ids(table, branch="audit", where="w < 2") == [0, 1]
    spark.sql(f"ALTER TABLE {table.name} DROP COLUMN w")
    spark.sql(f"ALTER TABLE {table.name} ADD COLUMN v int")
    # Statistics of the old column must not prune files by the new one, which is null everywhere.
    assert ids(table, branch="audit", where="v IS NULL") == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    table.delete("v IS NULL AND id < 2", branch="audit")
    assert ids(table, branch="audit") == [2, 3, 4, 5, 6, 8, 9]
    assert ids(table) == list(range(10))


def test_reads_of_two_snapshots_are_never_taken_for_one(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint")
    first = table.append(spark.range(3).coalesce(1)).snapshot_id
    table.append(spark.range(3, 5).coalesce(1))
    cached = table.to_df().cache()
    assert cached.count() == 5
    assert table.to_df(snapshot_id=first).count() == 3
    assert table.to_df().exceptAll(table.to_df(snapshot_id=first)).count() == 2
    cached.unpersist()


def test_times_without_a_zone_are_keys_whatever_the_session_zone(spark: SparkSession) -> None:
    moments = [datetime(2024, 10, 27, 2, 30), datetime(2024, 3, 31, 2, 30)]  # noqa: DTZ001
    later = datetime(2024, 3, 31, 3, 30)  # noqa: DTZ001
    table = open_new(spark, "id bigint, at timestamp_ntz", properties=ENABLED)
    rows = spark.createDataFrame(
        [(1, moments[0]), (2, moments[1]), (3, later)], "id bigint, at timestamp_ntz"
    )
    table.append(rows.coalesce(1))
    table.create_branch("changes", staging=True)
    with settings_of(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        report = table.delete_keys([moments[0], later], "at", branch="changes")
        assert report.key_vectors == 1
        assert ids(table, branch="changes") == [2]


def test_a_published_and_dropped_branch_does_not_apply_a_batch_twice(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint")
    table.append(spark.range(1))
    batch: Any = {"branch": "audit", "txn_app_id": "stream", "txn_version": 5}
    table.append(spark.range(1, 3), **batch)
    table.fast_forward("main", "audit")
    table.drop_branch("audit")
    assert table.append(spark.range(1, 3), **batch).replayed
    assert ids(table) == [0, 1, 2]
    batch["txn_version"] = 6
    assert not table.append(spark.range(3, 4), **batch).replayed
    assert ids(table, branch="audit") == [0, 1, 2, 3]


def test_an_order_with_a_direction_is_refused(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint, seq int")
    changes = spark.createDataFrame([(1, 1), (1, 2)], "id bigint, seq int")
    with pytest.raises(InvalidArgumentError, match="seq DESC"):
        table.upsert(changes, "id", duplicates="last", order_by="seq DESC")
    table.upsert(changes, "id", duplicates="last", order_by="-seq")
    assert [tuple(row) for row in table.to_df().collect()] == [(1, 1)]


def test_writes_that_wait_for_an_audit_are_refused(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint, v int", properties={"write.wap.enabled": "true"})
    table.append(spark.range(3).selectExpr("id", "int(id) v"))
    with settings_of(spark, {"spark.wap.branch": "audit"}):
        with pytest.raises(UnsupportedFeatureError, match="audit"):
            table.append(spark.range(1).selectExpr("id", "1 v"))
        with pytest.raises(UnsupportedFeatureError, match="audit"):
            table.delete_keys([1], "id")
        with pytest.raises(UnsupportedFeatureError, match="audit"):
            table.delete("v = 1")
    assert ids(table) == [0, 1, 2]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("version", [2, 3])
def test_an_update_meanwhile_does_not_save_its_row(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    table = open_new(spark, "id bigint, region string, n int", version=version, properties=UPDATES)
    table.append(spark.range(5).selectExpr("id", "'x' region", "0 n").coalesce(1))
    table.append(spark.range(5, 9).selectExpr("id", "'y' region", "0 n").coalesce(1))
    updates = [f"UPDATE {table.name} SET n = 1 WHERE id IN (3, 7)"]

    def late(*args: Any, **options: Any) -> object:  # noqa: ANN401
        if updates:
            spark.sql(updates.pop())
        return commit_change(*args, **options)

    monkeypatch.setattr("delvec.iceberg.write.delete_positions.commit_change", late)
    report: Any = table.delete("region = 'x' OR id > 6")
    assert report.attempts == 2
    assert ids(table) == sorted(row[0] for row in spark.table(table.name).collect()) == [5, 6]
