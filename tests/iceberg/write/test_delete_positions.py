"""Deletes by position, as stock Iceberg on Spark and PyIceberg read the result."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import Column, SparkSession

from delvec import IcebergTable
from delvec.errors import ConflictError, InvalidArgumentError, PlanError, UnsupportedFeatureError
from delvec.iceberg.client.files import find_position_deletes
from delvec.iceberg.commit.branch_commit import Txn
from delvec.iceberg.deletes.positions import write_position_vectors
from delvec.iceberg.write import delete_positions as positions
from delvec.iceberg.write.delete_positions import delete_positions
from delvec.iceberg.write.key_predicates import Condition
from delvec.iceberg.write.report import PositionDeleteReport
from delvec.storage.listed_files import local_path
from tests.iceberg.deletes.tables import (
    by_pyiceberg,
    by_spark,
    deletes_of,
    loaded,
    new_table,
    rewrite_data_files,
)

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]


def insert(spark: SparkSession, name: str, *values: str) -> None:
    for each in values:
        spark.sql(f"INSERT INTO {name} VALUES {each}")


def numbered(spark: SparkSession, name: str, start: int, stop: int) -> None:
    """Append one data file."""
    rows = spark.range(start, stop, 1, 1).selectExpr(
        "id", "CAST(id % 10 AS INT) AS n", "CONCAT('s', id) AS s"
    )
    rows.writeTo(name).append()


def delete(
    spark: SparkSession, name: str, where: str | Column | None, branch: str = "main"
) -> PositionDeleteReport:
    return delete_positions(loaded(spark, name), Condition(where), branch=branch)


def check(spark: SparkSession, name: str, expected: object) -> None:
    assert (by_spark(spark, name), by_pyiceberg(spark, name)) == (expected, expected)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("version", [2, 3])
def test_rows_of_several_files(spark: SparkSession, version: int) -> None:
    name = new_table(spark, version=version)
    for start in (0, 100, 200):
        numbered(spark, name, start, start + 100)
    report = delete(spark, name, "id % 7 = 0 AND id < 150")
    left = [each for each in range(300) if each % 7 or each >= 150]
    check(spark, name, left)
    assert report.rows_deleted == 300 - len(left)
    assert (report.vectors_added, report.vectors_replaced, report.files_removed) == (2, 0, 0)
    kind = "PUFFIN" if version == 3 else "PARQUET"
    assert deletes_of(spark, name) == [(1, kind, 7), (1, kind, 15)]
    assert report.vector_files == (1 if version == 3 else 2)

    again = delete(spark, name, "n = 3")
    left = [each for each in left if each % 10 != 3]
    check(spark, name, left)
    assert (again.vectors_added, again.vectors_replaced) == (3, 2)
    assert len(deletes_of(spark, name)) == 3  # earlier ones are part of the new ones
    summary = loaded(spark, name).metadata.head().summary  # type: ignore[union-attr]
    assert summary["total-position-deletes"] == str(300 - len(left))
    assert summary["operation"] == "delete"

    spark.sql(f"DELETE FROM {name} WHERE id = 1")  # Iceberg goes on with them
    left.remove(1)
    check(spark, name, left)


def numbers(text: str) -> list[int | None]:
    """Read `None 1 5-7`, which is None, 1, 5, 6 and 7."""
    found: list[int | None] = []
    for each in text.split():
        first, _, last = each.partition("-")
        found += [None] if each == "None" else range(int(first), int(last or first) + 1)
    return found


def run(spark: SparkSession, name: str, text: str) -> None:
    """Take steps: rows are appended, SQL is run, rows of a condition are deleted, or looked at."""
    last: PositionDeleteReport | None = None
    for step in text.format(t=name).split(" | "):
        word, _, rest = step.partition(" ")
        if word == "rows":
            numbered(spark, name, *map(int, rest.split()))
        elif word == "where":
            last = delete(spark, name, rest or None)
        elif word == "refused":
            with pytest.raises(InvalidArgumentError):
                delete(spark, name, rest)
        elif word == "is":
            check(spark, name, numbers(rest))
        elif word == "stock":  # PyIceberg does not read Avro
            assert by_spark(spark, name) == numbers(rest)
        elif word == "report":
            figures = dict(each.split("=") for each in rest.split())
            assert {each: str(getattr(last, each)) for each in figures} == figures
        elif word == "deletes":
            found = [f"{kind}:{rows}" for _, kind, rows in deletes_of(spark, name)]
            assert found == rest.split()
        else:
            spark.sql(f"INSERT INTO {name} VALUES {rest}" if word == "insert" else step)


EMPTIED = (
    "rows 0 10 | rows 10 20 | DELETE FROM {t} WHERE id IN (3, 13) | where id < 10 OR id = 19"
    " | report files_removed=1 rows_deleted=10 | is 10-12 14-18 | deletes FORMAT:2"
)
ALL = (
    "where | report snapshot_id=None | rows 0 10 | rows 10 20"
    " | DELETE FROM {t} WHERE id IN (3, 13) | where | report files_removed=2 rows_deleted=18"
    " | is | deletes | where | report snapshot_id=None | rows 0 3 | is 0-2"
)
SPECS = (
    "insert (1, date'2026-01-01', 'a b', 1.5), (2, date'2026-01-01', 'a b', 2.5),"
    " (3, NULL, NULL, NULL), (4, NULL, NULL, 1), (5, date'1969-12-31', '\"é/=', 3)"
    " | insert (15, date'1969-12-31', '\"é/=', 3) | ALTER TABLE {t} ADD PARTITION FIELD m"
    " | ALTER TABLE {t} DROP PARTITION FIELD s"
    " | insert (6, date'2026-01-02', 'x', 2.5), (7, date'2026-01-02', 'x', 2.5)"
    " | ALTER TABLE {t} ADD PARTITION FIELD truncate(2, s)"
    " | ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id) | insert (8, NULL, NULL, NULL)"
    " | insert (8, NULL, NULL, 2.5), (9, NULL, 'abc', NULL)"
    " | where id IN (1, 3, 6) OR m = 3 AND id < 10 | report files_removed=1 vectors_added=3"
    " | is 2 4 7 8 8 9 15 | where m = 2.5 | is 4 8 9 15"
)
V3 = "ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')"
# A file of position deletes of several data files stays, one of a single data file is replaced.
UPGRADED = (
    f"rows 0 50 | rows 50 100 | DELETE FROM {{t}} WHERE id IN (1, 2, 51, 52) | {V3}"
    " | where id IN (3, 4) | is 0 5-50 53-99 | deletes PARQUET:COUNT PUFFIN:4"
    " | where id = 53 | is 0 5-50 54-99"
)
OTHER = (
    f"rows 0 50 | DELETE FROM {{t}} WHERE id IN (1, 2) | deletes FORMAT:2 | {V3}"
    " | where id = 3 | stock 0 4-49"
)
NULLS = (
    "insert (1, 1, 'a'), (NULL, 2, 'b'), (3, NULL, NULL) | where id <> 3 | is None 3"
    " | where s IS NULL | is None"
)
CHANGED = (  # one of the columns is in no snapshot yet
    "rows 0 10 | ALTER TABLE {t} RENAME COLUMN n TO id2 | ALTER TABLE {t} DROP COLUMN s"
    " | ALTER TABLE {t} ADD COLUMN n string | where id2 = 3 AND n IS NULL | is 0-2 4-9"
    " | insert (10, 4, 'x') | where id2 = 4 AND n = 'x' | is 0-2 4-9 | refused s = 's1'"
)
CONDITIONS = (
    "rows 0 30 | where id IN (SELECT max(id) FROM {t})"
    " | where EXISTS (SELECT 1 FROM (SELECT id AS other FROM {t}) WHERE other = n + 25)"
    " | where _pos = 4 | where s RLIKE '^s5$' | is 6-9 14-19 24-28"
    " | refused id = = 1 | refused nothing = 1 | refused id + 1"
)
GRANULARITY = "write.delete.granularity"
ONE_TASK = {  # for all files, so that one file of position deletes may be about both
    "write.delete.distribution-mode": "none",
    "read.split.adaptive-size.enabled": "false",
}
# Steps, the format version, properties of the table, and when it runs.
CASES: list[tuple[str, int, dict[str, str], str]] = [
    (EMPTIED.replace("FORMAT", "PARQUET"), 2, {}, ""),
    (EMPTIED.replace("FORMAT", "PUFFIN"), 3, {}, "more"),
    (ALL, 2, {}, ""),
    (ALL, 3, {}, "more"),
    (NULLS, 3, {}, ""),
    (CHANGED, 3, {}, "more"),
    (CONDITIONS, 3, {}, "slow"),
    (SPECS, 3, {}, "slow"),
    (SPECS, 2, {}, "slow"),
    (UPGRADED.replace("COUNT", "2"), 2, {**ONE_TASK, GRANULARITY: "file"}, "slow"),
    (UPGRADED.replace("COUNT", "4"), 2, {**ONE_TASK, GRANULARITY: "partition"}, "slow"),
    (OTHER.replace("FORMAT", "AVRO"), 2, {"write.delete.format.default": "avro"}, "slow"),
    (OTHER.replace("FORMAT", "ORC"), 2, {"write.delete.format.default": "orc"}, "slow"),
]


@pytest.mark.first_cases(9)
@pytest.mark.parametrize(
    ("steps", "version", "properties"),
    [
        pytest.param(*each, marks=getattr(pytest.mark, when) if when else ())
        for *each, when in CASES
    ],
)
def test_conditions_delete(
    spark: SparkSession, steps: str, version: int, properties: dict[str, str]
) -> None:
    columns, rest = "id bigint, n int, s string", ""
    if steps is SPECS:
        columns = "id bigint, day date, s string, m decimal(9,2)"
        rest = "PARTITIONED BY (days(day), s)"
    run(spark, new_table(spark, columns, rest, version, properties), steps)


def test_vectors_of_others_are_united(spark: SparkSession) -> None:
    name = new_table(spark)
    numbered(spark, name, 0, 100)
    spark.sql(f"DELETE FROM {name} WHERE id IN (1, 2, 3)")
    [(path,)] = spark.sql(f"SELECT file_path FROM {name}.data_files").collect()
    table = loaded(spark, name)
    head = table.metadata.head()
    assert head is not None
    [found] = find_position_deletes(table, head.id, [path])[path].deletes
    assert (found.record_count, found.is_file_scoped, found.file_format) == (3, True, "puffin")
    with pytest.raises(PlanError, match="not a data file"):
        find_position_deletes(table, head.id, ["file:/nothing"])
    delete(spark, name, "id IN (4, 5, 6) OR id < 3")
    check(spark, name, list(range(7, 100)))
    assert deletes_of(spark, name) == [(1, "PUFFIN", 7)]


@pytest.mark.more
def test_deleting_all_removes_all_delete_files_too(spark: SparkSession) -> None:
    name = new_table(spark)
    numbered(spark, name, 0, 10)
    delete(spark, name, "id = 1")
    IcebergTable.for_name(spark, name).delete_keys([2], "id")
    assert [content for content, *_ in deletes_of(spark, name)] == [1, 2]
    report = delete(spark, name, None)
    assert (report.rows_deleted, report.files_removed) == (None, 1)
    assert deletes_of(spark, name) == []
    check(spark, name, [])


@pytest.mark.more
def test_branches(spark: SparkSession) -> None:
    name = new_table(spark)
    numbered(spark, name, 0, 10)
    delete(spark, name, "id < 5", branch="new")
    assert by_spark(spark, name, at="'new'") == [5, 6, 7, 8, 9]
    check(spark, name, list(range(10)))
    numbered(spark, name, 10, 12)
    delete(spark, name, "id > 8", branch="new")
    assert by_spark(spark, name, at="'new'") == [5, 6, 7, 8]
    delete(spark, name, "id > 8")
    check(spark, name, list(range(9)))
    spark.sql(f"ALTER TABLE {name} CREATE TAG fixed")
    with pytest.raises(InvalidArgumentError, match="tag"):
        delete(spark, name, "id > 8", branch="fixed")


def test_format_1_is_refused(spark: SparkSession) -> None:
    name = new_table(spark, version=1)
    numbered(spark, name, 0, 10)
    with pytest.raises(UnsupportedFeatureError, match="format version 1") as raised:
        delete(spark, name, "id = 1")
    assert "'format-version' = '3'" in (raised.value.hint or "")


def test_transactions_are_committed_once(spark: SparkSession) -> None:
    name = new_table(spark)
    numbered(spark, name, 0, 10)

    def run(where: str, number: int) -> PositionDeleteReport:
        txn = Txn("stream", number)
        return delete_positions(loaded(spark, name), Condition(where), txn=txn)

    assert run("id = 1", 0).snapshot_id is not None
    assert run("id = 2", 0).snapshot_id is None
    assert run("id > 100", 1).snapshot_id is not None  # nothing to delete, and remembered
    assert run("id = 2", 1).snapshot_id is None
    check(spark, name, [0, *range(2, 10)])


@pytest.mark.slow
def test_racing_deletes_of_one_file(spark: SparkSession) -> None:
    name = new_table(spark)
    numbered(spark, name, 0, 100)
    numbers = range(4)
    with ThreadPoolExecutor(len(numbers)) as pool:
        reports = list(
            pool.map(lambda i: delete(spark, name, f"id % 4 = {i} AND id < 90"), numbers)
        )
    check(spark, name, list(range(90, 100)))
    assert sum(each.rows_deleted or 0 for each in reports) == 90
    [files] = [deletes_of(spark, name)]
    assert [each[2] for each in files] == [90]
    folder = Path(local_path(loaded(spark, name).metadata.location)) / "data"
    live = {path for path in folder.iterdir() if path.name.endswith("-deletes.puffin")}
    assert len(live) == 4  # those of lost races are removed


class Between:
    """Runs something between the plan and the commit of a delete, the first time."""

    def __init__(self, *acts: Callable[[], object]) -> None:
        self._acts = list(acts)

    def __call__(self, *args: object) -> object:
        while self._acts:
            self._acts.pop(0)()
        return write_position_vectors(*args)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.slow
def test_a_compaction_between_plan_and_commit(spark: SparkSession, version: int) -> None:
    name = new_table(spark, version=version)
    for start in range(0, 50, 10):
        numbered(spark, name, start, start + 10)
    between = Between(lambda: rewrite_data_files(spark, name))
    with patch.object(positions, "write_position_vectors", between):
        report = delete(spark, name, "n < 3")
    assert report.attempts == 2
    check(spark, name, [each for each in range(50) if each % 10 >= 3])


def test_commits_between_plan_and_commit(spark: SparkSession) -> None:
    name = new_table(spark)
    numbered(spark, name, 0, 10)
    numbered(spark, name, 10, 20)
    others = Between(
        lambda: spark.sql(f"DELETE FROM {name} WHERE id IN (3, 5)"),
        lambda: insert(spark, name, "(3, 3, 'new')"),
    )
    with patch.object(positions, "write_position_vectors", others):
        report = delete(spark, name, "id <= 3")
    assert report.attempts == 2
    check(spark, name, [4, *range(6, 20)])
    # An append alone is no conflict: its rows stay.
    append = Between(lambda: insert(spark, name, "(4, 4, 'new')"))
    with patch.object(positions, "write_position_vectors", append):
        report = delete(spark, name, "id = 4")
    assert report.attempts == 1
    check(spark, name, [4, *range(6, 20)])


@pytest.mark.more
def test_conflicts_without_end(spark: SparkSession) -> None:
    name = new_table(spark)
    numbered(spark, name, 0, 10)
    with (
        patch.object(positions, "commit_change", side_effect=ConflictError("always")),
        pytest.raises(ConflictError, match="always"),
    ):
        delete(spark, name, "id = 4")
    check(spark, name, list(range(10)))
    folder = Path(local_path(loaded(spark, name).metadata.location)) / "data"
    assert not [each for each in folder.iterdir() if each.name.endswith("puffin")]


@pytest.mark.more
def test_data_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    """Paths with spaces, and a folder of data of the table's own."""
    place = tmp_path / "a b"
    data = {"write.data.path": f"{place}/rows"}
    name = new_table(spark, rest=f"LOCATION '{place}'", properties=data, catalog="sqlite")
    numbered(spark, name, 0, 10)
    delete(spark, name, "id < 4")
    delete(spark, name, "id < 5")
    check(spark, name, [5, 6, 7, 8, 9])
    assert list((place / "rows").glob("*.puffin"))
