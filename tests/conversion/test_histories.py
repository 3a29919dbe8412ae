"""Histories that change more than rows, and what is said of conversions that follow them."""

from __future__ import annotations

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
from delvec.errors import ConflictError, PlanError, UnsupportedFeatureError, VerificationError
from tests.conversion.targets import Pair
from tests.delta.builder import TableBuilder, removed
from tests.spark.delta.spark_tables import as_delta_spark_reads, sql

Action = dict[str, Any]

MAPPED = "'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true'"


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


@pytest.mark.slow
@pytest.mark.spark
def test_a_history_of_files_that_are_copied_and_marked_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, target = tmp_path / "t", "lake.histories.copies"
    sql(
        spark,
        path,
        f"CREATE TABLE {{T}} (id LONG, l ARRAY<INT>) USING delta TBLPROPERTIES ({MAPPED})",
        "INSERT INTO {T} SELECT id, array(1) FROM range(0, 10, 1, 1)",
        "DELETE FROM {T} WHERE id = 1",
        "DELETE FROM {T} WHERE id = 2",
    )
    report = delvec.convert(
        spark, path, target, history="per-version", copy_files=True, verify="rows"
    )
    assert (report.versions, report.files_copied, report.vectors_replaced) == (4, 1, 1)
    assert same(spark, path, target)
    for version in (1, 2):
        tagged = spark.sql(f"SELECT id FROM {target} VERSION AS OF 'delta-version-{version}'")
        assert rows(tagged) == rows(as_delta_spark_reads(spark, path, version).select("id"))


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
def test_maintenance_of_the_source_is_followed(
    pair: Pair, format_version: int, history: str
) -> None:
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
