"""What a conversion knows of the whole source, though it looks at what changed alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.delta.log.segment import file_count
from delvec.errors import VerificationError
from delvec.storage import Storage
from tests.spark.delta.spark_tables import as_delta_spark_reads, sql


@pytest.mark.parametrize("text", ["", "[]", "{", '{"numFiles": "3"}', '{"tableSizeBytes": 1}'])
def test_a_checksum_that_says_nothing_is_no_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020d}.crc").write_text(text)
    storage = Storage.open(tmp_path)
    assert file_count(storage, 0) is None
    assert file_count(storage, 1) is None


@pytest.mark.slow
@pytest.mark.spark
def test_a_source_that_moved_and_one_that_counts_other_files(
    spark: SparkSession, tmp_path: Path
) -> None:
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
