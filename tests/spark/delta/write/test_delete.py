"""What DELETE means, with delta-spark as the judge."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions

from delvec import DeltaTable
from delvec.errors import DelvecError, InvalidArgumentError
from tests.delta import log_files
from tests.delta.builder import TableBuilder
from tests.marks import slow_but
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import settings_of
from tests.spark.delta.write.judge import FEED, KINDS, copy_of, folder, judged, lazily_made, rows_of

pytestmark = pytest.mark.spark

INLINE = {  # rows 0 and 5, by delta-rs
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000315c8Xg000f5",
    "sizeInBytes": 36,
    "cardinality": 2,
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files of five rows; row 3 is gone."""
    rows = "SELECT id, IF(id = 7, NULL, concat('t', id)), INT(id % 2)"
    return lazily_made(
        spark,
        tmp_path_factory,
        KINDS,
        "id BIGINT, v STRING, p INT",
        f"INSERT INTO {{T}} {rows} FROM range(0, 5, 1, 1)",
        f"INSERT INTO {{T}} {rows} FROM range(5, 10, 1, 1)",
        "DELETE FROM {T} WHERE id = 3",
    )


Case = tuple[str, str | None, Any, dict[str, int]]
# The kind of table, the condition for delta-spark and for delvec, and what the report says.
CASES: dict[str, Case] = {
    "by vector": ("feed", "id IN (2, 6)", None, {"vectors_added": 1, "vectors_updated": 1}),
    "copied": ("copied", "v > 't1' AND v < 't6'", None, {"files_added": 1, "rows_copied": 6}),
    "copied with whole files": (
        "copied",
        "id < 5 OR id = 8",
        None,
        {"files_removed": 2, "rows_copied": 4},
    ),
    "by partition": (
        "parts",
        "p = 1",
        lambda: functions.col("p") == 1,  # a column needs a session
        {"scans": 0, "vector_files": 0, "files_removed": 2, "rows_deleted": 4},
    ),
    "by statistics": (
        "feed",
        "id >= 5",
        None,
        {"scans": 0, "vector_files": 0, "files_removed": 1, "rows_deleted": 5, "files_pruned": 1},
    ),
    "the rest of a file": (
        "feed",
        "v IN ('t0', 't1', 't2', 't4')",
        None,
        {"files_removed": 1, "vector_files": 0, "vectors_removed": 1, "rows_deleted": 4},
    ),
    "all": ("feed", "true", None, {"rows_deleted": 9}),
    "null": ("feed", "v > 't5'", None, {"rows_deleted": 3}),
    "nothing": ("feed", "v = 'none'", None, {"rows_deleted": 0}),
    "a condition that is no boolean": ("feed", "id + 1", None, {}),
    "an unknown name": ("feed", "nope = 1", None, {}),
}
FAST = {"by vector", "by partition", "the rest of a file"}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", slow_but(FAST, CASES))
def test_delta_spark_does_the_same(spark: SparkSession, tables: dict[str, Path], name: str) -> None:
    kind, sql, where, figures = CASES[name]
    result = judged(
        spark,
        tables[kind],
        name,
        f"DELETE FROM {{T}} WHERE {sql}",
        lambda t: t.delete(sql if where is None else where()),
        "numDeletedRows",
    )
    if figures:
        assert {each: getattr(result.done, each) for each in figures} == figures
    if name == "nothing":
        assert result.done.version is None
    if name == "by vector":  # and again what is gone already, and what is not
        table = DeltaTable.for_path(spark, result.path)
        assert table.delete("id IN (2, 6)").version is None
        assert table.delete("id IN (2, 6, 7)").rows_deleted == 1


# Who makes vectors and who reads them: tasks, if the driver may hold none.
BY_TASKS = {"write": "spark.delvec.write.hitMemory", "scan": "spark.delvec.scan.vectorMemory"}


def big(path: Path) -> None:
    """Make a table of two files of 70,000 rows without statistics, in several row groups."""
    table = TableBuilder(path)
    table.create()
    adds = []
    for number in range(2):
        ids = pa.array(range(number * 70_000, (number + 1) * 70_000))
        add = table.write_file(f"part {number}.parquet", {"id": ids}, row_group_size=20_000)
        del add["stats"]
        adds.append(add | {"path": f"part%20{number}.parquet"})
    table.commit(*({"add": add} for add in adds))


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [(), ("write", "scan")])
def test_all_forms_do_the_same_in_files_without_statistics(
    spark: SparkSession, tmp_path: Path, tasks: tuple[str, ...]
) -> None:
    path = tmp_path / "t"
    big(path)
    table = DeltaTable.for_path(spark, path)
    with settings_of(spark, {BY_TASKS[each]: "0" for each in tasks}):
        first = table.delete("id % 69999 = 7 OR id BETWEEN 30000 AND 35000")
        assert (first.rows_deleted, first.vectors_added) == (5003, 2)
        second = table.delete("id IN (69999, 70000, 7, 8, 139999)")
        assert (second.rows_deleted, second.vectors_updated) == (4, 2)
        third = table.delete("id >= 70000 AND id % 1 = 0")
        assert (third.rows_deleted, third.files_removed) == (69_997, 1)
        rows = table.to_df().toArrow().column("id").to_pylist()
    left = set(range(70_000)) - {7, 8, 69_999, *range(30_000, 35_001)}
    assert len(rows) == len(left)
    assert set(rows) == left
    [add] = log_files.live_adds(path)
    assert json.loads(add["stats"])["numRecords"] == 70_000
    prefix = add["deletionVector"]["pathOrInlineDv"][:-20]
    assert len(prefix) == (8 if "write" in tasks else 0)
    vectors = [name for name in folder(path) if name.endswith(".bin")]
    assert any(name.startswith(f"{prefix}/" if prefix else "deletion_vector_") for name in vectors)
    theirs = spark_tables.as_delta_spark_reads(spark, path)
    assert theirs.count() == len(left)
    assert theirs.where("id IN (7, 30000, 69999, 69998)").count() == 1


