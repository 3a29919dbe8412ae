"""Which changes of a staging branch are taken over: each once, whatever happens to snapshots."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec import IcebergTable
from delvec.errors import ConflictError, InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import iceberg_view
from delvec.iceberg.client.file_scan import write_data_files
from delvec.iceberg.commit import branch_commit
from delvec.iceberg.commit.marks import read_progress
from delvec.iceberg.resolve import step
from tests.iceberg.deletes.tables import by_spark, deletes_of, loaded, new_table

pytestmark = pytest.mark.spark


def rows(spark: SparkSession, *ids: int, n: int = 0) -> DataFrame:
    values = [(each, n, f"s{each}") for each in ids]
    return spark.createDataFrame(values, "id bigint, n int, s string")


def staged_table(spark: SparkSession, *, staging: bool = False, version: int = 3) -> IcebergTable:
    """Return a table of keys 0 to 4, with a branch that has 4 updated and 5 added."""
    table = IcebergTable.for_name(spark, new_table(spark, version=version))
    table.append(rows(spark, *range(5)))
    if staging:
        table.create_branch("st", staging=True)
    table.upsert(rows(spark, 4, 5, n=1), "id", branch="st")
    return table


def expire_all(spark: SparkSession, table: IcebergTable) -> None:
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{table.name}', retain_last => 1,"
        " older_than => TIMESTAMP '2999-01-01 00:00:00')"
    )


def numbers(spark: SparkSession, table: IcebergTable) -> list[tuple[object, object]]:
    spark.catalog.refreshTable(table.name)
    return sorted((row["id"], row["n"]) for row in spark.table(table.name).collect())


TAKEN = [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 1)]


@pytest.mark.slow
def test_the_fork_has_expired(spark: SparkSession) -> None:
    table = staged_table(spark)
    table.append(rows(spark, 9))
    expire_all(spark, table)
    assert table.resolve(staging="st").staged_snapshots == 1
    assert numbers(spark, table) == [*TAKEN, (9, 0)]


@pytest.mark.slow
def test_the_fork_of_a_staging_branch_has_expired_and_the_target_was_rewritten(
    spark: SparkSession,
) -> None:
    table = staged_table(spark, staging=True)
    table.append(rows(spark, 9))
    table.compact(options={"rewrite-all": True})
    expire_all(spark, table)
    table.resolve(staging="st")
    assert numbers(spark, table) == [*TAKEN, (9, 0)]


@pytest.mark.slow
def test_a_snapshot_that_expired_unread_is_refused(spark: SparkSession) -> None:
    table = staged_table(spark)
    table.upsert(rows(spark, 6), "id", branch="st")
    expire_all(spark, table)
    with pytest.raises(PlanError, match="has expired before it was taken over"):
        table.resolve(staging="st")
    assert by_spark(spark, table.name) == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_snapshots_that_expired_after_a_resolve_are_read_from_the_newest(
    spark: SparkSession,
) -> None:
    table = staged_table(spark)
    table.resolve(staging="st")
    table.upsert(rows(spark, 0, 6, n=2), "id", branch="st")
    table.delete_keys([5], "id", branch="st")
    table.upsert(rows(spark, 6, n=3), "id", branch="st")
    table.append(rows(spark, 9))
    expire_all(spark, table)
    table.resolve(staging="st", verify="rows")
    assert numbers(spark, table) == [(0, 2), (1, 0), (2, 0), (3, 0), (4, 1), (6, 3), (9, 0)]
    assert [content for content, _, _ in deletes_of(spark, table.name)].count(2) == 0
    assert table.resolve(staging="st").snapshot_id is None


@pytest.mark.slow
def test_progress_outlives_its_snapshot(spark: SparkSession) -> None:
    table = staged_table(spark)
    table.resolve(staging="st")
    table.append(rows(spark, 9))
    expire_all(spark, table)
    assert read_progress(loaded(spark, table.name).metadata, "main", "st") is not None
    assert table.resolve(staging="st").snapshot_id is None
    assert numbers(spark, table) == [*TAKEN, (9, 0)]


@pytest.mark.slow
def test_a_rollback_of_the_target_takes_progress_back(spark: SparkSession) -> None:
    table = staged_table(spark)
    before = loaded(spark, table.name).metadata.refs["main"].snapshot_id
    table.resolve(staging="st")
    table.rollback(snapshot_id=before)
    assert by_spark(spark, table.name) == [0, 1, 2, 3, 4]
    expire_all(spark, table)  # the snapshot that took the changes over is gone for good
    table.resolve(staging="st")
    assert numbers(spark, table) == TAKEN


@pytest.mark.slow
def test_a_rollback_by_stock_iceberg_takes_progress_back(spark: SparkSession) -> None:
    table = staged_table(spark)
    before = loaded(spark, table.name).metadata.refs["main"].snapshot_id
    table.resolve(staging="st")
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{table.name}', {before})")
    expire_all(spark, table)
    table.resolve(staging="st")
    assert numbers(spark, table) == TAKEN


@pytest.mark.slow
def test_a_rollback_of_the_staging_branch_repeats_nothing(spark: SparkSession) -> None:
    table = staged_table(spark)
    first = loaded(spark, table.name).metadata.refs["st"].snapshot_id
    table.upsert(rows(spark, 6, n=2), "id", branch="st")
    table.resolve(staging="st")
    table.rollback(snapshot_id=first, branch="st")
    assert table.resolve(staging="st").snapshot_id is None
    table.upsert(rows(spark, 0, n=3), "id", branch="st")
    table.resolve(staging="st")
    assert numbers(spark, table) == [(0, 3), *TAKEN[1:], (6, 2)]


@pytest.mark.slow
def test_deletes_by_position_of_rows_of_the_target(spark: SparkSession) -> None:
    table = staged_table(spark)
    table.delete("id = 1", branch="st")
    spark.sql(f"DELETE FROM {table.name} WHERE id = 2")
    report = table.resolve(staging="st", verify="rows")
    assert numbers(spark, table) == [(0, 0), (3, 0), (4, 1), (5, 1)]
    assert "by position" in report.notes[0]


@pytest.mark.slow
def test_a_data_file_that_was_removed_on_the_staging_branch(spark: SparkSession) -> None:
    table = IcebergTable.for_name(spark, new_table(spark))
    table.append(rows(spark, 1))
    table.append(rows(spark, 2))
    table.create_branch("st")
    table.delete("id = 1", branch="st")
    table.append(rows(spark, 3), branch="st")
    table.delete("id = 3", branch="st")
    table.resolve(staging="st", max_snapshots=1)
    assert by_spark(spark, table.name) == [2]


@pytest.mark.slow
def test_deletes_by_position_of_rows_that_have_moved_are_refused(spark: SparkSession) -> None:
    table = staged_table(spark)
    table.delete("id = 1", branch="st")
    table.append(rows(spark, 9))
    table.compact(options={"rewrite-all": True})
    with pytest.raises(PlanError, match="has rewritten or removed it"):
        table.resolve(staging="st")
    assert by_spark(spark, table.name) == [0, 1, 2, 3, 4, 9]


def rewrite_branch(spark: SparkSession, table: IcebergTable, branch: str) -> None:
    """Rewrite all data files of a branch, as a compaction does."""
    own = loaded(spark, table.name)
    rows = spark.sql(f"SELECT * FROM {table.name} VERSION AS OF '{branch}'")
    head = own.metadata.refs[branch].snapshot_id
    rewrite = own.handle.newRewrite().toBranch(branch).validateFromSnapshot(head)
    files = own.handle.newScan().useRef(branch).planFiles().iterator()
    while files.hasNext():
        rewrite.deleteFile(files.next().file())
    view = iceberg_view(spark)
    for text in write_data_files(own, rows.localCheckpoint()).to_pylist():
        node = view.util.JsonUtil.mapper().readTree(text)
        rewrite.addFile(view.ContentFileParser.fromJson(node, own.handle.specs()))
    rewrite.commit()


@pytest.mark.slow
def test_new_files_that_are_rewritten_with_those_of_the_target_are_refused(
    spark: SparkSession,
) -> None:
    table = staged_table(spark)
    rewrite_branch(spark, table, "st")
    with pytest.raises(PlanError, match="was rewritten on branch st"):
        table.resolve(staging="st")
    assert by_spark(spark, table.name) == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_rewrite_of_files_that_were_taken_over_changes_nothing(spark: SparkSession) -> None:
    table = staged_table(spark)
    table.resolve(staging="st")
    rewrite_branch(spark, table, "st")
    assert table.resolve(staging="st").snapshot_id is None
    table.upsert(rows(spark, 0, n=3), "id", branch="st")
    table.resolve(staging="st")
    assert numbers(spark, table) == [(0, 3), *TAKEN[1:]]


@pytest.mark.slow
def test_a_cherry_picked_snapshot_is_refused(spark: SparkSession) -> None:
    table = IcebergTable.for_name(spark, new_table(spark))
    table.append(rows(spark, 1))
    table.append(rows(spark, 2), branch="st")
    staged = loaded(spark, table.name).metadata.refs["st"].snapshot_id
    table.append(rows(spark, 3))
    spark.sql(f"CALL lake.system.cherrypick_snapshot('{table.name}', {staged})")
    with pytest.raises(PlanError, match="cherry-picked"):
        table.resolve(staging="st")
    assert by_spark(spark, table.name) == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("staging", [False, True])
def test_a_branch_that_begins_anew_keeps_its_transactions(
    spark: SparkSession, *, staging: bool
) -> None:
    table = IcebergTable.for_name(spark, new_table(spark))
    table.append(rows(spark, 1))
    table.create_branch("st", staging=staging)
    app = {"txn_app_id": "app", "txn_version": 7}
    table.append(rows(spark, 2), branch="st", **app)  # type: ignore[arg-type]
    table.resolve(staging="st", restart_staging=True)
    assert table.append(rows(spark, 2), branch="st", **app).replayed  # type: ignore[arg-type]
    expire_all(spark, table)
    assert by_spark(spark, table.name) == [1, 2]
    table.upsert(rows(spark, 2, n=5), "id", branch="st")
    table.resolve(staging="st", restart_staging=True)
    assert numbers(spark, table) == [(1, 0), (2, 5)]


@pytest.mark.slow
def test_a_branch_begins_anew_once(spark: SparkSession) -> None:
    table = staged_table(spark, staging=True)
    assert table.resolve(staging="st", restart_staging=True).notes == ("st begins again at main.",)
    before = loaded(spark, table.name).metadata
    idle = table.resolve(staging="st", restart_staging=True)
    assert (idle.snapshot_id, idle.notes) == (None, ())
    assert loaded(spark, table.name).metadata == before
    table.append(rows(spark, 9))
    table.resolve(staging="st", restart_staging=True)
    assert loaded(spark, table.name).metadata.head("st") != before.head("st")
    assert numbers(spark, table) == [*TAKEN, (9, 0)]


@pytest.mark.slow
def test_a_branch_that_is_dropped_meanwhile_is_not_taken_over(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = staged_table(spark)
    commit = branch_commit.commit_change

    def dropped_before(*args: object, **options: object) -> object:
        table.drop_branch("st")
        return commit(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(step, "commit_change", dropped_before)
    with pytest.raises(ConflictError, match="was dropped or moved meanwhile"):
        table.resolve(staging="st")
    assert by_spark(spark, table.name) == [0, 1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("staging", [False, True])
def test_snapshots_of_the_target_that_outlive_newer_ones_are_not_staged(
    spark: SparkSession, *, staging: bool
) -> None:
    table = IcebergTable.for_name(spark, new_table(spark))
    table.append(rows(spark, 1))
    table.append(rows(spark, 2))
    table.create_tag("kept")
    table.create_branch("st", staging=staging)
    table.upsert(rows(spark, 2, 3, n=1), "id", branch="st")
    for each in (7, 8, 9):
        table.append(rows(spark, each))
    expire_all(spark, table)  # what the tag names stays, and is an ancestor of main no one can see
    if staging:
        table.resolve(staging="st")
        assert numbers(spark, table) == [(1, 0), (2, 1), (3, 1), (7, 0), (8, 0), (9, 0)]
    else:
        with pytest.raises(PlanError, match="is not known"):
            table.resolve(staging="st")
        assert by_spark(spark, table.name) == [1, 2, 7, 8, 9]


@pytest.mark.slow
def test_progress_whose_snapshot_outlives_newer_ones(spark: SparkSession) -> None:
    table = staged_table(spark)
    table.resolve(staging="st")
    table.create_tag("resolved")
    for each in (7, 8):
        table.append(rows(spark, each))
    expire_all(spark, table)
    assert table.resolve(staging="st").snapshot_id is None
    assert numbers(spark, table) == [*TAKEN, (7, 0), (8, 0)]


@pytest.mark.slow
def test_a_transaction_whose_snapshot_outlives_newer_ones(spark: SparkSession) -> None:
    table = IcebergTable.for_name(spark, new_table(spark))
    table.append(rows(spark, 1))
    table.append(rows(spark, 2), txn_app_id="app", txn_version=7)
    table.create_tag("kept")
    for each in (7, 8):
        table.append(rows(spark, each))
    expire_all(spark, table)
    assert table.append(rows(spark, 2), txn_app_id="app", txn_version=7).replayed
    assert by_spark(spark, table.name) == [1, 2, 7, 8]


@pytest.mark.slow
def test_a_commit_that_was_rolled_back_does_not_come_back_by_a_branch_made_from_it(
    spark: SparkSession,
) -> None:
    table = IcebergTable.for_name(spark, new_table(spark))
    table.append(rows(spark, 1))
    first = loaded(spark, table.name).metadata.refs["main"].snapshot_id
    table.append(rows(spark, 2))
    table.create_branch("st", staging=True)
    table.rollback(snapshot_id=first)
    table.upsert(rows(spark, 3), "id", branch="st")
    table.resolve(staging="st")
    assert by_spark(spark, table.name) == [1, 3]


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_deletes_by_position_of_a_file_that_is_then_rewritten(
    spark: SparkSession, version: int
) -> None:
    table = IcebergTable.for_name(spark, new_table(spark, version=version))
    table.append(rows(spark, *range(4)))
    table.create_branch("st")
    table.delete("id = 1", branch="st")
    rewrite_branch(spark, table, "st")
    table.upsert(rows(spark, 9), "id", branch="st")
    table.resolve(staging="st")
    assert by_spark(spark, table.name) == [0, 2, 3, 9]


@pytest.mark.slow
def test_a_file_that_the_target_has_removed_as_empty_may_be_removed(spark: SparkSession) -> None:
    table = IcebergTable.for_name(spark, new_table(spark))
    table.append(rows(spark, 1))
    table.append(rows(spark, 2))
    table.delete_keys([1], "id", branch="st")
    table.append(rows(spark, 5), branch="st")
    table.delete_keys([5], "id", branch="st")
    table.resolve(staging="st")
    assert by_spark(spark, table.name) == [2]
    table.resolve(target="st")  # removes the files there, too
    table.upsert(rows(spark, 3), "id", branch="st")
    table.resolve(staging="st")
    assert by_spark(spark, table.name) == [2, 3]


@pytest.mark.slow
def test_a_cherry_pick_that_has_expired_is_noticed(spark: SparkSession) -> None:
    table = IcebergTable.for_name(spark, new_table(spark))
    table.append(rows(spark, 1))
    table.append(rows(spark, 2), branch="st")
    staged = loaded(spark, table.name).metadata.refs["st"].snapshot_id
    table.append(rows(spark, 3))
    spark.sql(f"CALL lake.system.cherrypick_snapshot('{table.name}', {staged})")
    table.append(rows(spark, 4))
    expire_all(spark, table)
    with pytest.raises(PlanError):
        table.resolve(staging="st")
    assert by_spark(spark, table.name) == [1, 2, 3, 4]


@pytest.mark.slow
def test_rows_that_are_appended_during_a_verification(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = IcebergTable.for_name(spark, new_table(spark))
    table.append(rows(spark, 1, 2))
    table.delete_keys([1], "id")
    commit = branch_commit.commit_change

    def appended_before(*args: object, **options: object) -> object:
        table.append(rows(spark, 3))
        return commit(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(step, "commit_change", appended_before)
    table.resolve(verify="rows")
    assert by_spark(spark, table.name) == [2, 3]


@pytest.mark.slow
def test_a_target_without_snapshots(spark: SparkSession) -> None:
    table = IcebergTable.for_name(spark, new_table(spark))
    table.create_branch("st", staging=True)
    table.upsert(rows(spark, 1, 2), "id", branch="st")
    table.upsert(rows(spark, 2, n=1), "id", branch="st")
    table.resolve(staging="st", verify="rows")
    assert numbers(spark, table) == [(1, 0), (2, 1)]


@pytest.mark.more
def test_bad_arguments(spark: SparkSession) -> None:
    table = staged_table(spark)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: table.resolve(staging="nowhere"), "no branch"),
        (lambda: table.resolve(staging="main"), "staged for itself"),
        (lambda: table.resolve(target="nowhere"), "no branch"),
        (lambda: table.resolve("nothing", staging="st"), "nothing"),
        (lambda: table.resolve(index="hash"), "index is 'hash'"),  # type: ignore[arg-type]
        (lambda: table.resolve(verify="all"), "verify is 'all'"),  # type: ignore[arg-type]
        (lambda: table.resolve(unique_keys=True), "key columns"),
        (lambda: table.resolve(max_snapshots=0), "1 or more"),
        (lambda: table.resolve(restart_staging=True), "needs the staging branch"),
    ]
    for call, match in calls:
        with pytest.raises(InvalidArgumentError, match=match):
            call()
