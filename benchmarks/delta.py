"""Delta tables: reading through vectors, planning over many files, opening large snapshots."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
import pyarrow.parquet as pq

import delvec
from benchmarks.runner import Contest, Peer, benchmark
from delvec.delta.log.snapshot import open_snapshot
from delvec.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

DELTA_SPARK = "io.delta:delta-spark_4.1_2.13:4.4.0"
MILLION = 1_000_000
# Goals: ratio to delta-spark's time; to the same table without vectors, at most 2, ideally 1.6.
DELTA_AT_MOST = 0.8
CLEAN_AT_MOST = 2.0
DELTALAKE_AT_MOST = 3.0
ROUNDS = 5

QUERIES: dict[str, Callable[[DataFrame], object]] = {
    "count+sums": lambda df: df.selectExpr(
        "count(*)", "sum(id)", "sum(k)", "round(sum(v))"
    ).collect(),
    "all-columns": lambda df: df.selectExpr("sum(hash(*))").collect(),
    "selective": lambda df: (
        df.where("id between 5000000 and 5001000").selectExpr("count(*)", "sum(id)").collect()
    ),
    "head": lambda df: len(df.head(5)),
}


@cache
def session() -> SparkSession:
    spark = delvec.session(
        folder() / "warehouse",
        master="local[2]",
        packages=[DELTA_SPARK],
        conf={
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.ui.enabled": "false",
            "spark.driver.memory": "8g",
            # The peer's defaults are made for clusters; on two cores it is faster with these.
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


@cache
def folder() -> Path:
    path = Path(tempfile.mkdtemp(prefix="delvec-bench-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def clean(name: str, rows: int, files: int) -> str:
    """Create a table by delta-spark, without vectors."""
    path = str(folder() / name)
    spark = session()
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, k BIGINT, v DOUBLE, s STRING, i INT)"
        " USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    spark.range(0, rows, 1, files).selectExpr(
        "id",
        "id % 1000 k",
        "rand(1) * 1000 v",
        "cast(id * 7919 % 100000 as string) s",
        "cast(id % 77 as int) i",
    ).write.format("delta").mode("append").save(path)
    return path


def written(name: str, rows: int, files: int) -> str:
    """Create a table by delta-spark: version 1 has no vectors, version 2 lacks 1 % of the rows."""
    path = clean(name, rows, files)
    session().sql(f"DELETE FROM delta.`{path}` WHERE pmod(hash(id), 100) = 0")  # noqa: S608
    return path


@cache
def large() -> str:
    return written("large", 20 * MILLION, 8)


@cache
def small_files() -> str:
    return written("small", 2 * MILLION, 2000)


def same(*results: object) -> None:
    assert all(result == results[0] for result in results), results


def reading(path: str, query: Callable[[DataFrame], object]) -> Contest:
    spark = session()
    table = delvec.DeltaTable.for_path(spark, path)
    detail = table.detail()
    assert detail.files_with_vectors == detail.files > 0
    query(table.to_df(version=1))
    return Contest(
        lambda: query(table.to_df()),
        [
            Peer(
                "delta-spark 4.4",
                lambda: query(spark.read.format("delta").load(path)),
                DELTA_AT_MOST,
            ),
            Peer("itself, no vectors", lambda: query(table.to_df(version=1)), CLEAN_AT_MOST),
        ],
        lambda ours, theirs, _: same(ours, theirs),
        ROUNDS,
    )


for _name, _query in QUERIES.items():
    benchmark(f"delta-read/20M-rows/{_name}")(lambda query=_query: reading(large(), query))  # type: ignore[misc]
    benchmark(f"delta-read/2000-files/{_name}")(lambda query=_query: reading(small_files(), query))  # type: ignore[misc]


SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("v", "double"), ("s", "string"), ("day", "date"))
    ],
}
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors"],
}
METADATA = {
    "id": "bench",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps(SCHEMA),
    "partitionColumns": ["day"],
    "configuration": {"delta.enableDeletionVectors": "true"},
    "createdTime": 1,
}


def day(number: int) -> str:
    return f"2026-{number % 12 + 1:02d}-{number % 28 + 1:02d}"


def file_entry(number: int, size: int) -> dict[str, Any]:
    low, high = number * 1000, number * 1000 + 999
    statistics = {
        "numRecords": 1000,
        "minValues": {"id": low, "v": low / 2, "s": f"{low:012}"},
        "maxValues": {"id": high, "v": high / 2, "s": f"{high:012}"},
        "nullCount": {"id": 0, "v": 0, "s": 0},
    }
    name = f"part-{number:08d}-3f2504e0-4f89-11d3-9a0c-0305e82c3301.c000.snappy.parquet"
    return {
        "path": f"day={day(number)}/{name}",
        "partitionValues": {"day": day(number)},
        "size": size,
        "modificationTime": 1_700_000_000_000,
        "dataChange": True,
        "stats": json.dumps(statistics),
    }


def commit(path: Path, version: int, actions: list[dict[str, Any]]) -> None:
    lines = [{"commitInfo": {"timestamp": version, "operation": "WRITE"}}, *actions]
    text = "\n".join(json.dumps(line) for line in lines)
    (path / "_delta_log" / f"{version:020d}.json").write_text(f"{text}\n")


@cache
def many_files() -> str:
    """10,000 files of 1,000 rows in 84 days, with statistics."""
    path = folder() / "many"
    (path / "_delta_log").mkdir(parents=True)
    entries = []
    for number in range(10_000):
        entry = file_entry(number, 0)
        ids = range(number * 1000, number * 1000 + 1000)
        rows = pa.table({"id": ids, "v": [i / 2 for i in ids], "s": [f"{i:012}" for i in ids]})
        file = path / entry["path"]
        file.parent.mkdir(exist_ok=True)
        pq.write_table(rows, file)
        entries.append({"add": {**entry, "size": file.stat().st_size}})
    commit(path, 0, [{"protocol": PROTOCOL}, {"metaData": METADATA}, *entries])
    session().sql(f"OPTIMIZE delta.`{path}` WHERE day = '1900-01-01'")  # nothing; opens the table
    return str(path)


def planning(condition: str) -> Contest:
    spark, path = session(), many_files()
    table = delvec.DeltaTable.for_path(spark, path)

    def query(df: DataFrame) -> object:
        return df.where(condition).selectExpr("count(*)", "sum(id)").collect()

    return Contest(
        lambda: query(table.to_df()),
        [
            Peer(
                "delta-spark 4.4",
                lambda: query(spark.read.format("delta").load(path)),
                DELTA_AT_MOST,
            )
        ],
        same,
        ROUNDS,
    )


@benchmark("delta-plan/10000-files/partition")
def plan_by_partition() -> Contest:
    return planning(f"day = '{day(5)}'")


@benchmark("delta-plan/10000-files/data")
def plan_by_statistics() -> Contest:
    return planning("id between 5000123 and 5000456")


def checkpointed(files: int) -> str:
    """Create a table of a checkpoint only: opening a snapshot reads no data files."""
    path = folder() / f"snapshot-{files}"
    (path / "_delta_log").mkdir(parents=True)
    commit(path, 0, [{"protocol": PROTOCOL}, {"metaData": METADATA}])
    strings = pa.map_(pa.string(), pa.string())
    protocol = pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", pa.list_(pa.string())),
            ("writerFeatures", pa.list_(pa.string())),
        ]
    )
    metadata = pa.struct(
        [
            ("id", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", strings)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", strings),
            ("createdTime", pa.int64()),
        ]
    )
    vector = pa.struct(
        [
            ("storageType", pa.string()),
            ("pathOrInlineDv", pa.string()),
            ("offset", pa.int32()),
            ("sizeInBytes", pa.int32()),
            ("cardinality", pa.int64()),
        ]
    )
    add = pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", strings),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats", pa.string()),
            ("deletionVector", vector),
        ]
    )
    schema = pa.schema([("protocol", protocol), ("metaData", metadata), ("add", add)])
    log = path / "_delta_log"
    with pq.ParquetWriter(log / f"{1:020d}.checkpoint.parquet", schema) as writer:
        heads = [{"protocol": PROTOCOL}, {"metaData": METADATA}]
        writer.write_table(pa.Table.from_pylist(heads, schema))
        for start in range(0, files, 50_000):
            rows = []
            for number in range(start, min(files, start + 50_000)):
                entry = file_entry(number, 100_000)
                if number % 10 == 0:
                    entry["deletionVector"] = {
                        "storageType": "u",
                        "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA",
                        "offset": 1 + 44 * number,
                        "sizeInBytes": 36,
                        "cardinality": 2,
                    }
                rows.append({"add": entry})
            writer.write_table(pa.Table.from_pylist(rows, schema))
    commit(path, 1, [])
    (log / "_last_checkpoint").write_text(json.dumps({"version": 1, "size": files + 2}))
    return str(path)


# Not by getrusage, which includes the memory of the parent before it started this process.
MEMORY = """
import pathlib, sys
import pyarrow.compute, pyarrow.json, pyarrow.parquet
from delvec.delta.log.snapshot import open_snapshot
from delvec.storage import Storage

