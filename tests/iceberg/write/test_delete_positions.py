"""Deletes by position, as stock Iceberg on Spark and PyIceberg read the result."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

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
    assert by_spark(spark, name) == expected
    assert by_pyiceberg(spark, name) == expected


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


@pytest.mark.parametrize("version", [2, 3])
def test_files_without_a_row_left_are_removed(spark: SparkSession, version: int) -> None:
    name = new_table(spark, version=version)
    numbered(spark, name, 0, 10)
    numbered(spark, name, 10, 20)
    spark.sql(f"DELETE FROM {name} WHERE id IN (3, 13)")
    report = delete(spark, name, "id < 10 OR id = 19")
    assert (report.files_removed, report.rows_deleted) == (1, 10)
    check(spark, name, [10, 11, 12, 14, 15, 16, 17, 18])
    assert [each[2] for each in deletes_of(spark, name)] == [2]


@pytest.mark.parametrize("version", [2, 3])
def test_all_rows(spark: SparkSession, version: int) -> None:
    name = new_table(spark, version=version)
    assert delete(spark, name, None).snapshot_id is None
    numbered(spark, name, 0, 10)
    numbered(spark, name, 10, 20)
    spark.sql(f"DELETE FROM {name} WHERE id IN (3, 13)")
    report = delete(spark, name, None)
    assert (report.files_removed, report.rows_deleted) == (2, 18)
    check(spark, name, [])
    assert deletes_of(spark, name) == []
    assert delete(spark, name, None).snapshot_id is None
    numbered(spark, name, 0, 3)
    check(spark, name, [0, 1, 2])


def test_nothing_matches(spark: SparkSession) -> None:
    name = new_table(spark)
    assert delete(spark, name, "id = 1").snapshot_id is None
    numbered(spark, name, 0, 10)
    before = loaded(spark, name).metadata.head()
    report = delete(spark, name, "id > 100")
    assert (report.snapshot_id, report.rows_deleted) == (None, 0)
    assert loaded(spark, name).metadata.head() == before
    assert "nothing to do" in str(report)


def test_nulls_stay(spark: SparkSession) -> None:
    name = new_table(spark)
    insert(spark, name, "(1, 1, 'a'), (NULL, 2, 'b'), (3, NULL, NULL)")
    delete(spark, name, "id <> 3")
    check(spark, name, [None, 3])
    delete(spark, name, F.col("s").isNull())
    check(spark, name, [None])


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


@pytest.mark.parametrize("granularity", ["file", "partition"])
@pytest.mark.slow
def test_position_deletes_of_a_table_upgraded_to_format_3(
    spark: SparkSession, granularity: str
) -> None:
    properties = {
        "write.delete.granularity": granularity,
        # One task for all files, so that one file of position deletes may be about both.
        "write.delete.distribution-mode": "none",
        "read.split.adaptive-size.enabled": "false",
    }
    name = new_table(spark, version=2, properties=properties)
    numbered(spark, name, 0, 50)
    numbered(spark, name, 50, 100)
    spark.sql(f"DELETE FROM {name} WHERE id IN (1, 2, 51, 52)")
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '3')")
    delete(spark, name, "id IN (3, 4)")
    left = [each for each in range(100) if each not in (1, 2, 3, 4, 51, 52)]
    check(spark, name, left)
    kinds = [(kind, rows) for _, kind, rows in deletes_of(spark, name)]
    # A file of position deletes of several data files stays, one of a single data file is replaced.
    assert kinds == [("PARQUET", 2 if granularity == "file" else 4), ("PUFFIN", 4)]
    delete(spark, name, "id = 53")
    left.remove(53)
    check(spark, name, left)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["avro", "orc"])
def test_position_deletes_of_other_formats(spark: SparkSession, kind: str) -> None:
    name = new_table(spark, version=2, properties={"write.delete.format.default": kind})
    numbered(spark, name, 0, 50)
    spark.sql(f"DELETE FROM {name} WHERE id IN (1, 2)")
    assert deletes_of(spark, name) == [(1, kind.upper(), 2)]
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '3')")
    delete(spark, name, "id = 3")
    assert by_spark(spark, name) == [0, *range(4, 50)]  # PyIceberg does not read Avro


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.slow
def test_partitions_and_their_evolution(spark: SparkSession, version: int) -> None:
    columns = "id bigint, day date, s string, m decimal(9,2)"
    name = new_table(spark, columns, "PARTITIONED BY (days(day), s)", version)
    insert(
        spark,
        name,
        "(1, date'2026-01-01', 'a b', 1.5), (2, date'2026-01-01', 'a b', 2.5),"
        " (3, NULL, NULL, NULL), (4, NULL, NULL, 1), (5, date'1969-12-31', '\"é/=', 3)",
        "(15, date'1969-12-31', '\"é/=', 3)",
    )
    spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD m")
    spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD s")
    insert(spark, name, "(6, date'2026-01-02', 'x', 2.5), (7, date'2026-01-02', 'x', 2.5)")
    spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD truncate(2, s)")
    spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD bucket(4, id)")
    insert(spark, name, "(8, NULL, NULL, NULL)", "(8, NULL, NULL, 2.5), (9, NULL, 'abc', NULL)")
    report = delete(spark, name, "id IN (1, 3, 6) OR m = 3 AND id < 10")
    check(spark, name, [2, 4, 7, 8, 8, 9, 15])
    assert (report.files_removed, report.vectors_added) == (1, 3)
    delete(spark, name, "m = 2.5")
    check(spark, name, [4, 8, 9, 15])


@pytest.mark.more
def test_changed_columns(spark: SparkSession) -> None:
    name = new_table(spark)
    numbered(spark, name, 0, 10)
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN n TO id2")
    spark.sql(f"ALTER TABLE {name} DROP COLUMN s")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN n string")
    delete(spark, name, "id2 = 3 AND n IS NULL")  # a column that no snapshot has yet
    check(spark, name, [0, 1, 2, 4, 5, 6, 7, 8, 9])
    insert(spark, name, "(10, 4, 'x')")
    delete(spark, name, "id2 = 4 AND n = 'x'")
    check(spark, name, [0, 1, 2, 4, 5, 6, 7, 8, 9])
    with pytest.raises(InvalidArgumentError, match="no column s "):
        delete(spark, name, "s = 's1'")


@pytest.mark.slow
def test_conditions_of_all_kinds(spark: SparkSession) -> None:
    name = new_table(spark)
    numbered(spark, name, 0, 30)
    delete(spark, name, f"id IN (SELECT max(id) FROM {name})")
    others = f"SELECT id AS other FROM {name}"
    delete(spark, name, f"EXISTS (SELECT 1 FROM ({others}) WHERE other = n + 25)")
    delete(spark, name, "_pos = 4")
    delete(spark, name, F.col("s").rlike("^s5$"))
    check(spark, name, [each for each in range(6, 29) if each % 10 > 3])
    for wrong in ("id = = 1", "nothing = 1", "id + 1"):
        with pytest.raises(InvalidArgumentError):
            delete(spark, name, wrong)


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
