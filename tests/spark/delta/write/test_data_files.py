"""`write_rows`: files, partitions and statistics as delta-spark would write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as RustTable
from deltalake import QueryBuilder
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delvec import DeltaTable
from delvec.delta.schema.metadata import Metadata
from delvec.errors import InvalidArgumentError, PlanError
from delvec.spark import jvm
from delvec.spark.delta.write.data_files import WrittenFiles, _encoded, write_rows
from delvec.storage import Storage
from tests.delta.log_files import commits, live_adds
from tests.delta.rows import same_rows
from tests.spark.delta.readers import by_frame, settings_of
from tests.spark.delta.spark_tables import as_delta_spark_reads, create, sql

pytestmark = pytest.mark.spark

TYPES = """
    id INT, by BYTE, sh SHORT, l LONG, f FLOAT, d DOUBLE, dec DECIMAL(38,10), price DECIMAL(5,2),
    bo BOOLEAN, bi BINARY, s STRING, dt DATE, ts TIMESTAMP, tn TIMESTAMP_NTZ, v VARIANT,
    a ARRAY<STRUCT<c: INT>>, m MAP<STRING, STRUCT<e: INT>>,
    st STRUCT<x: INT, y: STRUCT<z: STRING, w: BOOLEAN>>, nothing STRING
"""
ROWS = """
    SELECT 1, 1Y, 2S, 4L, 1.5F, -0.0D, 1234567890123456789012345678.0123456789, -1.50, true,
        X'00ff', repeat('\u00fc', 40), DATE'0001-01-01', TIMESTAMP'1969-12-31 23:59:59.9999',
        TIMESTAMP_NTZ'1960-01-01 00:00:00.123456', parse_json('{"a":1}'), array(struct(1), null),
        map('a', struct(2)), struct(1, struct('z', true)), null
    UNION ALL SELECT 2, -1Y, -2S, -4L, 0.1F, 0.1D, -0.5, 1.5, false, X'01', 'a', DATE'9999-12-31',
        TIMESTAMP'2026-01-01 00:00:00.1239', TIMESTAMP_NTZ'2026-01-01 00:00:00', null, null, null,
        null, null
"""


def metadata_of(path: Path) -> Metadata:
    actions = [action for each in commits(path) for action in each]
    return Metadata.from_json([each["metaData"] for each in actions if "metaData" in each][-1])


def written_twice(
    spark: SparkSession,
    tmp_path: Path,
    columns: str,
    rows: str,
    **options: Any,  # noqa: ANN401
) -> tuple[Path, WrittenFiles, Path]:
    """Write rows by delvec into one table, by delta-spark into another."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for path in (ours, theirs):
        create(spark, path, columns, **options)
    sql(spark, theirs, f"INSERT INTO {{T}} SELECT /*+ COALESCE(1) */ * FROM ({rows})")
    frame = as_delta_spark_reads(spark, theirs).coalesce(1)
    written = write_rows(spark, Storage.open(ours), metadata_of(ours), frame, tight_bounds=True)
    actions = [{"commitInfo": {"timestamp": 1, "operation": "WRITE"}}]
    actions += [{"add": add} for add in written.adds]
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (ours / "_delta_log" / f"{len(commits(ours)):020d}.json").write_text(text)
    return ours, written, theirs


def comparable(stats: str) -> dict[str, Any]:
    """Give statistics without what only delta-spark knows, zones and shortened floats alike."""
    found = json.loads(stats)
    for name in ("a", "m"):
        found["nullCount"].pop(name, None)
    for bounds in (found["minValues"], found["maxValues"]):
        bounds.pop("ts", None)  # delta-spark writes it in the session's zone
        if "f" in bounds:
            bounds["f"] = float(np.float32(bounds["f"]))
    return found  # type: ignore[no-any-return]


