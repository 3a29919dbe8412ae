"""Checkpoints that delvec writes, read by every engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.delta.log.checkpoint_writer import write_checkpoint
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.storage import Storage
from tests.delta.builder import TableBuilder
from tests.delta.log.test_checkpoints import EXPIRING, actions_of, transactions
from tests.delta.rows import same_rows
from tests.spark.delta import spark_tables


def snapshot_of(root: Path, version: int | None = None) -> Snapshot:
    return open_snapshot(Storage.open(root), version)


def as_deltalake_reads(path: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    deltalake = pytest.importorskip("deltalake")
    query = f"SELECT {', '.join(columns)} FROM t"
    table = deltalake.DeltaTable(str(path))
    found = pa.table(deltalake.QueryBuilder().register("t", table).execute(query).read_all())
    return sorted(zip(*(found.column(name).to_pylist() for name in columns), strict=True), key=str)


def as_spark_reads(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    # A path that was never read: nothing of the table is cached.
    rows = spark_tables.as_delta_spark_reads(spark, path).toArrow()
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True), key=str)


def copy_from_checkpoint(path: Path, name: str) -> Path:
    """Copy a table without the commits before its newest checkpoint.

    That of the checkpoint's own version stays: delta-spark does not open a table without any.
    """
    copy = path.parent / name
    shutil.copytree(path, copy)
    log = copy / "_delta_log"
    version = json.loads((log / "_last_checkpoint").read_text())["version"]
    for file in {*log.glob("*.json"), *log.glob("*.crc"), *log.glob(".*.crc")}:
        if not file.name[:20].isdecimal() or int(file.name[:20]) < version:
            file.unlink()
    return copy


KINDS: dict[str, dict[str, str]] = {
    "classic": {"delta.enableRowTracking": "true"},
    "mapped": {"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"},
    "columns_alone": {"delta.checkpoint.writeStatsAsJson": "false"},
    "second_kind": {"delta.checkpointPolicy": "v2", "delta.enableInCommitTimestamps": "true"},
}


@pytest.mark.spark
def test_transaction_ids_expire_as_in_delta_spark(spark: SparkSession, tmp_path: Path) -> None:
    found = []
    for name in ("own", "theirs"):
        properties = {**EXPIRING, "delta.checkpointInterval": "1"}
        table = TableBuilder(tmp_path / name, properties=properties)
        table.create()
        table.commit(*transactions())
        if name == "own":
            write_checkpoint(snapshot_of(table.root))
        else:
            spark_tables.sql(spark, table.root, "INSERT INTO {T} VALUES (1)")
        [path] = table.log.glob("*.checkpoint.parquet")
        found.append({each["appId"] for each in actions_of(path, "txn")})
    assert found == [{"an hour ago"}] * 2


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_engine_reads_what_delvec_checkpoints(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "table"
    columns = "id BIGINT, name STRING, at TIMESTAMP, price DECIMAL(10,2), day DATE, p STRING"
    spark_tables.create(spark, path, columns, partitioned_by=["day", "p"], properties=KINDS[kind])
    rows = (
        "SELECT id, concat('n ', id), timestamp_micros(id * 1003), CAST(id / 4 AS DECIMAL(10,2)),"
        " date_add(DATE'2024-01-30', CAST(id % 2 AS INT)), IF(id % 3 = 0, NULL, 'a b%')"
        " FROM range({}, {}, 1, 1)"
    )
    spark_tables.sql(
        spark,
        path,
        "INSERT INTO {T} " + rows.format(0, 60),
        "DELETE FROM {T} WHERE id % 7 = 0",
        "INSERT INTO {T} " + rows.format(60, 90),
        "UPDATE {T} SET name = 'changed' WHERE id % 11 = 0",
        "DELETE FROM {T} WHERE id % 5 = 0",
    )
    expected = as_spark_reads(spark, path)
    write_checkpoint(snapshot_of(path))
    first = copy_from_checkpoint(path, "first")
    assert as_spark_reads(spark, first) == expected
    names = ["id", "name", "price", "day", "p"]
    wanted = sorted(((row[0], row[1], *row[3:]) for row in expected), key=str)
    assert as_deltalake_reads(first, names) == wanted
    own = DeltaTable.for_path(spark, first)
    assert same_rows(
        own.to_df().toArrow(), spark_tables.as_delta_spark_reads(spark, first).toArrow()
    )
    counted = spark.sql(f"SELECT count(*), max(id) FROM delta.`{first}` WHERE id >= 60")
    [(found, _)] = counted.collect()
    assert found == sum(row[0] >= 60 for row in expected)
    # The engine goes on from there: writes by our statistics, and makes its own checkpoint.
    spark_tables.sql(
        spark,
        first,
        "DELETE FROM {T} WHERE id = 61",
        "MERGE INTO {T} t USING (SELECT 62 id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "ALTER TABLE {T} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')",
        "INSERT INTO {T} " + rows.format(90, 95),
        "ALTER TABLE {T} SET TBLPROPERTIES ('delta.checkpointInterval' = '100')",
        "DELETE FROM {T} WHERE id = 91",
    )
    checkpoints = {file.name[:20] for file in (first / "_delta_log").glob("*.checkpoint*")}
    assert len(checkpoints) > 1
    after = as_spark_reads(spark, first)
    assert len(after) == len(expected) - 2 + 5 - 1
    write_checkpoint(snapshot_of(first))
    second = copy_from_checkpoint(first, "second")
    assert as_spark_reads(spark, second) == after
    assert [row[0] for row in as_deltalake_reads(second, ["id"])] == sorted(
        (row[0] for row in after), key=lambda number: str((number,))
    )
    assert same_rows(
        DeltaTable.for_path(spark, second).to_df().toArrow(),
        spark_tables.as_delta_spark_reads(spark, first).toArrow(),
    )
    counts = snapshot_of(second).files.row_counts
    assert counts.null_count == 0
