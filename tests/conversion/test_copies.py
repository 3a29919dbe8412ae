"""Copied data files are cleaned: none that a target refers to, whoever wrote it and whenever."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.conversion import apply
from delvec.conversion.files.copies import resolve_paths
from delvec.conversion.planning import step, target_files
from delvec.iceberg.client.catalog import load_table, table_name
from tests.conversion.targets import Killed, before, ids, numbered
from tests.spark.delta.spark_tables import as_delta_spark_reads, sql

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DAY = 24 * 3600


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Path:
    """Make a table whose files have to be copied: two of them, with ten rows each."""
    path = tmp_path / "source"
    mapped = "'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true'"
    insert = "INSERT INTO {T} SELECT id, array(1) FROM range(%s, 1, 1)"
    sql(
        spark,
        path,
        f"CREATE TABLE {{T}} (id LONG, l ARRAY<INT>) USING delta TBLPROPERTIES ({mapped})",
        insert % "0, 10",
        insert % "10, 20",
    )
    return path


def copies_of(spark: SparkSession, target: str) -> set[Path]:
    location = load_table(spark, table_name(spark, target)).metadata.location
    return set(Path(location.removeprefix("file:")).glob("data/copies/*.parquet"))


def age(paths: set[Path]) -> None:
    long_ago = time.time() - 4 * DAY
    for path in paths:
        os.utime(path, (long_ago, long_ago))


def early_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let copies have the names of earlier versions, the same each time."""

    def resolved(paths: pa.Array, location: str, run: str, **prefix: Any) -> pa.Array:  # noqa: ANN401
        found = resolve_paths(paths, location, run, **prefix)
        return pc.replace_substring(found, f"-{run}.parquet", ".parquet")

    for module in (apply, step, target_files):
        monkeypatch.setattr(module, "resolve_paths", resolved)


def test_a_copy_that_is_being_deleted_is_not_used_again(spark: SparkSession, source: Path) -> None:
    target = f"lake.cleaning.t_{uuid4().hex[:8]}"
    delvec.convert(spark, source, target, copy_files=True)
    sql(spark, source, "DELETE FROM {T} WHERE id < 10")
    delvec.convert(spark, source, target, copy_files=True)
    there = copies_of(spark, target)
    with numbered(kill=(0, "after")), pytest.raises(Killed):
        delvec.clean_target(spark, target, retain_last=1)
    sql(spark, source, "RESTORE TABLE {T} TO VERSION AS OF 2")
    age(there)

    def convert() -> None:
        report = delvec.convert(spark, source, target, copy_files=True, verify="rows")
        assert report.files_copied == 1

    with numbered({0: before(convert)}) as calls:
        cleaned = delvec.clean_target(spark, target)
    assert calls.names[0] == "delete"
    assert cleaned.files["kind"].to_pylist().count("copied data file") == 1
    assert len(copies_of(spark, target)) == 2
    assert ids(spark, target) == list(range(20))
    # Copies that the target has are used again.
    sql(spark, source, "DELETE FROM {T} WHERE id = 3")
    report = delvec.convert(spark, source, target, copy_files=True, verify="rows")
    assert (report.mode, report.files_copied, report.vectors_added) == ("incremental", 0, 1)
    # What expires is deleted at once, as vectors are: no later conversion needs it.
    sql(spark, source, "DELETE FROM {T} WHERE id >= 10")
    delvec.convert(spark, source, target, copy_files=True)
    delvec.clean_target(spark, target, retain_last=1)
    assert len(copies_of(spark, target)) == 1
    assert ids(spark, target) == [0, 1, 2, *range(4, 10)]


def test_a_file_that_comes_and_goes_at_once_has_one_copy(spark: SparkSession, source: Path) -> None:
    target = f"lake.cleaning.t_{uuid4().hex[:8]}"
    choices: dict[str, Any] = {"copy_files": True, "history": "per-version"}
    sql(spark, source, "DELETE FROM {T} WHERE id < 10", "RESTORE TABLE {T} TO VERSION AS OF 2")
    delvec.convert(spark, source, target, verify="rows", **choices)
    assert len(copies_of(spark, target)) == 2
    assert ids(spark, target) == list(range(20))
    sql(spark, source, "DELETE FROM {T} WHERE id < 10", "RESTORE TABLE {T} TO VERSION AS OF 2")
    delvec.convert(spark, source, target, verify="rows", **choices)
    assert len(copies_of(spark, target)) == 3
    assert ids(spark, target) == list(range(20))
    assert ids(spark, target, "'delta-version-5'") == list(range(10, 20))


@pytest.mark.parametrize("names", ["unique", "early"])
def test_two_targets_in_one_location_do_not_lose_copies_to_each_other(
    spark: SparkSession, source: Path, tmp_path: Path, names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS sqlite.cleaning")
    one, two = (f"sqlite.cleaning.t_{uuid4().hex[:8]}" for _ in range(2))
    location = str(tmp_path / "both of%20them")
    with monkeypatch.context() as patch:
        if names == "early":
            early_names(patch)
        for target in (one, two):
            delvec.convert(spark, source, target, copy_files=True, location=location)
    sql(spark, source, "DELETE FROM {T} WHERE id < 10")
    report = delvec.convert(spark, source, one, copy_files=True, verify="rows")
    assert (report.mode, report.files_copied, report.files_removed) == ("incremental", 0, 1)
    there = copies_of(spark, one)
    assert len(there) == (2 if names == "early" else 4)
    age(there)
    cleaned = delvec.clean_target(spark, one, retain_last=1)
    assert "metadata of another table" in str(cleaned)
    assert len(there - copies_of(spark, one)) == (0 if names == "early" else 1)
    assert ids(spark, two) == list(range(20))
    assert ids(spark, one) == list(range(10, 20))
    found = sorted(map(str, spark.table(one).collect()))
    assert found == sorted(map(str, as_delta_spark_reads(spark, source).collect()))
