"""Calls of `IcebergTable`: rows that are given, dry runs, and what could mean two things."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec import DeltaTable, IcebergTable
from delvec.errors import (
    InvalidArgumentError,
    TableNotFoundError,
    UnknownNameError,
    UnsupportedFeatureError,
)
from delvec.iceberg.commit.branch_commit import commit_change
from tests.iceberg.deletes.tables import open_new
from tests.iceberg.table.mirror import ENABLED
from tests.spark.delta.readers import settings_of

pytestmark = pytest.mark.spark

UPDATES = {"write.update.mode": "merge-on-read"}


ROWS = pa.table({"id": [1, 2], "v": ["a", None]})
GIVEN: dict[str, Callable[[pa.Table], Any]] = {
    "Arrow": lambda rows: rows,
    "pandas": lambda rows: rows.to_pandas(),
    "polars": lambda rows: pytest.importorskip("polars").DataFrame(rows),
}


@pytest.fixture
def table(spark: SparkSession) -> IcebergTable:
    return open_new(spark, "id BIGINT, v STRING")


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("name", GIVEN)
def test_rows_of_other_libraries_are_taken(
    spark: SparkSession, table: IcebergTable, name: str
) -> None:
    given = GIVEN[name]
    table.append(given(ROWS))
    table.upsert(given(pa.table({"id": [2, 3, 4], "v": ["x", "y", "z"]})), keys="id")
    table.delete_keys(given(pa.table({"id": [4], "other": [0]})), "id")
    rows = spark.table(table.name).collect()
    assert sorted(map(tuple, rows)) == [(1, "a"), (2, "x"), (3, "y")]


def test_what_is_no_argument_is_refused(table: IcebergTable) -> None:
    with pytest.raises(
        InvalidArgumentError, match="pandas or polars DataFrame, or Arrow"
    ) as caught:
        table.append([1])
    assert "createDataFrame" in str(caught.value.hint)
    with pytest.raises(InvalidArgumentError, match=r"upsert\(\) takes a Spark, pandas"):
        table.upsert([1], keys="id")
    with pytest.raises(InvalidArgumentError, match="staging of create_branch"):
        table.create_branch("x", staging="yes")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="has no keyword 'snapshot'"):
        table.create_tag("x", snapshot=1)  # type: ignore[call-arg]


def test_a_typo_is_one_short_error(table: IcebergTable, capfd: pytest.CaptureFixture[str]) -> None:
    table.append(ROWS)
    capfd.readouterr()
    for read in (
        lambda: table.to_df(where="idd = 3"),
        lambda: table.to_df(columns=["idd"]),
        lambda: table.to_arrow(where="idd = 3"),
        lambda: table.delete("idd = 3"),
    ):
        with pytest.raises(InvalidArgumentError, match=r"^there is no column idd") as caught:
            read()
        assert caught.value.hint == "did you mean id?"
        assert len(str(caught.value)) < 100
    assert capfd.readouterr() == ("", "")


def test_names_of_the_other_format_are_explained(spark: SparkSession, table: IcebergTable) -> None:
    with pytest.raises(InvalidArgumentError, match="is a path") as caught:
        IcebergTable.for_name(spark, "/lake/orders")
    assert "DeltaTable.for_path(spark, '/lake/orders')" in str(caught.value.hint)
    with pytest.raises(TableNotFoundError, match="one of iceberg") as missing:
        DeltaTable.for_name(spark, table.name)
    assert missing.value.hint == f"open it by IcebergTable.for_name(spark, {table.name!r})"


def test_names_of_pyiceberg_are_explained(table: IcebergTable) -> None:
    for name, hint in (("scan", "to_df"), ("refresh", "not needed"), ("vacuum", "expire_snap")):
        with pytest.raises(UnknownNameError, match=f"IcebergTable has no {name}") as caught:
            getattr(table, name)
        assert hint in str(caught.value.hint)


@pytest.fixture
def ten(spark: SparkSession) -> IcebergTable:
    """Ten rows in one snapshot."""
    table = open_new(spark, "id BIGINT, note STRING")
    spark.sql(f"INSERT INTO {table.name} SELECT id, CONCAT('n', id) FROM range(0, 10, 1, 1)")
    return table


def rows(spark: SparkSession, *values: tuple[int, str]) -> DataFrame:
    return spark.createDataFrame(list(values), "id BIGINT, note STRING")


@pytest.mark.more
def test_keys_and_rows_are_only_counted(spark: SparkSession, ten: IcebergTable) -> None:
    before = ten.snapshots().count()
    added = ten.append(rows(spark, (20, "x"), (21, "y")), dry_run=True)
    keys = ten.delete_keys([1, 2, 2, None], "id", dry_run=True)
    upsert = ten.upsert(
        rows(spark, (1, "a"), (1, "b"), (30, "c")), "id", duplicates="last", dry_run=True
    )
    assert (added.rows_added, keys.keys, keys.null_keys) == (2, 3, 1)
    assert (upsert.keys, upsert.rows_added, upsert.duplicates) == (2, 2, 1)
    assert str(keys).startswith(
        f"DELETE KEYS on {ten.name}: dry run: nothing was written, 3 keys would be deleted"
    )
    listed = ten.delete("id IN (1, 2)", key="id", dry_run=True)
    found = ten.delete("note IN ('n3', 'n4')", dry_run=True)
    every = ten.delete(dry_run=True)
    assert "2 rows would be deleted by position" in str(found)
    for report in (added, keys, upsert, listed, found, every):
        assert (report.dry_run, report.snapshot_id) == (True, None)
    assert (ten.snapshots().count(), ten.to_df().count()) == (before, 10)


@pytest.mark.more
def test_a_dry_run_refuses_what_a_write_does(spark: SparkSession, ten: IcebergTable) -> None:
    with pytest.raises(InvalidArgumentError, match="has no column idd"):
        ten.delete_keys([1], "idd", dry_run=True)
    with pytest.raises(InvalidArgumentError, match="lack note"):
        ten.append(rows(spark, (1, "a")).drop("note"), dry_run=True)
    with pytest.raises(InvalidArgumentError):
        ten.upsert(rows(spark, (1, "a"), (1, "b")), "id", dry_run=True)


@pytest.mark.more
def test_an_index_is_planned_by_metadata(spark: SparkSession, ten: IcebergTable) -> None:
    assert ten.drop_index(dry_run=True) is False
    tried = ten.build_index("id", dry_run=True)
    assert (tried.action, tried.dry_run, tried.snapshot_id) == ("built", True, None)
    assert not spark.catalog.tableExists(tried.index)
    ten.build_index("id")
    assert ten.build_index("id", dry_run=True).action == "kept"
    ten.append(rows(spark, (20, "x")))
    assert ten.build_index("id", dry_run=True).action == "updated"
    assert ten.drop_index(dry_run=True) is True
    assert spark.catalog.tableExists(tried.index)


def ids(table: IcebergTable, **options: Any) -> list[int]:  # noqa: ANN401
    return sorted(row[0] for row in table.to_df(**options).select("id").collect())


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
    assert (ids(table, branch="audit"), ids(table)) == ([2, 3, 4, 5, 6, 8, 9], list(range(10)))


@pytest.mark.more
def test_reads_of_two_snapshots_are_never_taken_for_one(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint")
    first = table.append(spark.range(3).coalesce(1)).snapshot_id
    table.append(spark.range(3, 5).coalesce(1))
    cached = table.to_df().cache()
    assert (cached.count(), table.to_df(snapshot_id=first).count()) == (5, 3)
    assert table.to_df().exceptAll(table.to_df(snapshot_id=first)).count() == 2
    cached.unpersist()


@pytest.mark.more
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
        assert (report.key_vectors, ids(table, branch="changes")) == (1, [2])


@pytest.mark.more
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


@pytest.mark.more
def test_an_order_with_a_direction_is_refused(spark: SparkSession) -> None:
    table = open_new(spark, "id bigint, seq int")
    changes = spark.createDataFrame([(1, 1), (1, 2)], "id bigint, seq int")
    with pytest.raises(InvalidArgumentError, match="seq DESC"):
        table.upsert(changes, "id", duplicates="last", order_by="seq DESC")
    table.upsert(changes, "id", duplicates="last", order_by="-seq")
    assert [tuple(row) for row in table.to_df().collect()] == [(1, 1)]


@pytest.mark.more
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


@pytest.mark.more
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
