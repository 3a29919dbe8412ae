"""Equality deletes on the branch that they are resolved on, and others who write meanwhile."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.iceberg.deletes.tables import rewrite_data_files
from tests.iceberg.resolve.cases import FORMS, STAGING, Case, Form, forms, minus

pytestmark = pytest.mark.spark


def changed(spark: SparkSession, form: Form) -> Case:
    """A table with rows 0 to 5; row 1 has been replaced, row 3 deleted."""
    case = Case.new(spark, form)
    case.insert(*((number, "a", number) for number in range(6)))
    case.batch((1, "a", 10), minus(3), minus(99), branch="main")
    return case


@pytest.fixture(name="case", params=FORMS)
def changed_table(spark: SparkSession, request: pytest.FixtureRequest) -> Case:
    return changed(spark, request.param)


def test_in_place(case: Case) -> None:
    report = case.resolve(None)
    assert [row[2] for row in case.rows()] == [0, 10, 2, 4, 5]
    assert (report.keys, report.absent, report.rows_deleted) == (3, 1, 2)


def test_a_batch_with_duplicates(case: Case) -> None:
    case.batch((7, "a", 70), (1, "a", 11), (7, "a", 71), (1, "a", 12), branch="main")
    case.batch(minus(7), (8, "a", 80), branch="main")
    expected = case.rows()
    case.resolve(None)
    assert case.rows() == expected
    assert [row[2] for row in expected] == [0, 12, 2, 4, 5, 80]


def test_snapshots_that_wrote_the_deletes_have_expired(case: Case) -> None:
    # Flink's converter walks the history, and never finds these.
    for number in range(3):
        case.batch((number, "a", number + 100), branch="main")
    case.insert((9, "a", 9))
    expected = case.rows()
    catalog, _, rest = case.name.partition(".")
    case.sql(
        f"CALL {catalog}.system.expire_snapshots(table => '{rest}', retain_last => 1,"
        " older_than => TIMESTAMP '2999-01-01 00:00:00')"
    )
    assert len(case.table._load().metadata.snapshots) == 1
    report = case.resolve(None)
    assert case.rows() == expected
    assert report.delete_files == 4


@pytest.mark.slow
@forms("v3 join")
def test_rows_that_are_inserted_again(spark: SparkSession, form: Form) -> None:
    case = changed(spark, form)
    case.insert((3, "b", 30), (1, "b", 11))
    case.batch(minus(1), branch="main")
    case.insert((1, "c", 12))
    case.resolve(None)
    assert case.rows() == [
        *[(0, "a", 0), (1, "c", 12), (2, "a", 2), (3, "b", 30), (4, "a", 4), (5, "a", 5)]
    ]


@forms()
def test_deletes_that_apply_to_nothing(spark: SparkSession, form: Form) -> None:
    # Flink's sink writes a deleted key for each row, of the first batch as well.
    case = Case.new(spark, form)
    case.batch((1, "a", 1), (2, "a", 2), branch="main")
    report = case.resolve(None)
    assert (report.keys, report.absent, report.vectors_added) == (2, 2, 0)
    assert case.rows() == [(1, "a", 1), (2, "a", 2)]


@pytest.mark.parametrize("form", FORMS[:1])  # format 2 has no row ids
def test_rows_keep_their_ids(spark: SparkSession, form: Form) -> None:
    case = changed(spark, form)
    columns = "SELECT id, _row_id, _last_updated_sequence_number FROM {t} ORDER BY id"
    before = case.sql(columns)
    case.resolve(None)
    assert case.sql(columns) == before


@pytest.mark.slow
@pytest.mark.parametrize("how", ["join", "index"])
def test_a_table_that_is_upgraded(spark: SparkSession, how: str) -> None:
    case = changed(spark, (2, "index" if how == "index" else "join"))
    case.resolve(None)
    case.batch((2, "a", 20), (2, "a", 21), branch="main")
    case.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    case.batch((4, "a", 40), (4, "a", 41), branch="main")
    expected = case.rows()
    case.resolve(None)
    assert case.rows() == expected
    assert [row[2] for row in expected] == [0, 10, 21, 41, 5]


def appended(case: Case) -> None:
    case.insert((3, "b", 30), (50, "b", 50))


def upserted(case: Case) -> None:
    case.batch((1, "a", 12), minus(0), (51, "a", 51), branch="main")


def deleted(case: Case) -> None:
    case.sql("DELETE FROM {t} WHERE id IN (4, 1)")


def compacted(case: Case) -> None:
    rewrite_data_files(case.spark, case.name)


ACTIONS = [appended, upserted, deleted, compacted]


@pytest.mark.parametrize("action", ACTIONS)
def test_others_commit_meanwhile(case: Case, action: object) -> None:
    # Each of these makes a cycle of Flink's converter fail.
    assert callable(action)
    report = case.resolve_while(lambda: action(case), None)
    expected = {
        appended: [0, 10, 2, 30, 4, 5, 50],
        upserted: [12, 2, 4, 5, 51],
        deleted: [0, 2, 5],
        compacted: [0, 10, 2, 4, 5],
    }[action]
    assert [row[2] for row in case.rows()] == expected
    if action in {appended, upserted}:
        assert report.conflicts == 0
    case.resolve(None, verify="counts") if action is upserted else case.require_resolved(None)
    assert [row[2] for row in case.rows()] == expected
    assert case.table.check().ok


@pytest.mark.parametrize("action", ACTIONS)
def test_others_commit_to_the_target_meanwhile(case: Case, action: object) -> None:
    assert callable(action)
    case.batch(minus(5), (2, "a", 20), (50, "c", 500))
    case.batch((60, "c", 60), (60, "c", 61))
    case.resolve_while(lambda: action(case))
    # Staged changes are later than all that the target has when they are committed.
    expected = {
        appended: [0, 10, 20, 30, 4, 500, 61],
        upserted: [12, 20, 4, 500, 51, 61],
        deleted: [0, 20, 500, 61],
        compacted: [0, 10, 20, 4, 500, 61],
    }[action]
    assert [row[2] for row in case.rows()] == expected
    case.resolve()
    assert [row[2] for row in case.rows()] == expected
    assert case.table.check().ok


@pytest.mark.slow
@forms("v3 join")
def test_two_resolves_at_once(spark: SparkSession, form: Form) -> None:
    case = changed(spark, form)
    case.batch((2, "a", 20), (2, "a", 21))
    case.batch((7, "a", 7), minus(0))
    expected = case.rows(STAGING)
    case.resolve_while(lambda: case.table.resolve("id", staging=STAGING))
    assert case.rows() == expected
    case.require_resolved()
