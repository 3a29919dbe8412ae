"""Folders of Parquet converted beside delta-spark's CONVERT: the same columns and rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.errors import DelvecError
from tests.delta import log_files
from tests.delta.maintain.test_convert_parquet import SAME, VALUES
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import INTERPRETED, settings_of
from tests.spark.delta.write.judge import rows_of

pytestmark = pytest.mark.spark


def both(
    spark: SparkSession,
    path: Path,
    partitions: str = "",
    partition_by: Any = None,  # noqa: ANN401
) -> tuple[DeltaTable, DeltaTable]:
    """Convert a folder with delvec, and a copy with delta-spark."""
    theirs = path.parent / f"{path.name}-theirs"
    shutil.copytree(path, theirs)
    clause = f"PARTITIONED BY ({partitions})" if partitions else ""
    with settings_of(spark, INTERPRETED):
        spark.sql(f"CONVERT TO DELTA parquet.`{theirs}` {clause}")
    off = {"delta.enableDeletionVectors": "false"}
    DeltaTable.convert_to_delta(None, path, partition_by, off)
    return DeltaTable.for_path(None, path), DeltaTable.for_path(None, theirs)


def same(spark: SparkSession, ours: DeltaTable, theirs: DeltaTable) -> None:
    assert str(ours.schema) == str(theirs.schema)
    assert ours.schema.to_json() == theirs.schema.to_json()
    assert ours.partition_columns == theirs.partition_columns
    assert ours.protocol == theirs.protocol
    paths = [Path(table.storage.root) for table in (ours, theirs)]
    assert rows_of(spark, paths[0]) == rows_of(spark, paths[1])
    entries = [
        {add["path"]: (add["partitionValues"], add["size"]) for add in log_files.live_adds(path)}
        for path in paths
    ]
    assert entries[0] == entries[1]


@pytest.mark.slow
def test_files_of_spark_become_the_table_of_delta_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "folder"
    values = """
        id, int(id % 3) AS shop, date_add(date'2026-01-01', int(id % 2)) AS day, tinyint(id) AS b,
        smallint(id) AS sh, cast(id as decimal(9, 2)) AS d, timestamp_micros(id) AS at,
        timestamp_ntz'2026-01-01 10:00:00' AS ntz, array(id) AS arr, map('k', id) AS m,
        named_struct('x', id, 'y', 'text') AS st, cast('x' as binary) AS bin, 'a' AS s
    """
    with settings_of(spark, INTERPRETED):
        frame = spark.sql(f"SELECT {values} FROM range(0, 20, 1, 2)")
        frame.write.partitionBy("day", "shop").parquet(str(path))
    ours, theirs = both(spark, path, "day date, shop int", {"day": "date", "shop": "int"})
    same(spark, ours, theirs)
    inferred = tmp_path / "inferred"
    shutil.copytree(path, inferred)
    shutil.rmtree(inferred / "_delta_log")
    DeltaTable.convert_to_delta(None, inferred)
    assert DeltaTable.for_path(None, inferred).schema == ours.schema


@pytest.mark.slow
def test_files_of_arrow_have_the_types_of_delta_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    columns = {
        name: pa.array([VALUES.get(name, 1), None], stored) for name, (stored, _) in SAME.items()
    }
    pq.write_table(pa.table(columns), path / "a.parquet")
    ours, theirs = both(spark, path)
    same(spark, ours, theirs)


@pytest.mark.slow
def test_old_timestamps_are_the_same_instants(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    rows = pa.table({"at": pa.array([0, 1_700_000_000_123_456], pa.timestamp("us"))})
    pq.write_table(rows, path / "a.parquet", use_deprecated_int96_timestamps=True)
    same(spark, *both(spark, path))


@pytest.mark.slow
def test_schemas_are_united_as_by_delta_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    inner = pa.struct([("x", pa.int8())])
    more = pa.struct([("x", pa.int32()), ("y", pa.string())])
    first = pa.table({"id": [1], "s": pa.array([{"x": 1}], inner)})
    second = pa.table({"id": [2], "s": pa.array([{"x": 7, "y": "z"}], more), "new": ["n"]})
    pq.write_table(first, path / "a.parquet")
    pq.write_table(second, path / "b.parquet")
    ours, theirs = both(spark, path)
    assert {str(field.type) for field in ours.schema.fields} == {
        str(field.type) for field in theirs.schema.fields
    }
    assert sum(rows_of(spark, path).values()) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "stored", [pa.time64("us"), pa.timestamp("ns"), pa.float16(), pa.decimal256(50, 2)], ids=str
)
def test_what_is_refused_delta_spark_refuses_too(
    spark: SparkSession, tmp_path: Path, stored: pa.DataType
) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    pq.write_table(pa.table({"a": pa.nulls(1, stored)}), path / "a.parquet")
    with pytest.raises(DelvecError):
        DeltaTable.convert_to_delta(None, path)
    with pytest.raises((PySparkException, Py4JError)):
        spark.sql(f"CONVERT TO DELTA parquet.`{path}`").collect()


@pytest.mark.slow
def test_both_engines_work_on_a_converted_table(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    for number in range(2):
        ids = pa.array(range(number * 10, number * 10 + 10), pa.int64())
        pq.write_table(pa.table({"id": ids}), path / f"part {number}.parquet")
    DeltaTable.convert_to_delta(None, path)
    [told] = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()
    assert told.operation == "CONVERT"
    assert told.operationMetrics == {"numConvertedFiles": "2"}
    table = DeltaTable.for_path(spark, path)
    spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id = 3")
    table.delete("id = 4")
    spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id >= 12")
    assert sum(rows_of(spark, path).values()) == 10
    assert table.snapshot().files.has_vector.all()
    [first] = [
        json.loads(a["stats"])
        for a in log_files.live_adds(path)
        if a["path"].startswith("part%200")
    ]
    assert first["numRecords"] == 10


@pytest.mark.more
def test_of_the_target_of_a_stream_the_files_are_those_that_spark_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, path = tmp_path / "source", tmp_path / "the target"
    rows = spark.range(10).selectExpr("id", "concat('a b%', id % 2) AS part")
    rows.repartition(5, "id").write.parquet(str(source))
    stream = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1)
    with settings_of(spark, {"spark.sql.streaming.fileSink.log.compactInterval": "3"}):
        query = (
            stream.parquet(str(source))
            .writeStream.partitionBy("part")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(path))
        )
        query.awaitTermination()
    assert list(path.glob("_spark_metadata/2.compact"))
    failed = next(path.rglob("part-*.parquet"))
    shutil.copy(failed, failed.with_name("part-of-an-attempt.parquet"))
    expected = sorted(map(tuple, spark.read.parquet(str(path)).collect()))
    assert len(expected) == 10
    report = DeltaTable.convert_to_delta(None, path)
    assert "left out: 1 file" in report.notes[1]
    assert sorted(map(tuple, DeltaTable.for_path(spark, path).to_df().collect())) == expected
    assert sum(rows_of(spark, path).values()) == 10
