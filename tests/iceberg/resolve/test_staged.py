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
from tests.iceberg.deletes.tables import by_spark, deletes_of, open_new

pytestmark = pytest.mark.spark

COLUMNS = "id bigint, n int, s string"


def rows(table: IcebergTable, *ids: int, n: int = 0) -> DataFrame:
    values = [(each, n, f"s{each}") for each in ids]
    return table.spark.createDataFrame(values, COLUMNS)


def staged_table(spark: SparkSession, *, staging: bool = False, version: int = 3) -> IcebergTable:
    """Return a table of keys 0 to 4, with a branch that has 4 updated and 5 added."""
    table = open_new(spark, COLUMNS, version=version)
    table.append(rows(table, *range(5)))
    if staging:
        table.create_branch("st", staging=True)
    table.upsert(rows(table, 4, 5, n=1), "id", branch="st")
    return table


@pytest.fixture
def table(spark: SparkSession) -> IcebergTable:
    return staged_table(spark)


@pytest.fixture
def empty(spark: SparkSession) -> IcebergTable:
    return open_new(spark, COLUMNS)


def expire_all(table: IcebergTable) -> None:
    table.spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{table.name}', retain_last => 1,"
        " older_than => TIMESTAMP '2999-01-01 00:00:00')"
    )


def numbers(table: IcebergTable) -> list[tuple[object, object]]:
    table.spark.catalog.refreshTable(table.name)
    found = table.spark.table(table.name).select("id", "n").collect()
    return sorted((row["id"], row["n"]) for row in found)


def ids(table: IcebergTable) -> list[object]:
    return by_spark(table.spark, table.name)


