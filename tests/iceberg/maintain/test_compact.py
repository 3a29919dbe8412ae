"""Compaction by Iceberg's procedure: what it does, what it refuses, and whom it excludes."""

from __future__ import annotations

import time
from threading import Thread
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec import IcebergTable
from delvec.errors import ConflictError, InvalidArgumentError, LockedError, PlanError
from delvec.iceberg.commit.lock import hold_lock
from delvec.iceberg.commit.lock_state import lock_state
from delvec.iceberg.maintain.compact import compact
from tests.iceberg.deletes.tables import open_new
from tests.iceberg.maintain.tables import insert, loaded, staging_table

pytestmark = pytest.mark.spark


def rows(table: IcebergTable) -> list[tuple[Any, ...]]:
    table.spark.catalog.refreshTable(table.name)
    return sorted(tuple(row) for row in table.spark.table(table.name).collect())


def contents(table: IcebergTable) -> list[str]:
    return sorted(row["content"] for row in table.files().collect())


def six(spark: SparkSession, version: int = 3, rest: str = "") -> IcebergTable:
    """A table of six files, with a delete in one of them."""
    made = open_new(spark, rest=rest, version=version)
    for number in range(6):
        first = 3 * number
        insert(made, f"({first}, 'a'), ({first + 1}, 'b'), ({first + 2}, 'b')")
    spark.sql(f"DELETE FROM {made.name} WHERE id = 4")
    return made


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("version", [2, 3])
def test_small_files_become_one_and_no_row_changes(spark: SparkSession, version: int) -> None:
    table = six(spark, version)
    before = rows(table)
    planned = compact(loaded(table), dry_run=True)
    assert (planned.files_rewritten, planned.files_added, planned.groups) == (6, 1, 1)
    assert planned.bytes_rewritten > 0
    assert planned.snapshot_id is None
    assert "dry run, nothing was written\n  data files  6 -> 1" in str(planned)
    assert len(contents(table)) == 7, "a dry run writes nothing"
    report = compact(loaded(table), options={"remove-dangling-deletes": True})
    assert (contents(table), rows(table), len(before)) == (["data"], before, 17)
    head = loaded(table).metadata.head()
    assert head is not None
    assert report.bytes_rewritten == planned.bytes_rewritten
    assert (report.files_rewritten, report.files_added, report.files_failed) == (6, 1, 0)
    assert report.delete_files_removed == 1
    assert report.snapshot_id is not None
    assert (list(report.phases), report.to_json()["files_rewritten"]) == (["lock", "rewrite"], 6)
    assert f"COMPACT of {table.name}: snapshot {report.snapshot_id} of main" in str(report)
    assert set(loaded(table).metadata.refs) == {"main"}
    again = compact(loaded(table))
    assert (again.snapshot_id, again.files_rewritten) == (None, 0)
    assert "main, nothing to do" in str(again)


@pytest.mark.slow
def test_a_condition_and_options_choose_files(spark: SparkSession) -> None:
    table = six(spark, rest="PARTITIONED BY (s)")
    one = {"where": "s = 'it''s' or s = 'a'", "options": {"min-input-files": 2}}
    planned = compact(loaded(table), **one, dry_run=True)  # type: ignore[arg-type]
    report = compact(loaded(table), **one)  # type: ignore[arg-type]
    assert (report.files_rewritten, report.files_added) == (6, 1)
    assert (planned.files_rewritten, planned.files_added) == (6, 1)
    every = compact(loaded(table), options={"rewrite-all": True}, dry_run=True)
    assert every.files_rewritten == 1 + 6
    few = compact(loaded(table), options={"min-input-files": 9, "delete-file-threshold": 1})
    assert few.files_rewritten == 6, "the group of the one with a deletion vector"
    assert few.delete_files_removed == 1


