"""Histories that change more than rows, and what is said of conversions that follow them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import delvec
from delvec import DeltaTable
from delvec.conversion import apply as applying
from delvec.conversion.apply import _require_apart
from delvec.delta.log.segment import file_count
from delvec.errors import ConflictError, PlanError, UnsupportedFeatureError, VerificationError
from delvec.storage import Storage
from tests.conversion.targets import Pair
from tests.delta.builder import TableBuilder, removed
from tests.spark.delta.spark_tables import as_delta_spark_reads, sql

Action = dict[str, Any]


def rows(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.collect()))


def same(spark: SparkSession, path: Path, target: str) -> bool:
    columns = as_delta_spark_reads(spark, path).columns
    found = spark.table(target).select(*columns)
    return rows(found) == rows(as_delta_spark_reads(spark, path))


@pytest.mark.parametrize("location", ["s3://b/wh/t/ice", "s3a://b/wh/t/ice", "s3n://b/wh"])
def test_a_target_inside_its_source_is_refused_in_any_spelling(location: str) -> None:
    with pytest.raises(PlanError, match="overlaps"):
        _require_apart(location, "s3a://b/wh/t")
    _require_apart("s3://b/wh/target", "s3a://b/wh/t")


@pytest.mark.slow
@pytest.mark.spark
def test_a_new_column_survives_a_conversion_that_was_not_published(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, target = tmp_path / "t", "lake.histories.column"
    sql(spark, path, "CREATE TABLE {T} (id LONG, l ARRAY<INT>) USING delta")
    sql(spark, path, "INSERT INTO {T} VALUES (1, array(1)), (2, NULL)")
    delvec.convert(spark, path, target)
    before = rows(spark.table(target))
    sql(spark, path, "ALTER TABLE {T} ADD COLUMN c STRUCT<x: INT, y: ARRAY<STRING>>")
    sql(spark, path, "INSERT INTO {T} VALUES (3, array(3), struct(3, array('z')))")

    def lost(*_: object) -> None:
        raise ConflictError("somebody else was first")

    with monkeypatch.context() as patch:
        patch.setattr(applying, "publish", lost)
        with pytest.raises(ConflictError):
            delvec.convert(spark, path, target)
    assert rows(spark.table(target)) == before
    delvec.convert(spark, path, target, verify="rows")
    assert same(spark, path, target)

    # All files are new, and a column has a type that no file from before could be read by.
    spark.sql("SELECT string(id) AS id, 'x' AS c FROM range(3)").write.format("delta").mode(
        "overwrite"
    ).option("overwriteSchema", "true").save(str(path))
    delvec.convert(spark, path, target, verify="rows")
    assert same(spark, path, target)


@pytest.mark.more
@pytest.mark.quick_cases(1)
@pytest.mark.spark
@pytest.mark.parametrize("history", ["latest", "per-version"])
def test_a_type_that_is_narrow_again_stays_wide_in_the_target(
    spark: SparkSession,
    tmp_path: Path,
    history: Any,  # noqa: ANN401
) -> None:
    """As delta-spark's RESTORE leaves a table; `tests/interop` has real ones."""
    target = f"lake.histories.narrow_{history.replace('-', '_')}"
    table = TableBuilder(tmp_path / "t", fields={"id": "long", "n": "integer"})
    narrow, wide = pa.int32(), pa.int64()

    def rows(name: str, number: int, kind: pa.DataType) -> Action:
        return table.write_file(name, {"id": [number], "n": pa.array([number], kind)})

    def changed(kind: str) -> Action:
        table.fields = {"id": "long", "n": kind}
        return {"metaData": table.metadata()}

    table.create()
    table.commit({"add": rows("a.parquet", 1, narrow)})
    delvec.convert(spark, table.root, target, history=history)
    large = rows("b.parquet", 5_000_000_000, wide)
    table.commit(changed("long"), {"add": large})
    assert delvec.convert(spark, table.root, target, history=history).notes == ()
    table.commit(changed("integer"), {"remove": removed(large)})
    table.commit({"add": rows("c.parquet", 3, narrow)})
    report = delvec.convert(spark, table.root, target, history=history, verify="rows")
    assert (report.mode, report.versions) == ("incremental", 1 if history == "latest" else 2)
    [note] = report.notes
    assert "'n' is long and not int" in note
    found = spark.table(target)
    assert dict(found.dtypes)["n"] == "bigint"
    assert sorted(map(tuple, found.collect())) == [(1, 1), (3, 3)]
    assert sorted(map(tuple, found.where("n > 2").collect())) == [(3, 3)]


@pytest.mark.slow
@pytest.mark.spark
def test_a_history_of_other_partitions_is_refused_and_the_newest_version_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, target = tmp_path / "t", "lake.histories.partitions"
    frame = spark.sql("SELECT int(id) AS a, int(id * 7) AS b, id FROM range(3)")
    writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.partitionBy("a").save(str(path))
    writer.partitionBy("b").save(str(path))
    with pytest.raises(UnsupportedFeatureError, match="partitioned in another way"):
        delvec.convert(spark, path, target, history="per-version")
    delvec.convert(spark, path, target, verify="rows")
    assert same(spark, path, target)


@pytest.mark.more
@pytest.mark.spark
def test_phases_are_reported_in_order_and_the_callers_job_description_is_restored(
    pair: Pair,
) -> None:
    context: Any = pair.spark.sparkContext
    context.setJobDescription("mine")
    try:
        report = pair.convert()
        again = pair.convert()
        assert context.getLocalProperty("spark.job.description") == "mine"
    finally:
        context.setJobDescription(None)
    assert list(report.phases) == ["plan", "vectors", "stage", "verify", "publish"]
    assert list(again.phases) == ["plan"]
    assert (report.rows, report.deleted_rows) == (again.rows, again.deleted_rows) == (16, 4)
    assert (report.vector_files, again.vector_files) == (1, 0)


