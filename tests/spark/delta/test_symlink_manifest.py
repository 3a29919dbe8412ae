"""Manifests, held against those of delta-spark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.write.after_commit import write_manifests
from delvec.storage import Storage
from tests.spark.delta import spark_tables


def manifests(root: Path) -> dict[str, list[str]]:
    folder = root / "_symlink_format_manifest"
    files = (file for file in folder.rglob("*") if file.is_file() and file.name[0] != ".")
    return {str(file.relative_to(folder)): sorted(file.read_text().split("\n")) for file in files}


def write(root: Path) -> None:
    write_manifests(open_snapshot(Storage.open(root)))


@pytest.mark.slow
@pytest.mark.spark
def test_they_are_those_of_delta_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    columns = "id BIGINT, p STRING, day DATE, at TIMESTAMP"
    spark_tables.create(
        spark,
        path,
        columns,
        partitioned_by=["p", "day", "at"],
        properties={"delta.enableDeletionVectors": "false"},
    )
    values = ["'a b'", "'c/d:e%f=g'", "NULL", "'ü[]{}^\"'", "'x?*#'"]
    rows = ", ".join(
        f"({number}, {p}, DATE'2024-01-0{number + 1}', TIMESTAMP'2024-01-31 10:00:00.5')"
        for number, p in enumerate(values)
    )
    spark_tables.sql(
        spark,
        path,
        f"INSERT INTO {{T}} VALUES {rows}",
        "DELETE FROM {T} WHERE id = 1",
        "GENERATE symlink_format_manifest FOR TABLE {T}",
    )
    expected = manifests(path)
    assert len(expected) == len(values) - 1
    shutil.rmtree(path / "_symlink_format_manifest")
    write(path)
    assert manifests(path) == expected
