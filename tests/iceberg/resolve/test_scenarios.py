"""Staged changes as Flink writes them, taken over by the target; see `cases` for what is checked.

The situations are those of Flink's own tests of its converter, and those that it refuses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec.errors import EngineError, StorageError, VerificationError
from tests.iceberg.deletes.tables import rewrite_data_files
from tests.iceberg.resolve.cases import FORMS, STAGING, Case, Form, forms, minus

pytestmark = pytest.mark.spark

BY_G = "PARTITIONED BY (g)"


@pytest.fixture(params=FORMS)
def case(spark: SparkSession, request: pytest.FixtureRequest) -> Case:
    """An empty table with the key `id`, in both forms."""
    return Case.new(spark, request.param)


@forms("v3 join")
def test_an_upsert(spark: SparkSession, form: Form) -> None:
    case = Case.new(spark, form)
    case.insert((1, "a", 1), (2, "a", 2), (3, "a", 3))
    case.batch((2, "a", 20), (4, "a", 40))
    report = case.take_over()
    assert case.rows() == [(1, "a", 1), (2, "a", 20), (3, "a", 3), (4, "a", 40)]
    assert (report.keys, report.absent, report.rows_deleted, report.rows_added) == (2, 1, 1, 2)
    assert report.strategy == form[1]


@forms()
def test_several_delete_files_in_a_snapshot(spark: SparkSession, form: Form) -> None:
    case = Case.new(spark, form, "id", "g", rest=BY_G)
    case.insert((1, "a", 1), (2, "a", 2), (1, "b", 3), (2, "b", 4))
    case.batch((1, "a", 10), (1, "b", 30), minus(2, "b"))
    report = case.take_over()
    assert case.rows() == [(1, "a", 10), (1, "b", 30), (2, "a", 2)]
    assert report.delete_files == 2


def test_a_key_in_several_files(case: Case) -> None:
    for number in range(3):
        case.insert((1, "a", number), (number + 5, "a", 0))
    case.batch(minus(1))
    report = case.take_over()
    assert case.rows() == [(5, "a", 0), (6, "a", 0), (7, "a", 0)]
    assert (report.keys, report.rows_deleted, report.absent) == (1, 3, 0)


@forms()
@pytest.mark.parametrize("most", [None, 1, 2])
def test_each_snapshot_deletes_earlier_rows_only(
    spark: SparkSession, form: Form, most: int | None
) -> None:
    case = Case.new(spark, form)
    case.insert((1, "a", 1), (2, "a", 2))
    case.batch((1, "a", 10))
    case.batch((1, "a", 11), minus(2))
    case.batch((2, "b", 20))
    case.batch((1, "a", 12), (3, "a", 30))
    metadata = case.table._load().metadata
    staged = [case.rows(each.id) for each in metadata.ancestors(STAGING)]
    report = case.take_over(max_snapshots=most)
    assert case.rows() == [(1, "a", 12), (2, "b", 20), (3, "a", 30)]
    assert (report.commits, report.staged_snapshots) == ({None: 1, 1: 4, 2: 2}[most], 4)
    for each in case.table._load().metadata.ancestors("main"):
        assert case.rows(each.id) in staged


@forms("v2 join")
def test_a_chain_of_changes_of_one_key(spark: SparkSession, form: Form) -> None:
    case = Case.new(spark, form)
    case.insert((1, "a", 1), (9, "a", 9))
    for change in ((2, "a", 1), (2, "a", 2), minus(2), (2, "a", 3), (2, "a", 4)):
        case.batch(change)
    case.take_over()
    assert case.rows() == [(1, "a", 1), (2, "a", 4), (9, "a", 9)]
    case.batch((1, "a", 5), (1, "a", 6), minus(1), (1, "a", 7), (1, "a", 8), minus(9), (2, "b", 0))
    case.take_over()
    assert case.rows() == [(1, "a", 8), (2, "b", 0)]


def test_an_insert_beside_the_delete_of_its_key_survives(case: Case) -> None:
    case.insert((1, "a", 1), (2, "a", 2))
    case.batch((1, "a", 10), minus(2, "a", 2), changelog=True)
    case.batch(minus(1, "a", 10), (1, "a", 11), (2, "a", 20), changelog=True)
    case.take_over()
    assert case.rows() == [(1, "a", 11), (2, "a", 20)]


def test_two_cycles_delete_in_one_data_file(case: Case) -> None:
    case.insert(*((number, "a", number) for number in range(5)))
    case.batch(minus(1))
    case.take_over()
    case.batch(minus(3))
    report = case.take_over()
    assert case.rows() == [(0, "a", 0), (2, "a", 2), (4, "a", 4)]
    assert (report.vectors_added, report.vectors_replaced) == (1, 1)


def test_the_target_is_compacted(case: Case) -> None:
    for number in range(3):
        case.insert((number, "a", number), (number + 10, "a", number))
    case.batch((1, "a", 100))
    case.take_over()
    case.batch(minus(1), (2, "a", 200))
    rewrite_data_files(case.spark, case.name)
    case.take_over()
    case.batch((0, "a", 300), minus(12))
    case.take_over()
    expected = [(0, "a", 300), (2, "a", 200), (10, "a", 0), (11, "a", 1)]
    assert case.rows() == expected
    rewrite_data_files(case.spark, case.name)
    assert case.resolve().snapshot_id is None
    assert case.rows() == expected


@pytest.mark.slow
@forms("v3 join")
def test_a_delete_is_scoped_to_its_partition(spark: SparkSession, form: Form) -> None:
    # The partition column is no key column: Flink's converter refuses this.
    case = Case.new(spark, form, rest=BY_G)
    case.insert((1, "a", 1), (1, "b", 2), (2, "a", 3), (2, "b", 4))
    case.batch((1, "a", 10), minus(2, "b"), (2, "c", 4))
    report = case.take_over()
    # A row that moves to another partition stays in its own, as all readers of the branch have it.
    assert case.rows() == [(1, "a", 10), (1, "b", 2), (2, "a", 3), (2, "c", 4)]
    assert report.rows_deleted == 2


@forms()
def test_a_delete_of_all_partitions(spark: SparkSession, form: Form) -> None:
    case = Case.new(spark, form, rest=BY_G)
    case.insert((1, "a", 1), (1, "b", 2), (2, "b", 3))
    case.table._load().handle.updateSpec().removeField("g").commit()
    case.batch(minus(1), (3, "c", 4))
    case.take_over()
    assert case.rows() == [(2, "b", 3), (3, "c", 4)]
    case.batch(minus(2), minus(3))
    case.take_over()
    assert case.rows() == []


def test_a_delete_of_a_partition_spares_files_of_another_spec(case: Case) -> None:
    case.insert((1, "a", 1))
    case.table._load().handle.updateSpec().addField("g").commit()
    case.insert((1, "a", 2), (1, "b", 3))
    case.batch(minus(1, "a"))
    case.take_over()
    assert case.rows() == [(1, "a", 1), (1, "b", 3)]


@pytest.mark.slow
@forms("v2 join")
def test_deletes_by_position_inside_a_batch_are_carried(spark: SparkSession, form: Form) -> None:
    # On v2 these are position-delete files: Flink's converter refuses them.
    case = Case.new(spark, form)
    case.insert((1, "a", 1), (2, "a", 2))
    case.batch((1, "a", 10), (5, "a", 50), (1, "a", 11), (5, "a", 51), (6, "a", 60))
    case.batch((6, "a", 61), (7, "a", 70), minus(7), (6, "a", 62))
    case.batch((8, "a", 80), (8, "a", 81))
    found = case.sql("SELECT content, file_format FROM {t}.delete_files VERSION AS OF 'staging'")
    by_position = (1, "PARQUET" if form[0] == 2 else "PUFFIN")  # as Flink's sink writes them
    assert sorted(found) == [by_position] * 3 + [(2, "PARQUET")] * 3
    case.take_over()
    assert case.rows() == [(1, "a", 11), (2, "a", 2), (5, "a", 51), (6, "a", 62), (8, "a", 81)]
    case.batch(minus(5), minus(1))
    report = case.take_over()
    assert case.rows() == [(2, "a", 2), (6, "a", 62), (8, "a", 81)]
    assert report.absent == 0


def test_staged_rows_without_deletes(case: Case) -> None:
    case.insert((1, "a", 1))
    case.table.create_branch(STAGING)
    case.insert((2, "a", 2), branch=STAGING)
    case.batch((3, "a", 3), changelog=True)
    report = case.take_over()
    assert case.rows() == [(1, "a", 1), (2, "a", 2), (3, "a", 3)]
    assert (report.keys, report.rows_added) == (0, 2)


def test_rows_that_others_appended_to_the_target(case: Case) -> None:
    case.insert((1, "a", 1))
    case.batch((2, "a", 2))
    case.insert((8, "b", 8), (9, "b", 9))
    case.batch(minus(9), (1, "a", 10))
    case.resolve()
    assert case.rows() == [(1, "a", 10), (2, "a", 2), (8, "b", 8)]
    case.insert((2, "b", 20))
    case.batch(minus(2))
    case.resolve()
    assert case.rows() == [(1, "a", 10), (8, "b", 8)]


@forms()
def test_keys_of_a_file_that_is_gone_are_absent(spark: SparkSession, form: Form) -> None:
    case = Case.new(spark, form, rest=BY_G)
    case.insert((1, "a", 1), (2, "b", 2))
    case.batch((3, "b", 3))
    case.take_over()
    case.sql("DELETE FROM {t} WHERE g = 'a'")
    case.batch(minus(1, "a"), minus(2, "b"), minus(77, "b"))
    report = case.resolve()
    assert case.rows() == [(3, "b", 3)]
    assert (report.keys, report.absent) == (3, 2)


def test_null_keys(case: Case) -> None:
    case.insert((1, "a", 1), (None, "a", 2), (None, "b", 3))
    case.batch((None, "c", 4), (2, "a", 5))
    report = case.take_over()
    assert case.rows() == [(None, "c", 4), (1, "a", 1), (2, "a", 5)]
    assert report.rows_deleted == 2


@forms()
def test_composite_keys_with_nulls(spark: SparkSession, form: Form) -> None:
    case = Case.new(spark, form, "id", "g")
    case.insert((1, "a", 1), (1, None, 2), (None, "a", 3), (None, None, 4), (2, "a", 5))
    case.batch((1, None, 20), minus(None, "a"), minus(None, None), minus(2, None))
    report = case.take_over()
    assert case.rows() == [(1, None, 20), (1, "a", 1), (2, "a", 5)]
    assert (report.keys, report.absent) == (4, 1)


@forms()
@pytest.mark.parametrize(
    ("kind", "first", "changed"),
    [
        ("string", "''", "x'y"),
        ("int", "-7", 7),
        ("decimal(9,2)", "-1.50", "1.50"),
        ("boolean", "false", True),
    ],
)
def test_types_of_keys(
    spark: SparkSession, form: Form, kind: str, first: str, changed: object
) -> None:
    case = Case.new(spark, form, columns=f"id {kind}, v int")
    case.sql(f"INSERT INTO {{t}} SELECT CAST({first} AS {kind}), 1")
    case.batch((changed, 2))
    case.batch((changed, 3))
    case.take_over()
    assert sorted(value for _, value in case.rows()) == [1, 3]


def test_deletes_of_two_sets_of_key_columns(case: Case) -> None:
    # Flink's converter knows one set.
    case.insert(*((number, "ab"[number % 2], number) for number in range(6)))
    case.by("g", "v").batch(minus(0, "b", 3), minus(0, "a", 5))
    case.batch((1, "b", 10))
    case.by("v").batch((7, "a", 4))
    report = case.take_over()
    assert case.rows() == [(0, "a", 0), (1, "b", 10), (2, "a", 2), (5, "b", 5), (7, "a", 4)]
    assert (report.delete_files, report.rows_deleted) == (3, 3)


def test_keys_that_the_index_was_not_built_for(case: Case) -> None:
    case.insert((1, "a", 1), (1, "b", 2), (2, "a", 3))
    case.batch(minus(2))
    case.take_over()
    case = case.by("id", "g")
    case.batch((1, "b", 20))
    case.take_over()
    assert case.rows() == [(1, "a", 1), (1, "b", 20)]
    case = case.by("id")
    case.batch(minus(1))
    case.take_over()
    assert case.rows() == []


@forms()
def test_a_key_column_is_renamed_and_widened(spark: SparkSession, form: Form) -> None:
    case = Case.new(spark, form, columns="id int, g string, v int")
    case.insert((1, "a", 1), (2, "a", 2))
    case.batch((1, "a", 10))
    if form[1] == "index":
        case.table.build_index("id")
    case.sql("ALTER TABLE {t} RENAME COLUMN id TO number")
    case.sql("ALTER TABLE {t} ALTER COLUMN number TYPE bigint")
    case = Case(case.table, form, ("number",), ("number", "g", "v"))
    case.batch(minus(2), (1 << 40, "a", 3))
    case.take_over()
    assert case.rows() == [(1, "a", 10), (1 << 40, "a", 3)]


def test_a_target_without_rows(case: Case) -> None:
    case.batch((1, "a", 1), (2, "a", 2), (1, "a", 3))
    case.batch(minus(2))
    report = case.take_over()
    assert case.rows() == [(1, "a", 3)]
    assert (report.keys, report.commits) == (2, 1)


def test_equality_deletes_of_both_branches(case: Case) -> None:
    # Flink's own sink wrote to the target before: its converter refuses the target then.
    case.batch((1, "a", 1), (2, "a", 2), (3, "a", 3), branch="main")
    case.batch((1, "a", 10), branch="main")
    case.batch((2, "a", 20), (1, "a", 11))
    case.batch((4, "a", 40), minus(3), branch="main")
    report = case.resolve()
    assert case.rows() == [(1, "a", 11), (2, "a", 20), (4, "a", 40)]
    assert report.delete_files == 4


def test_all_rows_are_deleted(case: Case) -> None:
    case.insert((1, "a", 1), (2, "a", 2))
    case.batch((3, "a", 3), minus(1))
    case.batch(minus(2), minus(3))
    case.take_over()
    assert case.rows() == []
    case.batch((1, "a", 4))
    case.take_over()
    assert case.rows() == [(1, "a", 4)]


def test_vectors_that_share_a_puffin_file(case: Case) -> None:
    for number in range(3):
        case.insert(*((number * 10 + each, "a", each) for each in range(4)))
    case.sql("DELETE FROM {t} WHERE id IN (0, 10, 20)")
    [(files, paths)] = case.sql("SELECT count(*), count(DISTINCT file_path) FROM {t}.delete_files")
    # One file of each task that deletes: one or two.
    assert files == 3
    assert (paths < 3) == (case.form[0] == 3)
    case.batch(minus(11), (21, "a", 100))
    report = case.resolve()
    kept = [1, 2, 3, 12, 13, 21, 22, 23]
    assert [row[0] for row in case.rows()] == kept
    assert (report.vectors_added, report.vectors_replaced) == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("upgraded", [False, True])
@pytest.mark.parametrize("how", ["join", "index"])
def test_position_deletes_of_several_files(
    spark: SparkSession, how: str, *, upgraded: bool
) -> None:
    # Of the target: Flink's converter refuses them.
    properties = {"write.delete.granularity": "partition", "write.delete.distribution-mode": "none"}
    case = Case.new(spark, (2, "index" if how == "index" else "join"), properties=properties)
    for number in range(2):
        case.insert(*((number * 10 + each, "a", each) for each in range(4)))
    case.sql("DELETE FROM {t} WHERE id IN (0, 10)")
    assert case.sql("SELECT count(*) FROM {t}.delete_files") == [(1,)]
    case.batch(minus(1))
    if upgraded:
        case.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    case.take_over()
    case.batch(minus(11), (12, "b", 0))
    case.take_over()
    assert [row[0] for row in case.rows()] == [2, 3, 12, 13]


def test_another_target(case: Case) -> None:
    case.insert((1, "a", 1), (2, "a", 2))
    case.table.create_branch("audit")
    case.batch((1, "a", 10), (3, "a", 3))
    case.take_over(target="audit")
    assert case.rows() == [(1, "a", 1), (2, "a", 2)]
    case.batch(minus(3))
    case.take_over(target="audit")
    case.take_over()


def test_the_staging_branch_begins_anew(case: Case) -> None:
    case.insert((1, "a", 1))
    for number in range(3):
        case.batch((1, "a", number), (number + 10, "a", 0))
        report = case.take_over(restart_staging=True, **({"index": "auto"} if number == 2 else {}))
        assert (report.index_rows is None) == (case.form[1] == "join")
        assert report.strategy == case.form[1] or number == 2
    assert case.rows() == [(1, "a", 2), (10, "a", 0), (11, "a", 0), (12, "a", 0)]


def test_a_refused_commit_loses_nothing(case: Case) -> None:
    # Flink's converter forgot the rows that it had found when their commit failed (#17630).
    case.insert((1, "a", 1), (2, "a", 2), (2, "b", 3))
    case.batch((1, "a", 10), minus(9))
    options: dict[str, Any] = {"staging": STAGING, "index": case.form[1]}
    before = files_of(case)
    assert case.table.resolve("id", dry_run=True, **options).rows_deleted == 1
    with pytest.raises(VerificationError):
        case.table.resolve("id", unique_keys=True, **options)
    assert case.rows() == [(1, "a", 1), (2, "a", 2), (2, "b", 3)]
    assert files_of(case) == before
    report = case.take_over()
    assert case.rows() == [(1, "a", 10), (2, "a", 2), (2, "b", 3)]
    assert (report.rows_deleted, report.absent) == (1, 1)


def test_a_data_file_that_cannot_be_read(case: Case) -> None:
    case.insert((1, "a", 1), (2, "a", 2))
    case.batch((1, "a", 10), (2, "a", 20))
    path, content = staged_file(case)
    before, head = files_of(case), case.table._load().metadata.head("main")
    path.unlink()
    with pytest.raises((EngineError, StorageError)):
        case.table.resolve("id", staging=STAGING, index=case.form[1])
    assert case.table._load().metadata.head("main") == head
    path.write_bytes(content)
    assert files_of(case) == before
    case.take_over()
    assert case.rows() == [(1, "a", 10), (2, "a", 20)]


def data_folder(case: Case) -> Path:
    return Path(case.table._load().metadata.location.removeprefix("file:")) / "data"


def files_of(case: Case) -> set[str]:
    """The names of all files of the table that are no metadata."""
    return {each.name for each in data_folder(case).rglob("*") if not each.name.startswith(".")}


def staged_file(case: Case) -> tuple[Path, bytes]:
    """The first data file of the target, and its bytes."""
    [(found,)] = case.sql("SELECT file_path FROM {t}.files WHERE content = 0")
    path = Path(found.removeprefix("file:"))
    return path, path.read_bytes()