def test_vectors_by_tasks_leave_nothing_when_the_commit_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id long")
    table.append(spark.range(0, 20, 1, 1))
    before = folder(tmp_path / "t")
    with settings_of(spark, {BY_TASKS["write"]: "0"}):
        assert table.delete("id = 3", dry_run=True).rows_deleted == 1
        assert folder(tmp_path / "t") == before
        with pytest.raises(DelvecError):
            table.delete("id = 3 OR raise_error('no') IS NULL")
    assert folder(tmp_path / "t") == before


def test_vectors_of_any_kind_grow(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    builder = TableBuilder(path)
    builder.create()
    adds = [builder.write_file(f"{n}.parquet", {"id": range(n * 10, n * 10 + 10)}) for n in (0, 1)]
    builder.commit(*({"add": add} for add in adds))
    builder.delete(adds[0], INLINE)
    [vector] = builder.write_vectors([3])
    name = str(builder.vector_path())
    absolute = vector | {"storageType": "p", "pathOrInlineDv": f"file://{name}"}
    builder.delete(adds[1], absolute)
    table = DeltaTable.for_path(spark, path)
    report = table.delete("id IN (0, 5, 6, 10)")
    assert (report.rows_deleted, report.vectors_updated) == (2, 2)
    expected = set(range(20)) - {0, 5, 6, 10, 13}
    assert {row.id for row in table.to_df().collect()} == expected
    assert sum(rows_of(spark, path).values()) == len(expected)


@pytest.mark.slow
def test_a_clone_is_written_and_its_source_stays(
    spark: SparkSession, tables: dict[str, Path], tmp_path: Path
) -> None:
    source = copy_of(tables["parts"], "cloned")
    clone = tmp_path / "clone"
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{source}`")
    before, was = folder(source), rows_of(spark, source)
    table = DeltaTable.for_path(spark, clone)
    assert table.delete("id IN (1, 2)").rows_deleted == 2
    assert table.update({"v": "'new'"}, "id = 1 OR id = 5").rows_updated == 1
    left = Counter(row.id for row in table.to_df().collect())
    assert left == Counter([0, 4, 5, 6, 7, 8, 9])
    assert sum(rows_of(spark, clone).values()) == 7
    assert folder(source) == before
    assert rows_of(spark, source) == was


def test_a_file_is_written_anew_when_enough_of_it_is_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id long, v string", properties=FEED)
    table.append(spark.range(0, 20, 1, 2).selectExpr("id", "'x' v"))
    report = table.delete("id IN (1, 10, 11, 12, 13, 14)", rewrite_ratio=0.5)
    assert (report.vectors_added, report.files_added, report.files_removed) == (1, 1, 1)
    assert (report.rows_deleted, report.rows_copied) == (6, 5)
    gone = table.changes(report.version).collect()
    assert sorted((row.id, row._change_type) for row in gone) == [
        (row, "delete") for row in (1, 10, 11, 12, 13, 14)
    ]
    assert sum(rows_of(spark, tmp_path / "t").values()) == 14
    for ratio in (0, -1, 1.5):
        with pytest.raises(InvalidArgumentError, match="rewrite_ratio"):
            table.delete("id = 1", rewrite_ratio=ratio)


def test_conditions_that_need_other_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id long")
    table.append(spark.range(10))
    spark.range(3, 5).createOrReplaceTempView("doomed")
    assert table.delete("id IN (SELECT id FROM doomed)").rows_deleted == 2
    assert table.delete("id < (SELECT min(id) - 2 FROM doomed)").rows_deleted == 1
    with settings_of(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):  # by a shuffle
        assert table.delete("id IN (SELECT id * 2 FROM doomed)").rows_deleted == 2
        assert table.update({"id": "-id"}, where="id IN (SELECT id + 2 FROM doomed)").rows_updated
    spark.catalog.dropTempView("doomed")
    assert sorted(row.id for row in table.to_df().collect()) == [-5, 1, 2, 7, 9]
    with pytest.raises(InvalidArgumentError):
        table.delete("sum(id) > 3")
    with pytest.raises(InvalidArgumentError):
        table.delete("id =")
    before = table.count()
    report = table.delete("rand() < 0.5")
    assert table.count() == before - report.rows_deleted