@pytest.mark.more
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"options": {"min-input-files": 0}}, "min-input-files"),
        ({"where": "nowhere = 1"}, "nowhere"),
        ({"where": "id ="}, "id ="),
    ],
    ids=str,
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_wrong_options_and_conditions_are_told(
    spark: SparkSession, arguments: dict[str, Any], message: str, *, dry_run: bool
) -> None:
    table = open_new(spark)
    insert(table, "(1, 'a')")
    with pytest.raises(InvalidArgumentError, match=message):
        compact(loaded(table), **arguments, dry_run=dry_run)
    assert lock_state(loaded(table).metadata) is None


def test_a_table_without_snapshots_has_nothing_to_compact(spark: SparkSession) -> None:
    table = open_new(spark)
    assert compact(loaded(table)).snapshot_id is None
    assert compact(loaded(table), dry_run=True).files_rewritten == 0


def test_what_iceberg_would_break_is_refused(spark: SparkSession) -> None:
    table = staging_table(spark, "(1, 'a'), (2, 'b')")
    table.delete_keys([1], "id", branch="stage")
    insert(table, "(3, 'c')")
    assert compact(loaded(table), options={"rewrite-all": True}).files_rewritten == 2
    assert [row["id"] for row in table.to_df(branch="stage").collect()] == [2]
    table.delete_keys([2], "id")
    for dry_run in (False, True):
        with pytest.raises(PlanError, match=r"main of .* has 1 equality delete") as refused:
            compact(loaded(table), dry_run=dry_run)
    assert "resolve()" in str(refused.value)
    spark.sql(f"ALTER TABLE {table.name} SET TBLPROPERTIES ('gc.enabled'='false')")
    with pytest.raises(PlanError, match=r"gc.enabled=false"):
        compact(loaded(table))


@pytest.mark.slow
def test_it_waits_for_the_lock(spark: SparkSession) -> None:
    table = six(spark)
    with hold_lock(loaded(table), "RESOLVE", owner="resolver"):
        with pytest.raises(LockedError, match="locked by resolver for RESOLVE"):
            compact(loaded(table))
        assert compact(loaded(table), dry_run=True).files_rewritten == 6
    holder = Thread(target=_hold, args=(table,))
    holder.start()
    try:
        while lock_state(loaded(table).metadata) is None:
            time.sleep(0.05)
        assert compact(loaded(table), wait=60).files_rewritten == 6
    finally:
        holder.join()


def _hold(table: IcebergTable) -> None:
    with hold_lock(loaded(table), "RESOLVE"):
        time.sleep(1)


@pytest.mark.more
def test_the_risk_of_icebergs_default_is_told(spark: SparkSession) -> None:
    table = six(spark)
    options = {"use-starting-sequence-number": True}
    assert "may drop equality deletes" in compact(loaded(table), options=options).notes[0]


@pytest.mark.slow
def test_an_equality_delete_that_comes_meanwhile_is_never_lost(spark: SparkSession) -> None:
    """See apache/iceberg#10312: with Iceberg's default the row is back."""
    conflicts = 0
    for _ in range(5):
        table = open_new(spark)
        spark.range(500_000).selectExpr("id", "uuid() AS s").coalesce(1).writeTo(
            table.name
        ).append()
        deleted: list[int] = []

        def delete(table: IcebergTable = table, deleted: list[int] = deleted) -> None:
            while lock_state(loaded(table).metadata) is None:
                time.sleep(0.01)
            table.delete_keys([7], "id")
            deleted.append(7)
            insert(table, "(-1, 'new')")

        writer = Thread(target=delete)
        writer.start()
        try:
            compact(loaded(table), options={"rewrite-all": True})
        except ConflictError as error:
            assert "committed meanwhile" in str(error)  # noqa: PT017
            conflicts += 1
        finally:
            writer.join()
        insert(table, "(-2, 'later')")
        found = spark.table(table.name).where("id <= 7").select("id").collect()
        assert deleted
        assert sorted(row[0] for row in found) == [-2, -1, 0, 1, 2, 3, 4, 5, 6]
        if conflicts:
            break
    assert conflicts, "no delete was early enough to tell"