@pytest.mark.slow
def test_all_types_are_written_as_by_delta_spark(spark: SparkSession, tmp_path: Path) -> None:
    user_settings = {
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.writeLegacyFormat": "true",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    }
    with settings_of(spark, user_settings):
        ours, written, theirs = written_twice(spark, tmp_path, TYPES, ROWS)
        assert {key: spark.conf.get(key) for key in user_settings} == user_settings
    [add], [theirs_add] = written.adds, live_adds(theirs)
    assert comparable(add["stats"]) == comparable(theirs_add["stats"])
    stats = json.loads(add["stats"])
    assert stats["minValues"]["ts"] == "1969-12-31T22:59:59.999Z"
    assert stats["maxValues"]["ts"] == "2025-12-31T23:00:00.123Z"
    assert "1234567890123456789012345678.0123456789" in add["stats"]
    footer = pq.ParquetFile(ours / add["path"])
    assert footer.schema.column(12).physical_type == "INT64"
    assert footer.schema.column(6).physical_type == "FIXED_LEN_BYTE_ARRAY"
    # PySpark cannot give a variant that is null to Arrow.
    expected = as_delta_spark_reads(spark, theirs).withColumn("v", F.expr("to_json(v)")).toArrow()
    for found in (as_delta_spark_reads(spark, ours), by_frame(spark, ours)):
        assert same_rows(found.withColumn("v", F.expr("to_json(v)")).toArrow(), expected)
    assert (written.rows, add["size"]) == (2, (ours / add["path"]).stat().st_size)
    assert add["modificationTime"] == (ours / add["path"]).stat().st_mtime_ns // 1_000_000


PARTITIONS = {
    "STRING": ["'a b/%=:?#\u00fc\\\\'", "''", "null", "'%41 '", "'\\n\"{}[]^\\'&+~'"],
    "SMALLINT": ["-1S", "null"],
    "TINYINT": ["127Y", "null"],
    "FLOAT": ["1.5F", "float('NaN')"],
    "TIMESTAMP": [
        "TIMESTAMP'2021-10-31 02:30:00.1234'",
        "TIMESTAMP'2021-10-31 02:30:00.1234' + INTERVAL 1 HOUR",
        "TIMESTAMP'1969-12-31 23:59:59.999999'",
        "TIMESTAMP'2020-01-01 00:00:00'",
        "null",
    ],
    "TIMESTAMP_NTZ": ["TIMESTAMP_NTZ'2021-03-28 02:30:00.1234'", "TIMESTAMP_NTZ'2020-01-01'"],
    "DATE": ["DATE'0001-01-01'", "DATE'2026-01-31'", "null"],
    "DECIMAL(10,2)": ["1.10", "-0.05"],
    "BOOLEAN": ["true", "false", "null"],
    "DOUBLE": ["1e10D", "0.1D", "double('NaN')", "double('-Infinity')"],
    "BINARY": ["X'414220'", "X'01'", "CAST('\u00fc' AS BINARY)"],
    "LONG": ["-9223372036854775808L"],
}


@pytest.mark.slow
def test_partition_values_are_those_of_delta_spark(spark: SparkSession, tmp_path: Path) -> None:
    kinds = list(PARTITIONS)
    columns = "id INT, " + ", ".join(f"P{n} {kind}" for n, kind in enumerate(kinds))
    parts = [f"p{n}" for n in range(len(kinds))]
    rows = " UNION ALL ".join(
        f"SELECT {number}, " + ", ".join(each[number % len(each)] for each in PARTITIONS.values())
        for number in range(5)
    )
    with settings_of(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        ours, written, theirs = written_twice(spark, tmp_path, columns, rows, partitioned_by=parts)
        mine = as_delta_spark_reads(spark, ours).toArrow()
        assert same_rows(mine, as_delta_spark_reads(spark, theirs).toArrow())
        assert same_rows(by_frame(spark, ours).toArrow(), mine)

    def values(adds: Any) -> list[Any]:  # noqa: ANN401
        return sorted(json.dumps(add["partitionValues"], sort_keys=True) for add in adds)

    assert len(written.adds) == 5
    assert values(written.adds) == values(live_adds(theirs))
    assert all((ours / unquote(add["path"])).is_file() for add in written.adds)
    query = QueryBuilder().register("t", RustTable(str(ours)))
    some = ["id", "P0", "P6", "P7", "P11"]
    found = pa.table(query.execute(f"SELECT {', '.join(some)} FROM t ORDER BY id").read_all())
    assert found.rename_columns(some).to_pylist() == mine.select(some).sort_by("id").to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_have_names_and_ids(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    ours, written, theirs = written_twice(
        spark,
        tmp_path,
        "id INT, s STRUCT<a: INT, b: ARRAY<STRUCT<c: INT>>>,"
        " m MAP<STRING, STRUCT<e: INT>>, P STRING",
        "SELECT 1, struct(2, array(struct(3))), map('x', struct(4)), 'q r'"
        " UNION ALL SELECT 2, null, null, null",
        partitioned_by=["p"],
        properties={"delta.columnMapping.mode": mode},
    )
    metadata = metadata_of(ours)
    [part] = metadata.partition_fields
    assert {add["partitionValues"][part.physical_name] for add in written.adds} == {"q r", None}
    expected = as_delta_spark_reads(spark, theirs).toArrow()
    assert same_rows(as_delta_spark_reads(spark, ours).toArrow(), expected)
    assert same_rows(by_frame(spark, ours).toArrow(), expected)
    stats = [json.loads(add["stats"]) for add in written.adds]
    [file, *_] = [add for add, told in zip(written.adds, stats, strict=True) if told["numRecords"]]
    stored, fields = pq.read_schema(ours / unquote(file["path"])), metadata.schema.fields[:3]
    assert stored.names == [each.physical_name for each in fields]
    for found, ids in (
        (stored, [each.field_id for each in fields]),
        (stored.field(1).type, [3, 4]),
    ):
        assert [int(each.metadata[b"PARQUET:field_id"]) for each in found] == ids
    assert 1 in [told.get("minValues", {}).get(stored.names[0]) for told in stats]


def simple(
    spark: SparkSession,
    path: Path,
    columns: str = "id LONG, p STRING",
    partitioned_by: Sequence[str] = (),
) -> tuple[Storage, Metadata]:
    create(spark, path, columns, partitioned_by=partitioned_by)
    return Storage.open(path), metadata_of(path)


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).select("id", F.lit("x").alias("p"))


def left_in(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.name != "_delta_log")


def test_paths_are_spelt_as_java_spells_them(spark: SparkSession) -> None:
    """VACUUM of delta-spark deletes live files in another spelling; its own is Java's."""
    hadoop = jvm.view_of(spark).org.apache.hadoop.fs.Path
    for plane in range(0, 0x110000, 0x10000):
        codes = (code for code in range(plane or 1, plane + 0x10000))
        name = "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000 and code != 47)
        assert f"/{_encoded(name)}" == hadoop(f"/{name}").toUri().toString()


@pytest.mark.slow
def test_delta_spark_keeps_files_of_any_partition(spark: SparkSession, tmp_path: Path) -> None:
    values = ["plain", "\u00fc &+%", *"\u200d\u00ad\U0001faea\ue000\u3000\u2028"]
    table = DeltaTable.create(spark, tmp_path / "t", "k int, p string", partition_by=["p"])
    rows = spark.createDataFrame(list(enumerate(values)), "k int, p string")
    table.append(rows)
    unchecked = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
    with settings_of(spark, unchecked):
        sql(spark, tmp_path / "t", "VACUUM {T} RETAIN 0 HOURS")
    assert sorted(table.to_df().collect()) == sorted(rows.collect())


def test_a_job_or_a_footer_that_fails_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, metadata = simple(spark, tmp_path / "t")
    failing = spark.range(100, numPartitions=4).selectExpr(
        "if(id = 99, raise_error('bad row'), id) AS id", "'x' AS p"
    )
    with pytest.raises(PySparkException, match="bad row"):
        write_rows(spark, storage, metadata, failing, tight_bounds=True)

    def broken(*_: object) -> None:
        raise OSError("disk gone")

    monkeypatch.setattr("delvec.spark.delta.write.data_files.read_parquet_footer", broken)
    with pytest.raises(OSError, match="disk gone"):
        write_rows(spark, storage, metadata, numbers(spark, 3), tight_bounds=True)
    assert left_in(tmp_path / "t") == []


@pytest.mark.slow
def test_files_are_compressed_and_named_as_the_table_says_and_no_more_than_were_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    properties = {"delta.parquet.compression.codec": "ZSTD", "delta.randomizeFilePrefixes": "true"}
    storage, plain = simple(spark, tmp_path / "t")
    metadata = replace(plain, configuration=properties)
    rows = numbers(spark, 100).repartition(4)
    written = write_rows(spark, storage, metadata, rows, tight_bounds=True, files=1)
    assert (len(written.adds), written.rows) == (1, 100)
    footer = pq.read_metadata(tmp_path / "t" / written.adds[0]["path"])
    assert footer.row_group(0).column(0).compression == "ZSTD"
    assert len(written.folder.split("/")[0]) == 2
    storage.delete_folder(written.folder)
    assert not list((tmp_path / "t").rglob("*.parquet"))


@pytest.mark.slow
def test_values_that_folders_cannot_hold_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    storage, metadata = simple(spark, tmp_path / "t", "id INT, p BINARY", partitioned_by=["p"])
    rows = spark.sql("SELECT 1 AS id, X'ff' AS p")
    with pytest.raises(PySparkException, match="INVALID_UTF8"):
        write_rows(spark, storage, metadata, rows, tight_bounds=True)
    assert left_in(tmp_path / "t") == []


def test_rows_of_other_columns_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    storage, metadata = simple(spark, tmp_path / "t")
    with pytest.raises(PlanError, match="p, id"):
        write_rows(spark, storage, metadata, numbers(spark, 1).select("p", "id"), tight_bounds=True)
    all_parts = Metadata.from_json(
        {"schemaString": metadata.schema_string, "partitionColumns": ["id", "p"]}
    )
    with pytest.raises(InvalidArgumentError, match="partition columns only"):
        write_rows(spark, storage, all_parts, numbers(spark, 1), tight_bounds=True)
