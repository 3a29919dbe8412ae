"""Writes and streams with `format("delvec")` on Spark, against delta-spark: same rows, once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import delvec
from tests.datasource.in_process import rows_between, stream_of
from tests.spark.delta.readers import ZONE, settings_of
from tests.spark.delta.spark_tables import as_delta_spark_reads, collected, create, sql

pytestmark = pytest.mark.spark

FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture(scope="module")
def changed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose rows delta-spark inserted, updated and deleted by vectors, with its feed."""
    path = tmp_path_factory.mktemp("changed") / "t"
    create(spark, path, "id long, name string, day date", partitioned_by=["day"], properties=FEED)
    sql(
        spark,
        path,
        "INSERT INTO {T} SELECT /*+ COALESCE(1) */ id, concat('n', id), date'2026-01-01' +"
        " cast(id % 2 as int) FROM range(20)",
        "DELETE FROM {T} WHERE id % 5 = 0",
        "UPDATE {T} SET name = 'new' WHERE id = 7",
        "INSERT INTO {T} VALUES (100, NULL, NULL)",
        "OPTIMIZE {T}",
        "DELETE FROM {T} WHERE day = date'2026-01-02'",
    )
    return path


def feed_of(spark: SparkSession, path: Path) -> DataFrame:
    """Return the changes as delta-spark tells them."""
    reading = spark.read.format("delta").option("readChangeFeed", "true")
    return reading.option("startingVersion", 0).load(str(path))


def run(stream: DataFrame, sink: Path, checkpoint: Path, mode: str = "append") -> None:
    """Copy all that a stream has now."""
    query = (
        stream.writeStream.format("delvec")
        .option("checkpointLocation", str(checkpoint))
        .outputMode(mode)
        .trigger(availableNow=True)
        .start(str(sink))
    )
    query.awaitTermination()


def forget_last_commit(checkpoint: Path) -> None:
    """Leave the checkpoint as a crash does after the sink's commit and before Spark's."""
    last = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink()


