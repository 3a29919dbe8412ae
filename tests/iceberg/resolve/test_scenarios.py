"""Changes as Flink writes them, resolved in place or taken over by the target, and what others do
meanwhile; see `cases` for what is checked each time.

The situations are those of Flink's own tests of its converter, and those that it refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec.errors import EngineError, StorageError, VerificationError
from tests.iceberg.deletes.tables import rewrite_data_files
from tests.iceberg.resolve.cases import FORMS, STAGING, Case, Deleted, Form, Values, form, minus

pytestmark = pytest.mark.spark

ROW = re.compile(r"(-?)(\d+|~)([a-z~]?)(\d*)")


def row_of(text: str) -> Values | Deleted:
    """Read `1a10`: the values of id, g and v; `~` is null, and `-1a` the delete of a key."""
    match = ROW.fullmatch(text)
    assert match, text
    sign, id_, g, v = match.groups()
    found: list[Any] = [None if id_ == "~" else int(id_)]
    if g:
        found.append(None if g == "~" else g)
    if v:
        found.append(int(v))
    return Deleted(tuple(found)) if sign else tuple(found)


def require_rows(case: Case, *texts: str) -> None:
    """Compare rows; those that are numbers alone are the last columns, in the order of the keys."""
    expected = [int(each) if each.isdecimal() else row_of(each) for each in texts]
    by_value = any(each.isdecimal() for each in texts)
    assert [row[-1] if by_value else row for row in case.rows()] == expected


def run(case: Case, text: str) -> None:
    """Take steps such as `insert 1a1 2a2 | batch@main 1a10 -2 | take 1a10 keys=2`.

    A step says what is done, after `@` on which branch, after `:` with which key columns, with
    which rows; of a resolve these are the rows afterwards, and figures of its report.
    """
    for step in text.split(" | "):
        word, *rest = step.split()
        word, _, keys = word.partition(":")
        word, _, branch = word.partition("@")
        case_by = replace(case, keys=tuple(keys.split(","))) if keys else case
        figures = dict(each.split("=") for each in rest if "=" in each)
        rows = [each for each in rest if "=" not in each]
        if word == "insert":
            given: list[Any] = [*map(row_of, rows)]
            case.insert(*given, branch=branch or "main")
        elif word in ("batch", "changelog"):
            case_by.batch(
                *map(row_of, rows), branch=branch or STAGING, changelog=word == "changelog"
            )
        elif word in ACTS:
            ACTS[word](case)
        elif word != "left":
            before = case.rows() if word == "in-place" else None
            report: object
            if word == "take":
                report = case_by.take_over(**({"target": branch} if branch else {}))
            else:
                report = case.resolve(STAGING if word == "resolve" else None)
            assert {name: str(getattr(report, name)) for name in figures} == figures
            assert before is None or case.rows() == before
        if word in ("left", "resolve", "take", "in-place"):
            require_rows(case, *rows)


def compact(case: Case) -> None:
    rewrite_data_files(case.spark, case.name)


def expire(case: Case) -> None:
    catalog, _, rest = case.name.partition(".")
    case.sql(
        f"CALL {catalog}.system.expire_snapshots(table => '{rest}', retain_last => 1,"
        " older_than => TIMESTAMP '2999-01-01 00:00:00')"
    )
    assert len(case.table._load().metadata.snapshots) == 1


def vectors_share_files(case: Case) -> None:
    [(files, paths)] = case.sql("SELECT count(*), count(DISTINCT file_path) FROM {t}.delete_files")
    # One file of each task that deletes: one or two.
    assert (files, paths < 3) == (3, case.form[0] == 3)


def positions_beside_keys(case: Case) -> None:
    found = case.sql("SELECT content, file_format FROM {t}.delete_files VERSION AS OF 'staging'")
    by_position = (1, "PARQUET" if case.form[0] == 2 else "PUFFIN")  # as Flink's sink writes them
    assert sorted(found) == [by_position] * 3 + [(2, "PARQUET")] * 3


ACTS: dict[str, Callable[[Case], object]] = {
    "compact": compact,
    "expire": expire,
    "upgrade": lambda case: case.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')"),
    "branch": lambda case: case.table.create_branch(STAGING),
    "branch-audit": lambda case: case.table.create_branch("audit"),
    "partition": lambda case: case.table._load().handle.updateSpec().addField("g").commit(),
    "unpartition": lambda case: case.table._load().handle.updateSpec().removeField("g").commit(),
    "delete-a": lambda case: case.sql("DELETE FROM {t} WHERE g = 'a'"),
    "delete-tens": lambda case: case.sql("DELETE FROM {t} WHERE id IN (0, 10, 20)"),
    "delete-4-1": lambda case: case.sql("DELETE FROM {t} WHERE id IN (4, 1)"),
    "vectors-share-files": vectors_share_files,
    "positions-beside-keys": positions_beside_keys,
}
# Rows 0 to 5; row 1 has been replaced, row 3 deleted.
CHANGED = "insert 0a0 1a1 2a2 3a3 4a4 5a5 | batch@main 1a10 -3 -99 | "
SCENARIOS: dict[str, str] = {
    "an upsert": "insert 1a1 2a2 3a3 | batch 2a20 4a40"
    " | take 1a1 2a20 3a3 4a40 keys=2 absent=1 rows_deleted=1 rows_added=2",
    "a key in several files": "insert 1a0 5a0 | insert 1a1 6a0 | insert 1a2 7a0 | batch -1"
    " | take 5a0 6a0 7a0 keys=1 rows_deleted=3 absent=0",
    "a chain of changes of one key": "insert 1a1 9a9 | batch 2a1 | batch 2a2 | batch -2 | batch 2a3"
    " | batch 2a4 | take 1a1 2a4 9a9 | batch 1a5 1a6 -1 1a7 1a8 -9 2b0 | take 1a8 2b0",
    "an insert beside the delete of its key survives": "insert 1a1 2a2 | changelog 1a10 -2a2"
    " | changelog -1a10 1a11 2a20 | take 1a11 2a20",
    "two cycles delete in one data file": "insert 0a0 1a1 2a2 3a3 4a4 | batch -1"
    " | take 0a0 2a2 3a3 4a4 | batch -3 | take 0a0 2a2 4a4 vectors_added=1 vectors_replaced=1",
    "the target is compacted": "insert 0a0 10a0 | insert 1a1 11a1 | insert 2a2 12a2 | batch 1a100"
    " | take 0 100 2 0 1 2 | batch -1 2a200 | compact | take 0 200 0 1 2 | batch 0a300 -12"
    " | take 0a300 2a200 10a0 11a1 | compact | resolve 0a300 2a200 10a0 11a1 snapshot_id=None",
    # The partition column is no key column: Flink's converter refuses this. A row that moves to
    # another partition stays in its own, as all readers of the branch have it.
    "a delete is scoped to its partition, by g": "insert 1a1 1b2 2a3 2b4 | batch 1a10 -2b 2c4"
    " | take 1a10 1b2 2a3 2c4 rows_deleted=2",
    "several delete files in a snapshot, by g": "insert 1a1 2a2 1b3 2b4"
    " | batch:id,g 1a10 1b30 -2b | take:id,g 1a10 1b30 2a2 delete_files=2",
    "a delete of all partitions, by g": "insert 1a1 1b2 2b3 | unpartition | batch -1 3c4"
    " | take 2b3 3c4 | batch -2 -3 | take",
    "a delete of a partition spares files of another spec": "insert 1a1 | partition"
    " | insert 1a2 1b3 | batch -1a | take 1a1 1b3",
    # On v2 these are position-delete files: Flink's converter refuses them.
    "deletes by position inside a batch are carried": "insert 1a1 2a2"
    " | batch 1a10 5a50 1a11 5a51 6a60 | batch 6a61 7a70 -7 6a62 | batch 8a80 8a81"
    " | positions-beside-keys | take 1a11 2a2 5a51 6a62 8a81"
    " | batch -5 -1 | take 2a2 6a62 8a81 absent=0",
    "staged rows without deletes": "insert 1a1 | branch | insert@staging 2a2 | changelog 3a3"
    " | take 1a1 2a2 3a3 keys=0 rows_added=2",
    "rows that others appended to the target": "insert 1a1 | batch 2a2 | insert 8b8 9b9"
    " | batch -9 1a10 | resolve 1a10 2a2 8b8 | insert 2b20 | batch -2 | resolve 1a10 8b8",
    "keys of a file that is gone are absent, by g": "insert 1a1 2b2 | batch 3b3 | take 1a1 2b2 3b3"
    " | delete-a | batch -1a -2b -77b | resolve 3b3 keys=3 absent=2",
    "null keys": "insert 1a1 ~a2 ~b3 | batch ~c4 2a5 | take ~c4 1a1 2a5 rows_deleted=2",
    "composite keys with nulls": "insert 1a1 1~2 ~a3 ~~4 2a5 | batch:id,g 1~20 -~a -~~ -2~"
    " | take:id,g 1~20 1a1 2a5 keys=4 absent=1",
    # Flink's converter knows one set.
    "deletes of two sets of key columns": "insert 0a0 1b1 2a2 3b3 4a4 5b5 | batch:g,v -0b3 -0a5"
    " | batch 1b10 | batch:v 7a4 | take 0a0 1b10 2a2 5b5 7a4 delete_files=3 rows_deleted=3",
    "keys that the index was not built for": "insert 1a1 1b2 2a3 | batch -2 | take 1a1 1b2"
    " | batch:id,g 1b20 | take:id,g 1a1 1b20 | batch -1 | take",
    "a target without rows": "batch 1a1 2a2 1a3 | batch -2 | take 1a3 keys=2 commits=1",
    # Flink's own sink wrote to the target before: its converter refuses the target then.
    "equality deletes of both branches": "batch@main 1a1 2a2 3a3 | batch@main 1a10"
    " | batch 2a20 1a11 | batch@main 4a40 -3 | resolve 1a11 2a20 4a40 delete_files=4",
    "all rows are deleted": "insert 1a1 2a2 | batch 3a3 -1 | batch -2 -3 | take"
    " | batch 1a4 | take 1a4",
    "vectors that share a Puffin file": "insert 0a0 1a1 2a2 3a3 | insert 10a0 11a1 12a2 13a3"
    " | insert 20a0 21a1 22a2 23a3 | delete-tens | vectors-share-files | batch -11 21a100"
    " | resolve 1a1 2a2 3a3 12a2 13a3 21a100 22a2 23a3 vectors_added=2 vectors_replaced=2",
    "another target": "insert 1a1 2a2 | branch-audit | batch 1a10 3a3 | take@audit 1a1 2a2"
    " | batch -3 | take@audit 1a1 2a2 | take 1a10 2a2",
    "in place": CHANGED + "in-place 0 10 2 4 5 keys=3 absent=1 rows_deleted=2",
    "in place, a batch with duplicates": CHANGED + "batch@main 7a70 1a11 7a71 1a12"
    " | batch@main -7 8a80 | in-place 0 12 2 4 5 80",
    # Flink's converter walks the history, and never finds these.
    "in place, snapshots that wrote the deletes have expired": CHANGED + "batch@main 0a100"
    " | batch@main 1a101 | batch@main 2a102 | insert 9a9 | expire"
    " | in-place 100 101 102 4 5 9 delete_files=4",
    "in place, rows that are inserted again": CHANGED + "insert 3b30 1b11 | batch@main -1"
    " | insert 1c12 | in-place 0a0 1c12 2a2 3b30 4a4 5a5",
    # Flink's sink writes a deleted key for each row, of the first batch as well.
    "in place, deletes that apply to nothing": "batch@main 1a1 2a2"
    " | in-place 1a1 2a2 keys=2 absent=2 vectors_added=0",
    "in place, a table that is upgraded": CHANGED + "in-place 0 10 2 4 5 | batch@main 2a20 2a21"
    " | upgrade | batch@main 4a40 4a41 | in-place 0 10 21 41 5",
}


# Forms that a scenario has besides the two of all; those without a mark are quick.
MORE_FORMS: dict[str, tuple[str, tuple[pytest.MarkDecorator, ...]]] = {
    "an upsert": ("v3 join", ()),
    "a chain of changes of one key": ("v2 join", ()),
    "a delete is scoped to its partition, by g": ("v3 join", (pytest.mark.slow,)),
    "in place, rows that are inserted again": ("v3 join", (pytest.mark.slow,)),
    "in place, a table that is upgraded": ("v2 index", (pytest.mark.slow,)),
}


def forms_of(name: str) -> list[Any]:
    if name not in MORE_FORMS:
        return FORMS
    more, marks = MORE_FORMS[name]
    return [form(more, *marks), *(each for each in FORMS if each.id != more)]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(name, *each.values, id=f"{name}, {each.id}", marks=each.marks)
        for name in SCENARIOS
        for each in forms_of(name)
    ],
)
def test_deletes_by_key_are_resolved(spark: SparkSession, name: str, form: Form) -> None:
    rest = "PARTITIONED BY (g)" if name.endswith("by g") else ""
    run(Case.new(spark, form, rest=rest), SCENARIOS[name])


@pytest.mark.parametrize("form", FORMS)
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


@pytest.fixture(params=FORMS)
def case(spark: SparkSession, request: pytest.FixtureRequest) -> Case:
    """An empty table with the key `id`, in both forms."""
    return Case.new(spark, request.param)


@pytest.mark.parametrize("most", [None, 1, 2])
def test_each_snapshot_deletes_earlier_rows_only(case: Case, most: int | None) -> None:
    run(case, "insert 1a1 2a2 | batch 1a10 | batch 1a11 -2 | batch 2b20 | batch 1a12 3a30")
    metadata = case.table._load().metadata
    staged = [case.rows(each.id) for each in metadata.ancestors(STAGING)]
    report = case.take_over(max_snapshots=most)
    require_rows(case, "1a12", "2b20", "3a30")
    assert (report.commits, report.staged_snapshots) == ({None: 1, 1: 4, 2: 2}[most], 4)
    for each in case.table._load().metadata.ancestors("main"):
        assert case.rows(each.id) in staged


@pytest.mark.parametrize("form", FORMS)
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


@pytest.mark.slow
@pytest.mark.parametrize("upgraded", [False, True])
@pytest.mark.parametrize("form", [form("v2 join"), form("v2 index")])
def test_position_deletes_of_files(spark: SparkSession, form: Form, *, upgraded: bool) -> None:
    # Of the target: Flink's converter refuses them.
    properties = {"write.delete.granularity": "partition", "write.delete.distribution-mode": "none"}
    case = Case.new(spark, form, properties=properties)
    run(case, "insert 0a0 1a1 2a2 3a3 | insert 10a0 11a1 12a2 13a3")
    case.sql("DELETE FROM {t} WHERE id IN (0, 10)")
    assert case.sql("SELECT count(*) FROM {t}.delete_files") == [(1,)]
    case.batch(minus(1))
    if upgraded:
        run(case, "upgrade")
    case.take_over()
    case.batch(minus(11), (12, "b", 0))
    case.take_over()
    assert [row[0] for row in case.rows()] == [2, 3, 12, 13]


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
    run(case, "insert 1a1 2a2 2b3 | batch 1a10 -9")
    options: dict[str, Any] = {"staging": STAGING, "index": case.form[1]}
    before = files_of(case)
    assert case.table.resolve("id", dry_run=True, **options).rows_deleted == 1
    with pytest.raises(VerificationError):
        case.table.resolve("id", unique_keys=True, **options)
    assert files_of(case) == before
    run(case, "left 1a1 2a2 2b3 | take 1a10 2a2 2b3 rows_deleted=1 absent=1")


def test_a_data_file_that_cannot_be_read(case: Case) -> None:
    run(case, "insert 1a1 2a2 | batch 1a10 2a20")
    [(found,)] = case.sql("SELECT file_path FROM {t}.files WHERE content = 0")
    path = Path(found.removeprefix("file:"))
    content = path.read_bytes()
    before, head = files_of(case), case.table._load().metadata.head("main")
    path.unlink()
    with pytest.raises((EngineError, StorageError)):
        case.table.resolve("id", staging=STAGING, index=case.form[1])
    assert case.table._load().metadata.head("main") == head
    path.write_bytes(content)
    assert files_of(case) == before
    run(case, "take 1a10 2a20")


def files_of(case: Case) -> set[str]:
    """The names of all files of the table that are no metadata."""
    data = Path(case.table._load().metadata.location.removeprefix("file:")) / "data"
    return {each.name for each in data.rglob("*") if not each.name.startswith(".")}


@pytest.mark.parametrize("form", FORMS[:1])  # format 2 has no row ids
def test_rows_keep_their_ids(spark: SparkSession, form: Form) -> None:
    case = Case.new(spark, form)
    run(case, CHANGED.removesuffix(" | "))
    columns = "SELECT id, _row_id, _last_updated_sequence_number FROM {t} ORDER BY id"
    before = case.sql(columns)
    case.resolve(None)
    assert case.sql(columns) == before


# What others do meanwhile; the values of the rows after that and a resolve in place, and after a
# resolve of staged changes: they are later than all that the target has when they are committed.
MEANWHILE = {
    "insert 3b30 50b50": ("left 0 10 2 30 4 5 50", "left 0 10 20 30 4 500 61"),
    "batch@main 1a12 -0 51a51": ("left 12 2 4 5 51", "left 12 20 4 500 51 61"),
    "delete-4-1": ("left 0 2 5", "left 0 20 500 61"),
    "compact": ("left 0 10 2 4 5", "left 0 10 20 4 500 61"),
}


@pytest.mark.parametrize("staging", [None, STAGING])
@pytest.mark.parametrize("action", MEANWHILE)
def test_others_commit_meanwhile(case: Case, action: str, staging: str | None) -> None:
    # Each of these makes a cycle of Flink's converter fail.
    staged = "batch -5 2a20 50c500 | batch 60c60 60c61"
    run(case, CHANGED + staged if staging else CHANGED.removesuffix(" | "))
    expected = MEANWHILE[action][staging is not None]
    report = case.resolve_while(lambda: run(case, action), staging)
    run(case, expected)
    if staging is None:
        assert report.conflicts == 0 or action in ("delete-4-1", "compact")
    if staging or action.startswith("batch"):
        case.resolve(staging, verify="rows" if staging else "counts")
    else:
        case.require_resolved(None)
    run(case, expected)
    assert case.table.check().ok