TAKEN = [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("staging", [False, True])
def test_the_fork_has_expired(spark: SparkSession, *, staging: bool) -> None:
    table = staged_table(spark, staging=staging)
    table.append(rows(table, 9))
    if staging:  # the files before the fork may be gone
        table.compact(options={"rewrite-all": True})
    expire_all(table)
    assert table.resolve(staging="st").staged_snapshots == 1
    assert numbers(table) == [*TAKEN, (9, 0)]


@pytest.mark.slow
def test_a_snapshot_that_expired_unread_is_refused(table: IcebergTable) -> None:
    table.upsert(rows(table, 6), "id", branch="st")
    expire_all(table)
    with pytest.raises(PlanError, match="has expired before it was taken over"):
        table.resolve(staging="st")
    assert ids(table) == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_snapshots_that_expired_after_a_resolve_are_read_from_the_newest(
    table: IcebergTable,
) -> None:
    table.resolve(staging="st")
    table.upsert(rows(table, 0, 6, n=2), "id", branch="st")
    table.delete_keys([5], "id", branch="st")
    table.upsert(rows(table, 6, n=3), "id", branch="st")
    table.append(rows(table, 9))
    expire_all(table)
    table.resolve(staging="st", verify="rows")
    assert numbers(table) == [(0, 2), (1, 0), (2, 0), (3, 0), (4, 1), (6, 3), (9, 0)]
    assert [content for content, _, _ in deletes_of(table.spark, table.name)].count(2) == 0
    assert table.resolve(staging="st").snapshot_id is None


@pytest.mark.slow
@pytest.mark.parametrize("tagged", [False, True])
def test_progress_outlives_its_snapshot(table: IcebergTable, *, tagged: bool) -> None:
    table.resolve(staging="st")
    if tagged:  # it outlives newer ones
        table.create_tag("resolved")
    for each in (8, 9):
        table.append(rows(table, each))
    expire_all(table)
    assert read_progress(table._load().metadata, "main", "st") is not None
    assert table.resolve(staging="st").snapshot_id is None
    assert numbers(table) == [*TAKEN, (8, 0), (9, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("by", ["delvec", "stock Iceberg"])
def test_a_rollback_of_the_target_takes_progress_back(table: IcebergTable, by: str) -> None:
    before = table._load().metadata.refs["main"].snapshot_id
    table.resolve(staging="st")
    if by == "delvec":
        table.rollback(snapshot_id=before)
    else:
        table.spark.sql(f"CALL lake.system.rollback_to_snapshot('{table.name}', {before})")
    assert ids(table) == [0, 1, 2, 3, 4]
    expire_all(table)  # the snapshot that took the changes over is gone for good
    table.resolve(staging="st")
    assert numbers(table) == TAKEN


@pytest.mark.slow
def test_a_rollback_of_the_staging_branch_repeats_nothing(table: IcebergTable) -> None:
    first = table._load().metadata.refs["st"].snapshot_id
    table.upsert(rows(table, 6, n=2), "id", branch="st")
    table.resolve(staging="st")
    table.rollback(snapshot_id=first, branch="st")
    assert table.resolve(staging="st").snapshot_id is None
    table.upsert(rows(table, 0, n=3), "id", branch="st")
    table.resolve(staging="st")
    assert numbers(table) == [(0, 3), *TAKEN[1:], (6, 2)]


@pytest.mark.slow
def test_deletes_by_position_of_rows_of_the_target(table: IcebergTable) -> None:
    table.delete("id = 1", branch="st")
    table.spark.sql(f"DELETE FROM {table.name} WHERE id = 2")
    report = table.resolve(staging="st", verify="rows")
    assert numbers(table) == [(0, 0), (3, 0), (4, 1), (5, 1)]
    assert "by position" in report.notes[0]


@pytest.mark.slow
def test_a_data_file_that_was_removed_on_the_staging_branch(empty: IcebergTable) -> None:
    empty.append(rows(empty, 1))
    empty.append(rows(empty, 2))
    empty.create_branch("st")
    empty.delete("id = 1", branch="st")
    empty.append(rows(empty, 3), branch="st")
    empty.delete("id = 3", branch="st")
    empty.resolve(staging="st", max_snapshots=1)
    assert ids(empty) == [2]


@pytest.mark.slow
def test_deletes_by_position_of_rows_that_have_moved_are_refused(table: IcebergTable) -> None:
    table.delete("id = 1", branch="st")
    table.append(rows(table, 9))
    table.compact(options={"rewrite-all": True})
    with pytest.raises(PlanError, match="has rewritten or removed it"):
        table.resolve(staging="st")
    assert ids(table) == [0, 1, 2, 3, 4, 9]


def rewrite_branch(table: IcebergTable, branch: str) -> None:
    """Rewrite all data files of a branch, as a compaction does."""
    own = table._load()
    rows = table.spark.sql(f"SELECT * FROM {table.name} VERSION AS OF '{branch}'")
    head = own.metadata.refs[branch].snapshot_id
    rewrite = own.handle.newRewrite().toBranch(branch).validateFromSnapshot(head)
    files = own.handle.newScan().useRef(branch).planFiles().iterator()
    while files.hasNext():
        rewrite.deleteFile(files.next().file())
    view = iceberg_view(table.spark)
    for text in write_data_files(own, rows.localCheckpoint()).to_pylist():
        node = view.util.JsonUtil.mapper().readTree(text)
        rewrite.addFile(view.ContentFileParser.fromJson(node, own.handle.specs()))
    rewrite.commit()


@pytest.mark.slow
def test_new_files_that_are_rewritten_with_those_of_the_target_are_refused(
    table: IcebergTable,
) -> None:
    rewrite_branch(table, "st")
    with pytest.raises(PlanError, match="was rewritten on branch st"):
        table.resolve(staging="st")
    assert ids(table) == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_rewrite_of_files_that_were_taken_over_changes_nothing(table: IcebergTable) -> None:
    table.resolve(staging="st")
    rewrite_branch(table, "st")
    assert table.resolve(staging="st").snapshot_id is None
    table.upsert(rows(table, 0, n=3), "id", branch="st")
    table.resolve(staging="st")
    assert numbers(table) == [(0, 3), *TAKEN[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("expired", [False, True])
def test_a_cherry_picked_snapshot_is_refused(empty: IcebergTable, *, expired: bool) -> None:
    empty.append(rows(empty, 1))
    empty.append(rows(empty, 2), branch="st")
    staged = empty._load().metadata.refs["st"].snapshot_id
    empty.append(rows(empty, 3))
    empty.spark.sql(f"CALL lake.system.cherrypick_snapshot('{empty.name}', {staged})")
    if expired:
        empty.append(rows(empty, 4))
        expire_all(empty)
    with pytest.raises(PlanError, match=None if expired else "cherry-picked"):
        empty.resolve(staging="st")
    assert ids(empty) == [1, 2, 3, 4][: 3 + expired]


@pytest.mark.slow
@pytest.mark.parametrize("staging", [False, True])
def test_a_branch_that_begins_anew_keeps_its_transactions(
    empty: IcebergTable, *, staging: bool
) -> None:
    empty.append(rows(empty, 1))
    empty.create_branch("st", staging=staging)
    app = {"txn_app_id": "app", "txn_version": 7}
    empty.append(rows(empty, 2), branch="st", **app)  # type: ignore[arg-type]
    empty.resolve(staging="st", restart_staging=True)
    assert empty.append(rows(empty, 2), branch="st", **app).replayed  # type: ignore[arg-type]
    expire_all(empty)
    assert ids(empty) == [1, 2]
    empty.upsert(rows(empty, 2, n=5), "id", branch="st")
    empty.resolve(staging="st", restart_staging=True)
    assert numbers(empty) == [(1, 0), (2, 5)]


@pytest.mark.slow
def test_a_branch_begins_anew_once(spark: SparkSession) -> None:
    table = staged_table(spark, staging=True)
    assert table.resolve(staging="st", restart_staging=True).notes == ("st begins again at main.",)
    before = table._load().metadata
    idle = table.resolve(staging="st", restart_staging=True)
    assert (idle.snapshot_id, idle.notes) == (None, ())
    assert table._load().metadata == before
    table.append(rows(table, 9))
    table.resolve(staging="st", restart_staging=True)
    assert table._load().metadata.head("st") != before.head("st")
    assert numbers(table) == [*TAKEN, (9, 0)]


@pytest.mark.slow
def test_a_branch_that_is_dropped_meanwhile_is_not_taken_over(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = branch_commit.commit_change

    def dropped_before(*args: object, **options: object) -> object:
        table.drop_branch("st")
        return commit(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(step, "commit_change", dropped_before)
    with pytest.raises(ConflictError, match="was dropped or moved meanwhile"):
        table.resolve(staging="st")
    assert ids(table) == [0, 1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize("staging", [False, True])
def test_snapshots_of_the_target_that_outlive_newer_ones_are_not_staged(
    empty: IcebergTable, *, staging: bool
) -> None:
    empty.append(rows(empty, 1))
    empty.append(rows(empty, 2))
    empty.create_tag("kept")
    empty.create_branch("st", staging=staging)
    empty.upsert(rows(empty, 2, 3, n=1), "id", branch="st")
    for each in (7, 8, 9):
        empty.append(rows(empty, each))
    expire_all(empty)  # what the tag names stays, and is an ancestor of main no one can see
    if staging:
        empty.resolve(staging="st")
        assert numbers(empty) == [(1, 0), (2, 1), (3, 1), (7, 0), (8, 0), (9, 0)]
    else:
        with pytest.raises(PlanError, match="is not known"):
            empty.resolve(staging="st")
        assert ids(empty) == [1, 2, 7, 8, 9]


@pytest.mark.slow
def test_a_transaction_whose_snapshot_outlives_newer_ones(empty: IcebergTable) -> None:
    empty.append(rows(empty, 1))
    empty.append(rows(empty, 2), txn_app_id="app", txn_version=7)
    empty.create_tag("kept")
    for each in (7, 8):
        empty.append(rows(empty, each))
    expire_all(empty)
    assert empty.append(rows(empty, 2), txn_app_id="app", txn_version=7).replayed
    assert ids(empty) == [1, 2, 7, 8]


@pytest.mark.slow
def test_a_commit_that_was_rolled_back_does_not_come_back_by_a_branch_made_from_it(
    empty: IcebergTable,
) -> None:
    empty.append(rows(empty, 1))
    first = empty._load().metadata.refs["main"].snapshot_id
    empty.append(rows(empty, 2))
    empty.create_branch("st", staging=True)
    empty.rollback(snapshot_id=first)
    empty.upsert(rows(empty, 3), "id", branch="st")
    empty.resolve(staging="st")
    assert ids(empty) == [1, 3]


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_deletes_by_position_of_a_file_that_is_then_rewritten(
    spark: SparkSession, version: int
) -> None:
    table = open_new(spark, COLUMNS, version=version)
    table.append(rows(table, *range(4)))
    table.create_branch("st")
    table.delete("id = 1", branch="st")
    rewrite_branch(table, "st")
    table.upsert(rows(table, 9), "id", branch="st")
    table.resolve(staging="st")
    assert ids(table) == [0, 2, 3, 9]


@pytest.mark.slow
def test_a_file_that_the_target_has_removed_as_empty_may_be_removed(empty: IcebergTable) -> None:
    empty.append(rows(empty, 1))
    empty.append(rows(empty, 2))
    empty.delete_keys([1], "id", branch="st")
    empty.append(rows(empty, 5), branch="st")
    empty.delete_keys([5], "id", branch="st")
    empty.resolve(staging="st")
    assert ids(empty) == [2]
    empty.resolve(target="st")  # removes the files there, too
    empty.upsert(rows(empty, 3), "id", branch="st")
    empty.resolve(staging="st")
    assert ids(empty) == [2, 3]


@pytest.mark.slow
def test_rows_that_are_appended_during_a_verification(
    empty: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty.append(rows(empty, 1, 2))
    empty.delete_keys([1], "id")
    commit = branch_commit.commit_change

    def appended_before(*args: object, **options: object) -> object:
        empty.append(rows(empty, 3))
        return commit(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(step, "commit_change", appended_before)
    empty.resolve(verify="rows")
    assert ids(empty) == [2, 3]


@pytest.mark.slow
def test_a_target_without_snapshots(empty: IcebergTable) -> None:
    empty.create_branch("st", staging=True)
    empty.upsert(rows(empty, 1, 2), "id", branch="st")
    empty.upsert(rows(empty, 2, n=1), "id", branch="st")
    empty.resolve(staging="st", verify="rows")
    assert numbers(empty) == [(1, 0), (2, 1)]


@pytest.mark.more
def test_bad_arguments(table: IcebergTable) -> None:
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