@pytest.mark.more
def test_delta_spark_reads_what_was_written(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a b%20ü"
    rows = spark.range(0, 50, 1, 1).selectExpr(
        "id",
        "cast(id as short) small",
        "if(id % 7 = 0, null, concat('näme', id)) name",
        "cast(id / 4 as decimal(8,2)) price",
        "cast(id as decimal(38,10)) wide",
        "if(id = 3, double('NaN'), if(id = 0, double('-0.0'), double(id))) d",
        "timestamp'1650-01-01 00:00:00.123456' + make_interval(0, 0, 0, cast(id as int)) seen",
        "timestamp_ntz'1850-01-01 00:00:00.5' local",
        "cast(concat('b', id) as binary) b",
        "array(struct(id as k, named_struct('m', map('x', id)) as v)) tags",
        "date_add(date'1550-01-01', cast(id as int)) old",
        "date_add(date'2026-01-01', cast(id div 20 as int)) day",
        "timestamp'2026-07-01 10:00:00.5' at",
    )
    write = rows.write.format("delvec").mode("append")
    write.option("partitionBy", "day,at").save(str(path))
    found = as_delta_spark_reads(spark, path)
    assert found.columns == rows.columns
    text = "to_json(struct(*))"
    expected = sorted(row[0] for row in collected(rows.selectExpr(text)))
    assert sorted(row[0] for row in collected(found.selectExpr(text))) == expected
    # delta-spark skips files and row groups by statistics, and takes NaN for the largest number.
    for condition in ("d > 100", "price > 12 AND wide = 49"):
        assert len(collected(found.where(condition).select("id"))) == 1, condition
    rows.limit(5).write.format("delvec").mode("overwrite").save(str(path))
    assert len(collected(as_delta_spark_reads(spark, path).select("id"))) == 5


@pytest.mark.slow
def test_a_stream_of_changes_is_copied_once(
    spark: SparkSession, changed: Path, tmp_path: Path
) -> None:
    sink, checkpoint = tmp_path / "sink", tmp_path / "checkpoint"

    def go() -> None:
        stream = spark.readStream.format("delvec").option("readChangeFeed", "true")
        copied = stream.option("startingVersion", 0).load(str(changed))
        run(copied.withColumnRenamed("_change_type", "change"), sink, checkpoint)

    expected = sorted(map(tuple, collected(feed_of(spark, changed))), key=repr)
    for _ in range(3):  # two of them repeat the batch
        go()
        found = sorted(map(tuple, collected(as_delta_spark_reads(spark, sink))), key=repr)
        assert found == expected
        forget_last_commit(checkpoint)
    table = delvec.DeltaTable.for_path(spark, sink)
    assert table.version == 1
    query = json.loads((checkpoint / "metadata").read_text())["id"]
    commit = (sink / f"_delta_log/{1:020}.json").read_text()
    assert any(
        json.loads(line).get("txn", {}).get("appId") == query for line in commit.splitlines()
    )
    assert len(list(sink.glob("*.parquet"))) == len(table.arrow_files())


def test_a_delete_by_a_vector_is_a_change_and_never_passed_over_unasked(
    spark: SparkSession, changed: Path
) -> None:
    def rows(**options: str) -> list[tuple[object, ...]]:
        reader = stream_of(changed, columns="id", **options)
        return rows_between(reader, reader.initialOffset(), reader.latestOffset())

    now = collected(as_delta_spark_reads(spark, changed).select("id"))
    assert rows() == sorted(map(tuple, now))
    with pytest.raises(
        delvec.errors.InvalidArgumentError,
        match=r"(?s)version 2 of .*\(DELETE\).*skipChangeCommits=true.*readChangeFeed=true",
    ):
        rows(startingVersion="0", ignoreDeletes="true")
    appended = rows(startingVersion="0", skipChangeCommits="true")
    assert appended == [(number,) for number in (*range(20), 100)]


@pytest.mark.slow
def test_a_query_ends_with_the_version_and_both_ways_out(
    spark: SparkSession, changed: Path, tmp_path: Path
) -> None:
    stream = spark.readStream.format("delvec").option("startingVersion", 0).load(str(changed))
    with pytest.raises(
        StreamingQueryException,
        match=r"(?s)version 2 of .*\(DELETE\).*skipChangeCommits=true.*readChangeFeed=true",
    ):
        run(stream, tmp_path / "sink", tmp_path / "checkpoint")


@pytest.mark.slow
def test_a_partition_value_without_a_zone_is_in_that_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    create(spark, tmp_path / "t", "id long, at timestamp", partitioned_by=["at"])
    sql(spark, tmp_path / "t", "INSERT INTO {T} VALUES (1, timestamp'2026-07-01 10:00:00')")
    commit = tmp_path / f"t/_delta_log/{1:020}.json"
    written = commit.read_text()
    [value] = {
        json.loads(line)["add"]["partitionValues"]["at"]
        for line in written.splitlines()
        if "add" in json.loads(line)
    }
    commit.write_text(written.replace(f'"at":"{value}"', '"at":"2026-07-01 10:00:00"'))
    (tmp_path / f"t/_delta_log/.{1:020}.json.crc").unlink(missing_ok=True)
    for zone in ("Asia/Kolkata", "America/New_York"):
        with settings_of(spark, {ZONE: zone}):
            reading = spark.read.format("delvec").load(str(tmp_path / "t"))
            [row] = reading.selectExpr("cast(at as string)").collect()
            assert row[0] == "2026-07-01 10:00:00"


@pytest.mark.slow
def test_an_aggregate_in_complete_mode_replaces_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, sink = tmp_path / "source", tmp_path / "sink"
    for number in range(2):
        rows = spark.range(5 * number, 5 * number + 5)
        rows.write.format("delvec").mode("append").save(str(source))
        counts = spark.readStream.format("delvec").load(str(source)).groupBy().count()
        run(counts, sink, tmp_path / "checkpoint", "complete")
        assert as_delta_spark_reads(spark, sink).collect() == [(5 * number + 5,)]
    with pytest.raises(PySparkException):
        run(counts, tmp_path / "other", tmp_path / "c2", "update")


@pytest.mark.more
def test_a_stream_catches_up_in_the_run_after_a_crash_as_delta_spark_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    found: dict[str, list[list[int]]] = {"delta": [], "delvec": []}
    for kind, copied in found.items():
        source, sink, checkpoint = (tmp_path / kind / name for name in ("source", "sink", "c"))
        for number in range(3):
            rows = spark.range(number, number + 1, 1, 1)
            rows.write.format("delta").mode("append").save(str(source))
            if number == 2:
                forget_last_commit(checkpoint)
            run(spark.readStream.format(kind).load(str(source)), sink, checkpoint)
            table = delvec.DeltaTable.for_path(None, sink)
            copied.append(sorted(table.to_arrow()["id"].to_pylist()))
    assert found["delvec"] == found["delta"] == [[0], [0, 1], [0, 1, 2]]


CHILD = """
import sys
from pyspark.sql import SparkSession

source, sink, checkpoint, is_last = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
stream = spark.readStream.format("delvec").option("readChangeFeed", "true")
changes = stream.option("startingVersion", 0).load(source)
changes = changes.withColumnRenamed("_change_type", "change")
writing = changes.writeStream.format("delvec").option("checkpointLocation", checkpoint)
writing = writing.trigger(availableNow=True) if is_last == "yes" else writing
writing.start(sink).awaitTermination()
"""


# Spark gives a Python worker ten seconds to start, which a busy machine may need.
_TRIES = 4


class Crashes:
    """A query in a process of its own, killed with its JVM whenever something has happened."""

    def __init__(self, source: Path, folder: Path) -> None:
        self._sink, self._checkpoint = folder / "sink", folder / "checkpoint"
        self._arguments = [str(source), str(self._sink), str(self._checkpoint)]

    def _start(self, *, is_last: bool) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", CHILD, *self._arguments, "yes" if is_last else "no"]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        return subprocess.Popen(
            command, start_new_session=True, stderr=subprocess.PIPE, env=environment
        )

    def finish(self) -> None:
        """Run until all is copied."""
        for _ in range(_TRIES):
            done = self._start(is_last=True)
            _, errors = done.communicate(timeout=300)
            if done.returncode == 0:
                return
        pytest.fail(errors.decode()[-3000:])

    def crash(self, event: Callable[[], object]) -> None:
        """Run until something has changed, and kill all of it."""
        for _ in range(_TRIES):
            errors = self._crash(event)
            if errors is None:
                return
        pytest.fail(str(errors)[-3000:])

    def _crash(self, event: Callable[[], object]) -> bytes | None:
        """Return None once it is killed; what it wrote if it ended before that by itself."""
        before, running = event(), self._start(is_last=False)
        assert running.stderr is not None
        try:
            limit = time.monotonic() + 300
            while event() == before:
                if running.poll() is not None:
                    return running.stderr.read()
                assert time.monotonic() < limit
                time.sleep(0.005)
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            running.stderr.close()

    @property
    def events(self) -> dict[str, Callable[[], object]]:
        """What a crash may follow: a batch that is planned, written, committed, or over."""
        return {
            "planned": lambda: len(list(self._checkpoint.glob("offsets/[0-9]*"))),
            "written": lambda: len(list(self._sink.glob("*.parquet"))),
            "committed": lambda: len(list(self._sink.glob("_delta_log/*.json"))),
            "over": lambda: len(list(self._checkpoint.glob("commits/[0-9]*"))),
        }


@pytest.mark.slow
def test_a_stream_that_is_killed_again_and_again_copies_every_change_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, choice = tmp_path / "source", random.Random(7)
    create(spark, source, "id long, name string", properties=FEED)
    query, sink = Crashes(source, tmp_path), tmp_path / "sink"
    for number in range(10):
        start, stop = 10 * number, 10 * number + 10
        sql(
            spark,
            source,
            f"INSERT INTO {{T}} SELECT id, 'n{number}' FROM range({start}, {stop})",
            f"DELETE FROM {{T}} WHERE id % 10 = {number % 10} AND id < {stop}",
            f"UPDATE {{T}} SET name = 'u{number}' WHERE id % 7 = {number % 7}",
        )
        query.crash(query.events[choice.choice(list(query.events))])
    query.finish()
    expected = sorted(map(tuple, collected(feed_of(spark, source))), key=repr)
    found = sorted(map(tuple, collected(as_delta_spark_reads(spark, sink))), key=repr)
    assert found == expected