@pytest.mark.slow
@pytest.mark.spark
def test_files_with_the_same_rows_are_not_named_whatever_their_names(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = ["a b", "c%20d", "e%2520f", "ü&", "plain"]
    rows = ", ".join(f"({number}, '{value}')" for number, value in enumerate(values))
    sql(
        spark,
        tmp_path / "source",
        "CREATE TABLE {T} (id LONG, p STRING) USING delta PARTITIONED BY (p)",
        f"INSERT INTO {{T}} VALUES {rows}",
    )
    sums = count()
    monkeypatch.setattr(applying, "row_sums", lambda *_: (next(sums), 0))
    with pytest.raises(VerificationError) as different:
        delvec.convert(spark, tmp_path / "source", "lake.apply.named", verify="rows")
    assert not different.value.files


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("format_version", [3, 2])
@pytest.mark.parametrize("history", ["latest", "per-version"])
def test_upkeep_of_the_source_is_followed(pair: Pair, format_version: int, history: str) -> None:
    table = DeltaTable.for_path(pair.spark, pair.source.root)
    steps: list[tuple[Callable[[], object], int]] = [
        (lambda: None, 2),
        (table.optimize, 0),
        (lambda: table.delete("id IN (5, 15)"), 1),
        (lambda: table.restore(2), 2),
        (table.recompute_statistics, 2),
        (table.purge, 0),
        (lambda: table.vacuum(0, force=True, dry_run=True), 0),
        (lambda: table.optimize(zorder_by=["id"]), 0),
    ]
    for act, vectors in steps:
        act()
        pair.convert(format_version=format_version, history=history, verify="rows")
        assert pair.ids() == pair.in_delta(table.version)
        assert len(pair.delete_paths()) == vectors


REBASE = "spark.sql.parquet.datetimeRebaseModeInWrite"
OLD = "SELECT id, date'1200-02-03' AS d, timestamp'2020-01-01' AS t FROM range(0, 3, 1, 1)"


@pytest.mark.slow
@pytest.mark.spark
def test_dates_of_another_calendar_alone_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get(REBASE)
    try:
        for mode in ("LEGACY", "CORRECTED"):
            spark.conf.set(REBASE, mode)
            spark.sql(OLD).write.format("delta").save(str(tmp_path / mode))
    finally:
        spark.conf.set(REBASE, str(before))
    with pytest.raises(UnsupportedFeatureError, match=r"part-.*parquet .* before 1582") as caught:
        delvec.plan_conversion(spark, tmp_path / "LEGACY", "lake.calendars.legacy")
    assert caught.value.hint
    delvec.convert(spark, tmp_path / "CORRECTED", "lake.calendars.corrected", verify="rows")
    found = spark.table("lake.calendars.corrected").collect()
    assert found == as_delta_spark_reads(spark, tmp_path / "CORRECTED").collect()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"numFiles": "3"}', '{"tableSizeBytes": 1}'])
def test_a_checksum_that_says_nothing_is_no_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020d}.crc").write_text(text)
    storage = Storage.open(tmp_path)
    assert file_count(storage, 0) is None
    assert file_count(storage, 1) is None


@pytest.mark.slow
@pytest.mark.spark
def test_a_source_that_moved_and_one_that_counts_wrong(spark: SparkSession, tmp_path: Path) -> None:
    first, moved, target = tmp_path / "first", tmp_path / "moved", "lake.totals.moved"
    properties = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    sql(spark, first, f"CREATE TABLE {{T}} (id LONG) USING delta {properties}")
    sql(spark, first, "INSERT INTO {T} SELECT * FROM range(0, 20, 1, 2)")
    delvec.convert(spark, first, target)
    shutil.copytree(first, moved)
    shutil.rmtree(first)

    # Nothing but the place has changed: the names of all files have, then.
    sql(spark, moved, "DELETE FROM {T} WHERE id % 3 = 0")
    report = delvec.convert(spark, moved, target, verify="rows")
    assert report.mode == "full"
    assert "the source was at" in report.notes[0]
    assert (report.files_added, report.files_removed) == (2, 2)
    reading = sorted(spark.table(target).collect())
    assert reading == sorted(as_delta_spark_reads(spark, moved).collect())

    # The target would have a file more than the source says that it has.
    sql(spark, moved, "INSERT INTO {T} SELECT * FROM range(20, 30, 1, 1)")
    checksum = moved / "_delta_log" / f"{3:020d}.crc"
    told = json.loads(checksum.read_text())
    assert file_count(Storage.open(moved), 3) == told["numFiles"] == 3
    checksum.write_text(json.dumps({**told, "numFiles": 2}))
    with pytest.raises(VerificationError, match="as many data files") as caught:
        delvec.convert(spark, moved, target)
    assert (caught.value.expected, caught.value.found) == (2, 3)
    assert sorted(spark.table(target).collect()) == reading
    assert [row.name for row in spark.sql(f"SELECT name FROM {target}.refs").collect()] == ["main"]
    checksum.unlink()
    delvec.convert(spark, moved, target)
    assert spark.table(target).count() == as_delta_spark_reads(spark, moved).count()
    summaries = [
        row.summary for row in spark.sql(f"SELECT summary FROM {target}.snapshots").collect()
    ]
    names = ("total-data-files", "total-records", "total-position-deletes")
    assert [summaries[-1][name] for name in names] == ["3", "30", "7"]
