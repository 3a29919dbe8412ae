"""Streams on Spark itself: batches of limited size, and a sink that was dropped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from delvec.datasource.options import HAS_LIMITS
from tests.datasource.in_process import held, write_each

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def copy(spark: SparkSession, folder: Path, **options: str) -> StreamingQuery:
    """Copy all that the source has now."""
    stream = spark.readStream.format("delvec").options(**options).load(str(folder / "source"))
    writing = stream.writeStream.format("delvec")
    writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
    query = writing.trigger(availableNow=True).start(str(folder / "sink"))
    query.awaitTermination()
    return query


def test_a_sink_that_was_dropped_is_not_created_again(spark: SparkSession, tmp_path: Path) -> None:
    write_each(tmp_path / "source", 1, 2)
    copy(spark, tmp_path)
    assert held(tmp_path / "sink") == [1, 2]
    shutil.rmtree(tmp_path / "sink")
    write_each(tmp_path / "source", 3)
    with pytest.raises(StreamingQueryException, match=r"(?s)there is no table.*Begin again"):
        copy(spark, tmp_path)
    assert not (tmp_path / "sink").exists()


@pytest.mark.skipif(not HAS_LIMITS, reason="limits of a batch need Spark 4.2")
def test_batches_are_limited_and_every_row_is_copied_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_each(tmp_path / "source", *range(5))
    query = copy(spark, tmp_path, maxFilesPerTrigger="2")
    assert [each.numInputRows for each in query.recentProgress] == [2, 2, 1]
    write_each(tmp_path / "source", *range(5, 8))
    query = copy(spark, tmp_path, maxFilesPerTrigger="2")
    assert [each.numInputRows for each in query.recentProgress] == [2, 1]
    assert held(tmp_path / "sink") == list(range(8))
