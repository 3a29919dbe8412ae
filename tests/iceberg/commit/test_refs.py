"""Branches and tags: what stock Iceberg says of them, races, and marks of staging branches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec.documents import time_ms
from delvec.errors import ConflictError, InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import LoadedTable, load_table
from delvec.iceberg.client.metadata import IcebergSnapshot, Ref, TableMetadata, find_snapshot
from delvec.iceberg.commit import refs
from delvec.iceberg.commit.marks import STAGING_SUMMARY, after_rollback, is_staging, txn_properties
from delvec.iceberg.commit.refs import (
    create_branch,
    create_tag,
    drop_branch,
    drop_tag,
    fast_forward,
    keep_staging_marks,
    rollback,
)
from delvec.iceberg.table import IcebergTable
from tests.conversion.targets import before, branches, ids, numbered
from tests.iceberg.deletes.tables import loaded, new_table

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]


def empty(spark: SparkSession, catalog: str = "lake") -> LoadedTable:
    return loaded(spark, new_table(spark, "id BIGINT", catalog=catalog))


@pytest.fixture(params=["lake", "sqlite"])
def table(spark: SparkSession, request: pytest.FixtureRequest) -> LoadedTable:
    """A table of two commits: 1, then 2."""
    made = empty(spark, request.param)
    for number in (1, 2):
        insert(made, number)
    return load_table(spark, made.name)


def insert(table: LoadedTable, number: int, branch: str = "main") -> None:
    to = "" if branch == "main" else f".branch_{branch}"
    table.spark.sql(f"INSERT INTO {table.name}{to} VALUES ({number})")


def at(table: LoadedTable, ref: str) -> list[int]:
    table.spark.catalog.refreshTable(str(table.name))
    rows = table.spark.sql(f"SELECT id FROM {table.name} VERSION AS OF '{ref}'").toArrow()
    return sorted(rows["id"].to_pylist())


def newest(table: LoadedTable) -> TableMetadata:
    return load_table(table.spark, table.name).metadata


def chain(table: LoadedTable, branch: str = "main") -> list[int]:
    """The snapshots of a branch, oldest first."""
    return [each.id for each in newest(table).ancestors(branch)][::-1]


def test_a_branch_begins_where_it_is_told_and_a_tag_stays_there(table: LoadedTable) -> None:
    first, second = chain(table)
    made = create_branch(table, "audit")
    assert made.metadata.refs["audit"].snapshot_id == second
    create_branch(table, "old", snapshot_id=first)
    create_tag(table, "before", snapshot_id=first)
    create_tag(table, "v2")
    insert(table, 3, "audit")
    insert(table, 4)
    found = [at(table, each) for each in ("audit", "old", "main", "before", "v2")]
    assert found == [[1, 2, 3], [1], [1, 2, 4], [1], [1, 2]]
    assert set(drop_tag(table, "v2").metadata.refs) == {"main", "audit", "old", "before"}
    gone = drop_branch(table, "old")
    expected = {"main", "audit", "before"}
    assert set(gone.metadata.refs) == expected == branches(table.spark, str(table.name))
    for act, name, more, match, hint in REFUSED:
        with pytest.raises(InvalidArgumentError, match=match) as refused:
            act(table, name, **more)
        assert hint in (refused.value.hint, None)
    assert set(newest(table).refs) == expected


# Calls on a table with the branches main and audit and the tag before; a message and a hint.
REFUSED: tuple[tuple[Any, str, dict[str, Any], str, str | None], ...] = (
    (create_branch, "audit", {}, "has a branch 'audit' already", None),
    (create_branch, "audit", {"dry_run": True}, "has a branch 'audit' already", None),
    (create_branch, "main", {}, "has a branch 'main' already", None),
    (create_branch, " ", {}, "must not be empty", None),
    (create_branch, "other", {"snapshot_id": 17}, "has no snapshot 17", None),
    (create_tag, "before", {}, "has a tag 'before' already", None),
    (drop_branch, "main", {}, "cannot be dropped", None),
    (drop_branch, "adit", {}, "has no branch 'adit'", "did you mean audit?"),
    (drop_branch, "before", {}, "is a tag, not a branch", None),
    (drop_tag, "audit", {}, "is a branch, not a tag", None),
    (drop_tag, "x", {}, "has no tag 'x'", "there is before"),
)


@pytest.mark.more
@pytest.mark.parametrize("staging", [False, True])
def test_a_table_without_snapshots_gets_a_branch(spark: SparkSession, *, staging: bool) -> None:
    table = empty(spark)
    handle = IcebergTable.for_name(spark, str(table.name))
    assert handle.create_branch("b", staging=staging, dry_run=True) == -1
    made = create_branch(table, "b", staging=staging)
    assert is_staging(made.metadata, "b") is staging
    assert "main" not in made.metadata.refs
    insert(table, 7, "b")
    assert (at(table, "b"), ids(spark, str(table.name))) == ([7], [])
    with pytest.raises(InvalidArgumentError, match="no snapshot that a tag could name"):
        create_tag(table, "t")
    if not staging:
        assert fast_forward(table, "main", "b").metadata.refs.keys() == {"main", "b"}
        assert ids(spark, str(table.name)) == [7]


@pytest.mark.more
def test_a_dry_run_checks_everything_and_changes_nothing(table: LoadedTable) -> None:
    first, second = chain(table)
    create_branch(table, "old", snapshot_id=first)
    create_tag(table, "named")
    before_all, files = newest(table), set(Path(table.metadata.location).rglob("*"))
    tried = (
        create_branch(table, "audit", snapshot_id=first, dry_run=True).metadata.refs["audit"],
        create_tag(table, "other", dry_run=True).metadata.refs["other"],
        fast_forward(table, "old", "main", dry_run=True).metadata.refs["old"],
        rollback(table, snapshot_id=first, dry_run=True).metadata.refs["main"],
    )
    assert [each.snapshot_id for each in tried] == [first, second, second, first]
    staged = create_branch(table, "s", staging=True, dry_run=True).metadata
    assert (staged.refs["s"].snapshot_id, staged.snapshots) == (second, before_all.snapshots)
    assert "old" not in drop_branch(table, "old", dry_run=True).metadata.refs
    assert "named" not in drop_tag(table, "named", dry_run=True).metadata.refs
    assert newest(table) == before_all
    if table.name.catalog == "lake":
        assert set(Path(table.metadata.location).rglob("*")) == files


@pytest.mark.more
def test_a_dry_run_leaves_new_commits(table: LoadedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = load_table(table.spark, table.name)
    monkeypatch.setattr(refs, "reload_table", lambda _: stale)
    insert(table, 3)
    create_tag(table, "t", dry_run=True)
    create_branch(table, "s", staging=True, dry_run=True)
    with pytest.raises(InvalidArgumentError):
        drop_tag(table, "none", dry_run=True)
    assert at(table, "main") == [1, 2, 3]


def test_a_branch_moves_forward_only(table: LoadedTable) -> None:
    create_branch(table, "audit")
    insert(table, 3, "audit")
    moved = fast_forward(table, "main", "audit")
    assert ids(table.spark, str(table.name)) == [1, 2, 3]
    with numbered() as calls:  # it is there already
        fast_forward(table, "main", "audit")
    assert (calls.names, moved.metadata.refs["main"]) == ([], moved.metadata.refs["audit"])
    insert(table, 4)
    insert(table, 5, "audit")
    for branch, to in (("main", "audit"), ("audit", "main")):
        with pytest.raises(PlanError, match="cannot be moved forward"):
            fast_forward(table, branch, to)
    with pytest.raises(InvalidArgumentError, match="no branch or tag 'adit'") as refused:
        fast_forward(table, "main", "adit")
    assert refused.value.hint == "did you mean audit?"
    with pytest.raises(InvalidArgumentError, match="has no branch 'mian'"):
        fast_forward(table, "mian", "audit")


@pytest.mark.more
@pytest.mark.parametrize("branch", ["main", "audit"])
def test_a_branch_goes_back_to_its_own_snapshots(table: LoadedTable, branch: str) -> None:
    create_branch(table, "audit")
    insert(table, 3, branch)
    insert(table, 9, "audit" if branch == "main" else "main")
    first, second, _ = chain(table, branch)
    with pytest.raises(PlanError, match=f"does not belong to branch {branch}"):
        rollback(
            table, branch, snapshot_id=chain(table, "audit" if branch == "main" else "main")[2]
        )
    rollback(table, branch, snapshot_id=second)
    assert at(table, branch) == [1, 2]
    moment = datetime.fromtimestamp(
        newest(table).snapshots[first].timestamp_ms / 1000, timezone.utc
    )
    rollback(table, branch, timestamp=moment)
    assert at(table, branch) == [1]
    with pytest.raises(InvalidArgumentError, match="no snapshot as old as 2001"):
        rollback(table, branch, timestamp="2001-01-01")
    for both in ({}, {"snapshot_id": first, "timestamp": "2001-01-01"}):
        arguments: dict[str, Any] = both
        with pytest.raises(InvalidArgumentError, match="name one of them"):
            rollback(table, branch, **arguments)
    insert(table, 4, branch)
    assert at(table, branch) == [1, 4]


@pytest.mark.quick_cases(1)
def test_a_lost_race_is_run_again(table: LoadedTable) -> None:
    with numbered({0: before(lambda: insert(table, 3))}) as calls:
        made = create_branch(table, "audit", staging=True)
    assert calls.names == ["commit", "commit"]
    folder = Path(made.metadata.location.removeprefix("file:")) / "metadata"
    lists = {file.name for file in folder.glob("snap-*.avro")}
    assert lists <= made.metadata.file_names  # what the lost race wrote is deleted
    assert (at(table, "audit"), is_staging(made.metadata, "audit")) == ([1, 2, 3], True)
    sql = f"ALTER TABLE {table.name} CREATE BRANCH theirs"
    with (
        numbered({0: before(lambda: table.spark.sql(sql))}),
        pytest.raises(ConflictError, match="has a branch 'theirs' already") as conflict,
    ):
        create_branch(table, "theirs", staging=True)
    assert (conflict.value.attempts, conflict.value.retryable) == (2, False)
    assert not is_staging(newest(table), "theirs")
    every_time = {number: before(lambda: insert(table, 0)) for number in range(5)}
    with numbered(every_time), pytest.raises(ConflictError) as conflict:
        create_tag(table, "v1")
    assert (conflict.value.attempts, conflict.value.retryable) == (5, True)


def test_of_two_that_make_one_branch_one_does(table: LoadedTable) -> None:
    def make(_: int) -> str:
        try:
            create_branch(table, "audit", staging=True)
        except (ConflictError, InvalidArgumentError) as error:
            return type(error).__name__
        return "made"

    with ThreadPoolExecutor(3) as threads:
        results = list(threads.map(make, range(3)))
    assert results.count("made") == 1
    assert is_staging(newest(table), "audit")
    assert len(chain(table, "audit")) == 3


def test_a_staging_branch_is_known_by_its_marks(table: LoadedTable) -> None:
    spark, name = table.spark, table.name
    made = create_branch(table, "staging", staging=True)
    head = made.metadata.head("staging")
    assert head is not None
    assert head.summary[STAGING_SUMMARY] == "staging"
    assert made.metadata.properties["delvec.staging.staging"] == str(head.id)
    assert at(table, "staging") == [1, 2]
    insert(table, 3, "staging")
    assert is_staging(newest(table), "staging")
    assert not is_staging(newest(table), "main")

    spark.sql(f"ALTER TABLE {name} DROP BRANCH staging")
    assert not is_staging(newest(table), "staging")
    spark.sql(f"ALTER TABLE {name} CREATE BRANCH staging")  # the property is still there
    assert not is_staging(newest(table), "staging")
    insert(table, 4, "staging")
    assert not is_staging(newest(table), "staging")
    spark.sql(f"ALTER TABLE {name} DROP BRANCH staging")
    create_branch(table, "staging", snapshot_id=head.id)
    assert "delvec.staging.staging" not in newest(table).properties
    assert not is_staging(newest(table), "staging")
    drop_branch(table, "staging")
    create_branch(table, "staging", staging=True)
    assert "delvec.staging.staging" not in drop_branch(table, "staging").metadata.properties


def test_a_branch_that_others_read_does_not_move_to_a_staging_branch(table: LoadedTable) -> None:
    create_branch(table, "a", staging=True)
    head = newest(table).refs["a"].snapshot_id
    create_branch(table, "b", snapshot_id=head, staging=True)
    insert(table, 3, "b")
    with pytest.raises(PlanError, match="is a staging branch: main") as refused:
        fast_forward(table, "main", "b")
    assert 'resolve(staging="b", target="main")' in str(refused.value.hint)
    fast_forward(table, "a", "b")
    assert at(table, "a") == [1, 2, 3]
    with pytest.raises(PlanError, match="older than the staging branch a"):
        rollback(table, "a", snapshot_id=chain(table)[0])
    rollback(table, "a", snapshot_id=head)
    assert is_staging(newest(table), "a")
    # What others move anyway is not staging any more: everybody reads it.
    table.spark.sql(f"CALL {table.name.catalog}.system.fast_forward('{table.name}', 'main', 'b')")
    assert not is_staging(newest(table), "b")


@pytest.mark.more
def test_marks_outlive_the_expiry_of_the_first_snapshot(table: LoadedTable) -> None:
    create_branch(table, "staging", staging=True)
    with numbered() as calls:
        keep_staging_marks(table)
    assert calls.names == []
    insert(table, 3, "staging")
    keep_staging_marks(table)
    table.spark.sql(
        f"CALL {table.name.catalog}.system.expire_snapshots("
        f"table => '{table.name}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
    )
    assert len(chain(table, "staging")) == 1
    assert is_staging(newest(table), "staging")
    assert at(table, "staging") == [1, 2, 3]


def metadata(
    properties: dict[str, str], *snapshots: IcebergSnapshot, **heads: int
) -> TableMetadata:
    found = {each.id: each for each in snapshots}
    pointers = {name.replace("_", "."): Ref(head, is_branch=True) for name, head in heads.items()}
    return TableMetadata("", "", 3, properties, {}, {}, 0, {}, {}, found, pointers)


def test_transactions_that_are_rolled_back_are_not_known_by_a_property() -> None:
    marks = [{"delvec.txn-app-id": "app", "delvec.txn-version": str(each)} for each in (1, 2)]
    one = IcebergSnapshot(1, None, 1, marks[0], 0)
    two = IcebergSnapshot(2, 1, 2, marks[1], 0)
    three = IcebergSnapshot(3, 2, 3, {}, 0)
    key = "delvec.txn.main.app"
    table = metadata({key: "2@2"}, one, two, three, main=3)
    found = [after_rollback(table, "main", kept) for kept in ([two, one], [one], [])]
    assert found == [{}, {key: "1@1"}, {key: None}]
    assert after_rollback(metadata({key: "0@17"}, three, main=3), "main", []) == {}


def test_properties_of_branches_with_dots_are_told_apart() -> None:
    one = IcebergSnapshot(1, None, 1, {}, 0)
    table = metadata(
        {"delvec.txn.a.app": "1@1", "delvec.txn.a%2Eb.app": "1@1", "delvec.txn.c.app": "1@1"},
        one,
        a=1,
        a_b=1,
    )
    assert txn_properties(table, "a") == {"delvec.txn.a.app": "app"}
    assert txn_properties(table, "a.b") == {"delvec.txn.a%2Eb.app": "app"}


def test_a_snapshot_is_named_once() -> None:
    one = IcebergSnapshot(1, None, 1000, {}, 0)
    two = IcebergSnapshot(2, 1, 2000, {}, 0)
    table = metadata({}, one, two, main=2, old=1)
    assert find_snapshot(table, "t") is two
    assert find_snapshot(table, "t", branch="old") is one
    assert (
        find_snapshot(table, "t", timestamp="1970-01-01 01:00:01.5", time_zone="Etc/GMT-1") is one
    )
    assert find_snapshot(table, "t", branch="main", timestamp="1970-01-01T00:00:02Z") is two
    with pytest.raises(InvalidArgumentError, match="branch and snapshot_id name a snapshot"):
        find_snapshot(table, "t", branch="old", snapshot_id=1)
    for wrong in ("yesterday", "", 17):
        moment: Any = wrong
        with pytest.raises(InvalidArgumentError, match="is no timestamp"):
            time_ms(moment)
