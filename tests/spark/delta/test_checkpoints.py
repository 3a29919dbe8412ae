"""Checkpoints and manifests that delvec writes, beside delta-spark's and read by every engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from delvec.delta.log.checkpoint_writer import write_checkpoint
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.write.after_commit import write_manifests
from delvec.storage import Storage
from tests.delta.builder import TableBuilder
from tests.delta.log.test_checkpoints import EXPIRING, actions_of, transactions
from tests.delta.rows import same_rows
from tests.spark.delta import spark_tables
from tests.spark.delta.lake import Lake

pytestmark = pytest.mark.spark


def as_deltalake_reads(path: Path, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    deltalake = pytest.importorskip("deltalake")
    query = f"SELECT {', '.join(columns)} FROM t"
    table = deltalake.DeltaTable(str(path))
    return tuples(pa.table(deltalake.QueryBuilder().register("t", table).execute(query).read_all()))


def tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True), key=str)


def copy_from_checkpoint(lake: Lake, name: str) -> Lake:
    """Copy a table without the commits before its newest checkpoint, which is written first.

    That of the checkpoint's own version stays: delta-spark does not open a table without any.
    """
    write_checkpoint(open_snapshot(Storage.open(lake.path)))
    copy = lake.copy(name)  # a path that was never read: nothing of the table is cached
    log = copy.path / "_delta_log"
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


def test_transaction_ids_expire_as_in_delta_spark(spark: SparkSession, tmp_path: Path) -> None:
    found = []
    for name in ("own", "theirs"):
        properties = {**EXPIRING, "delta.checkpointInterval": "1"}
        table = TableBuilder(tmp_path / name, properties=properties)
        table.create()
        table.commit(*transactions())
        if name == "own":
            write_checkpoint(open_snapshot(Storage.open(table.root)))
        else:
            spark_tables.sql(spark, table.root, "INSERT INTO {T} VALUES (1)")
        [path] = table.log.glob("*.checkpoint.parquet")
        found.append({each["appId"] for each in actions_of(path, "txn")})
    assert found == [{"an hour ago"}] * 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_engine_reads_what_delvec_checkpoints(lake: Lake, kind: str) -> None:
    rows = (
        "INSERT INTO {{T}} SELECT id, concat('n ', id), timestamp_micros(id * 1003),"
        " CAST(id / 4 AS DECIMAL(10,2)), date_add(DATE'2024-01-30', CAST(id % 2 AS INT)),"
        " IF(id % 3 = 0, NULL, 'a b%') FROM range({}, {}, 1, 1)"
    )
    lake.create(
        "id BIGINT, name STRING, at TIMESTAMP, price DECIMAL(10,2), day DATE, p STRING",
        rows.format(0, 60),
        "DELETE FROM {T} WHERE id % 7 = 0",
        rows.format(60, 90),
        "UPDATE {T} SET name = 'changed' WHERE id % 11 = 0",
        "DELETE FROM {T} WHERE id % 5 = 0",
        parts=["day", "p"],
        properties=KINDS[kind],
    )
    expected = tuples(lake.frame().toArrow())
    first = copy_from_checkpoint(lake, "first")
    theirs = first.frame().toArrow()
    assert tuples(theirs) == expected
    wanted = sorted(((row[0], row[1], *row[3:]) for row in expected), key=str)
    assert as_deltalake_reads(first.path, ["id", "name", "price", "day", "p"]) == wanted
    assert same_rows(first.table.to_df().toArrow(), theirs)
    assert first.frame().where("id >= 60").count() == sum(row[0] >= 60 for row in expected)
    # The engine goes on from there: writes by our statistics, and makes its own checkpoint.
    first.sql(
        "DELETE FROM {T} WHERE id = 61",
        "MERGE INTO {T} t USING (SELECT 62 id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "ALTER TABLE {T} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')",
        rows.format(90, 95),
        "ALTER TABLE {T} SET TBLPROPERTIES ('delta.checkpointInterval' = '100')",
        "DELETE FROM {T} WHERE id = 91",
    )
    checkpoints = {file.name[:20] for file in first.path.glob("_delta_log/*.checkpoint*")}
    assert len(checkpoints) > 1
    theirs = first.frame().toArrow()
    assert theirs.num_rows == len(expected) - 2 + 5 - 1
    second = copy_from_checkpoint(first, "second")
    assert tuples(second.frame().toArrow()) == tuples(theirs)
    assert as_deltalake_reads(second.path, ["id"]) == tuples(theirs.select(["id"]))
    assert same_rows(second.table.to_df().toArrow(), theirs)
    assert second.bare.snapshot().files.row_counts.null_count == 0


def manifests(root: Path) -> dict[str, list[str]]:
    folder = root / "_symlink_format_manifest"
    files = (file for file in folder.rglob("*") if file.is_file() and file.name[0] != ".")
    return {str(file.relative_to(folder)): sorted(file.read_text().split("\n")) for file in files}


@pytest.mark.slow
def test_manifests_are_those_of_delta_spark(lake: Lake) -> None:
    values = ["'a b'", "'c/d:e%f=g'", "NULL", "'ü[]{}^\"'", "'x?*#'"]
    rows = ", ".join(
        f"({number}, {p}, DATE'2024-01-0{number + 1}', TIMESTAMP'2024-01-31 10:00:00.5')"
        for number, p in enumerate(values)
    )
    lake.create(
        "id BIGINT, p STRING, day DATE, at TIMESTAMP",
        f"INSERT INTO {{T}} VALUES {rows}",
        "DELETE FROM {T} WHERE id = 1",
        "GENERATE symlink_format_manifest FOR TABLE {T}",
        parts=["p", "day", "at"],
        properties={"delta.enableDeletionVectors": "false"},
    )
    expected = manifests(lake.path)
    assert len(expected) == len(values) - 1
    shutil.rmtree(lake.path / "_symlink_format_manifest")
    write_manifests(open_snapshot(Storage.open(lake.path)))
    assert manifests(lake.path) == expected