def peak():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))

before = peak()
len(open_snapshot(Storage.open(sys.argv[1])).files)
print((peak() - before) // 1024)
"""


def opening(files: int) -> Contest:
    import deltalake  # noqa: PLC0415

    path, spark = checkpointed(files), session()
    peak = subprocess.run(
        [sys.executable, "-c", MEMORY, path], capture_output=True, text=True, check=True
    )
    click.echo(f"  peak memory of opening {files:,} files: {peak.stdout.strip()} MiB", err=True)
    log: Any = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]  # noqa: SLF001

    def ours() -> int:
        return len(open_snapshot(Storage.open(path)).files)

    def delta_spark() -> int:
        log.clearCache()
        opened = log.forTable(spark._jsparkSession, path)  # noqa: SLF001
        return int(opened.unsafeVolatileSnapshot().numOfFiles())

    def delta_rs() -> int:
        return int(deltalake.DeltaTable(path).get_add_actions().num_rows)

    return Contest(
        ours,
        [Peer("delta-spark 4.4", delta_spark, 1.0), Peer("deltalake", delta_rs, DELTALAKE_AT_MOST)],
        same,
        ROUNDS,
    )


@benchmark("delta-open/100000-files")
def open_hundred_thousand() -> Contest:
    return opening(100_000)


@benchmark("delta-open/1000000-files")
def open_million() -> Contest:
    return opening(MILLION)
