"""Folders of Parquet converted beside delta-spark's CONVERT: the same columns and rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from delvec import DeltaTable
from delvec.errors import DelvecError
from tests.delta import log_files
from tests.delta.maintain.test_convert_parquet import SAME, VALUES
from tests.spark.delta.lake import Lake
from tests.spark.delta.readers import INTERPRETED, settings_of

pytestmark = pytest.mark.spark


def require_same(lake: Lake, **types: str) -> DeltaTable:
    """Convert a folder with delvec and a copy with delta-spark, by the types of partitions."""
    theirs = lake.copy("theirs")
    listed = ", ".join(f"{name} {kind}" for name, kind in types.items())
    clause = f"PARTITIONED BY ({listed})" if types else ""
    with settings_of(lake.spark, INTERPRETED):
        lake.spark.sql(f"CONVERT TO DELTA parquet.`{theirs.path}` {clause}")
    off = {"delta.enableDeletionVectors": "false"}
    DeltaTable.convert_to_delta(None, lake.path, types or None, off)
    facts, entries = [], []
    for each in (lake, theirs):
        table = each.bare
        schema = str(table.schema), table.schema.to_json()
        facts.append((schema, table.partition_columns, table.protocol, each.rows()))
        adds = log_files.live_adds(each.path)
        entries.append({add["path"]: (add["partitionValues"], add["size"]) for add in adds})
    assert facts[0] == facts[1]
    assert entries[0] == entries[1]
    return lake.bare


@pytest.mark.slow
def test_files_of_spark_become_the_table_of_delta_spark(lake: Lake) -> None:
    values = """
        id, int(id % 3) AS shop, date_add(date'2026-01-01', int(id % 2)) AS day, tinyint(id) AS b,
        smallint(id) AS sh, cast(id as decimal(9, 2)) AS d, timestamp_micros(id) AS at,
        timestamp_ntz'2026-01-01 10:00:00' AS ntz, array(id) AS arr, map('k', id) AS m,
        named_struct('x', id, 'y', 'text') AS st, cast('x' as binary) AS bin, 'a' AS s
    """
    with settings_of(lake.spark, INTERPRETED):
        frame = lake.spark.sql(f"SELECT {values} FROM range(0, 20, 1, 2)")
        frame.write.partitionBy("day", "shop").parquet(str(lake.path))
    inferred = lake.copy("inferred")
    ours = require_same(lake, day="date", shop="int")
    DeltaTable.convert_to_delta(None, inferred.path)
    assert inferred.bare.schema == ours.schema


INNER = [("x", pa.int8())], [("x", pa.int32()), ("y", pa.string())]
# The tables of one file each of a folder.
FOLDERS: dict[str, list[pa.Table]] = {
    "every type of Arrow": [
        pa.table({n: pa.array([VALUES.get(n, 1), None], kind) for n, (kind, _) in SAME.items()})
    ],
    "old timestamps": [pa.table({"at": pa.array([0, 1_700_000_000_123_456], pa.timestamp("us"))})],
    "schemas that are united": [
        pa.table({"id": [1], "s": pa.array([{"x": 1}], pa.struct(INNER[0]))}),
        pa.table(
            {"id": [2], "s": pa.array([{"x": 7, "y": "z"}], pa.struct(INNER[1])), "new": ["n"]}
        ),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_files_of_arrow_become_the_table_of_delta_spark(lake: Lake, name: str) -> None:
    lake.path.mkdir()
    for number, rows in enumerate(FOLDERS[name]):
        file, is_old = lake.path / f"{number}.parquet", name == "old timestamps"
        pq.write_table(rows, file, use_deprecated_int96_timestamps=is_old)
    if "united" not in name:
        require_same(lake)
        return
    theirs = lake.copy("theirs")
    lake.spark.sql(f"CONVERT TO DELTA parquet.`{theirs.path}`")
    DeltaTable.convert_to_delta(None, lake.path)
    types = [{str(field.type) for field in each.bare.schema.fields} for each in (lake, theirs)]
    assert (types[0], lake.rows().total()) == (types[1], 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "stored", [pa.time64("us"), pa.timestamp("ns"), pa.float16(), pa.decimal256(50, 2)], ids=str
)
def test_what_is_refused_delta_spark_refuses_too(lake: Lake, stored: pa.DataType) -> None:
    lake.path.mkdir()
    pq.write_table(pa.table({"a": pa.nulls(1, stored)}), lake.path / "a.parquet")
    with pytest.raises(DelvecError):
        DeltaTable.convert_to_delta(None, lake.path)
    with pytest.raises((PySparkException, Py4JError)):
        lake.spark.sql(f"CONVERT TO DELTA parquet.`{lake.path}`").collect()


@pytest.mark.slow
def test_both_engines_work_on_a_converted_table(lake: Lake) -> None:
    lake.path.mkdir()
    for number in range(2):
        ids = pa.array(range(number * 10, number * 10 + 10), pa.int64())
        pq.write_table(pa.table({"id": ids}), lake.path / f"part {number}.parquet")
    DeltaTable.convert_to_delta(None, lake.path)
    [told] = lake.history()
    assert told["operation"] == "CONVERT"
    assert told["operationMetrics"] == {"numConvertedFiles": "2"}
    lake.sql("DELETE FROM {T} WHERE id = 3")
    lake.table.delete("id = 4")
    lake.sql("DELETE FROM {T} WHERE id >= 12")
    assert lake.rows().total() == 10
    assert lake.table.snapshot().files.has_vector.all()
    adds = log_files.live_adds(lake.path)
    [first] = [json.loads(a["stats"]) for a in adds if a["path"].startswith("part%200")]
    assert first["numRecords"] == 10


@pytest.mark.more
def test_of_the_target_of_a_stream_the_files_are_those_that_spark_reads(
    lake: Lake, tmp_path: Path
) -> None:
    source, path, spark = tmp_path / "source", tmp_path / "the target", lake.spark
    rows = spark.range(10).selectExpr("id", "concat('a b%', id % 2) AS part")
    rows.repartition(5, "id").write.parquet(str(source))
    stream = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1)
    writing = stream.parquet(str(source)).writeStream.partitionBy("part")
    writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with settings_of(spark, {"spark.sql.streaming.fileSink.log.compactInterval": "3"}):
        writing.trigger(availableNow=True).start(str(path)).awaitTermination()
    assert list(path.glob("_spark_metadata/2.compact"))
    failed = next(path.rglob("part-*.parquet"))
    shutil.copy(failed, failed.with_name("part-of-an-attempt.parquet"))
    expected = sorted(map(tuple, spark.read.parquet(str(path)).collect()))
    assert len(expected) == 10
    report = DeltaTable.convert_to_delta(None, path)
    assert "left out: 1 file" in report.notes[1]
    target = lake.beside(path.name)
    assert sorted(map(tuple, target.table.to_df().collect())) == expected
    assert target.rows().total() == 10
