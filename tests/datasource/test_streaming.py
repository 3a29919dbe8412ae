"""Writes and streams with `format("delvec")` on Spark, against delta-spark: same rows, once."""

from __future__ import annotations

import json
import os
import random
import shutil
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
from pyspark.sql.streaming.query import StreamingQuery

from delvec.datasource.options import HAS_LIMITS
from delvec.errors import InvalidArgumentError
from tests.datasource.in_process import FEED, forget_zone, held, rows_between, stream_of, write_each
from tests.delta.log_files import commits
from tests.spark.delta.lake import Lake
from tests.spark.delta.readers import ZONE, settings_of
from tests.spark.delta.spark_tables import as_delta_spark_reads, collected

WAYS_OUT = r"(?s)version 2 of .*\(DELETE\).*skipChangeCommits=true.*readChangeFeed=true"
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def changed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A table whose rows delta-spark inserted, updated and deleted by vectors, with its feed."""
    lake = Lake(spark, tmp_path_factory.mktemp("changed") / "t")
    lake.create(
        "id long, name string, day date",
        "INSERT INTO {T} SELECT /*+ COALESCE(1) */ id, concat('n', id), date'2026-01-01' +"
        " cast(id % 2 as int) FROM range(20)",
        "DELETE FROM {T} WHERE id % 5 = 0",
        "UPDATE {T} SET name = 'new' WHERE id = 7",
        "INSERT INTO {T} VALUES (100, NULL, NULL)",
        "OPTIMIZE {T}",
        "DELETE FROM {T} WHERE day = date'2026-01-02'",
        parts=["day"],
        properties=FEED,
    )
    return lake


def rows_of(df: DataFrame) -> list[tuple[object, ...]]:
    return sorted(map(tuple, collected(df)), key=repr)


def feed_of(lake: Lake) -> list[tuple[object, ...]]:
    """Return the changes as delta-spark tells them."""
    reading = lake.spark.read.format("delta").option("readChangeFeed", "true")
    return rows_of(reading.option("startingVersion", 0).load(str(lake.path)))


def stream_of_spark(lake: Lake, kind: str = "delvec", **options: object) -> DataFrame:
    return lake.spark.readStream.format(kind).options(**options).load(str(lake.path))  # type: ignore[arg-type]


def run(stream: DataFrame, sink: Path, mode: str = "append") -> StreamingQuery:
    """Copy all that a stream has now; the checkpoint is beside the sink."""
    writing = stream.writeStream.format("delvec").outputMode(mode)
    writing = writing.option("checkpointLocation", f"{sink}-checkpoint")
    query = writing.trigger(availableNow=True).start(str(sink))
    query.awaitTermination()
    return query


def forget_last_commit(sink: Path) -> None:
    """Leave the checkpoint as a crash does after the sink's commit and before Spark's."""
    checkpoint = Path(f"{sink}-checkpoint")
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
    assert rows_of(found.selectExpr(text)) == rows_of(rows.selectExpr(text))
    # delta-spark skips files and row groups by statistics, and takes NaN for the largest number.
    for condition in ("d > 100", "price > 12 AND wide = 49"):
        assert len(collected(found.where(condition).select("id"))) == 1, condition
    rows.limit(5).write.format("delvec").mode("overwrite").save(str(path))
    assert len(collected(as_delta_spark_reads(spark, path).select("id"))) == 5


@pytest.mark.slow
def test_a_stream_of_changes_is_copied_once(changed: Lake, tmp_path: Path) -> None:
    sink = Lake(changed.spark, tmp_path / "sink")
    for _ in range(3):  # two of them repeat the batch
        stream = stream_of_spark(changed, readChangeFeed=True, startingVersion=0)
        run(stream.withColumnRenamed("_change_type", "change"), sink.path)
        assert rows_of(sink.frame()) == feed_of(changed)
        forget_last_commit(sink.path)
    assert sink.table.version == 1
    query = json.loads((tmp_path / "sink-checkpoint/metadata").read_text())["id"]
    assert query in [line.get("txn", {}).get("appId") for line in commits(sink.path)[1]]
    assert len(list(sink.path.glob("*.parquet"))) == len(sink.table.arrow_files())


def test_a_delete_by_a_vector_is_a_change_and_never_passed_over_unasked(changed: Lake) -> None:
    def rows(**options: str) -> list[tuple[object, ...]]:
        reader = stream_of(changed.path, columns="id", **options)
        return rows_between(reader, reader.initialOffset(), reader.latestOffset())

    assert rows() == [(number,) for number in changed.ids()]
    with pytest.raises(InvalidArgumentError, match=WAYS_OUT):
        rows(startingVersion="0", ignoreDeletes="true")
    appended = rows(startingVersion="0", skipChangeCommits="true")
    assert appended == [(number,) for number in (*range(20), 100)]


@pytest.mark.slow
def test_queries_end_with_the_version_and_the_ways_out(changed: Lake, tmp_path: Path) -> None:
    with pytest.raises(StreamingQueryException, match=WAYS_OUT):
        run(stream_of_spark(changed, startingVersion=0), tmp_path / "sink")
    source, sink = Lake(changed.spark, tmp_path / "source"), tmp_path / "copied"
    write_each(source.path, 1, 2)
    run(stream_of_spark(source), sink)
    assert held(sink) == [1, 2]
    shutil.rmtree(sink)
    write_each(source.path, 3)
    with pytest.raises(StreamingQueryException, match=r"(?s)there is no table.*Begin again"):
        run(stream_of_spark(source), sink)
    assert not sink.exists(), "a sink that was dropped is not created again"


@pytest.mark.slow
@pytest.mark.skipif(not HAS_LIMITS, reason="limits of a batch need Spark 4.2")
def test_batches_are_limited_and_every_row_is_copied_once(lake: Lake) -> None:
    sink = lake.beside("sink").path
    for numbers, expected in ((range(5), [2, 2, 1]), (range(5, 8), [2, 1])):
        write_each(lake.path, *numbers)
        query = run(stream_of_spark(lake, maxFilesPerTrigger=2), sink)
        assert [each.numInputRows for each in query.recentProgress] == expected
    assert held(sink) == list(range(8))


@pytest.mark.slow
def test_a_partition_value_without_a_zone_is_in_that_of_the_session(lake: Lake) -> None:
    insert = "INSERT INTO {T} VALUES (1, timestamp'2026-07-01 10:00:00')"
    lake.create("id long, at timestamp", insert, parts=["at"])
    forget_zone(lake.path, 1)
    for zone in ("Asia/Kolkata", "America/New_York"):
        with settings_of(lake.spark, {ZONE: zone}):
            reading = lake.spark.read.format("delvec").load(str(lake.path))
            found = reading.selectExpr("cast(at as string)").collect()
            assert found == [("2026-07-01 10:00:00",)]


@pytest.mark.slow
def test_an_aggregate_in_complete_mode_replaces_the_table(lake: Lake) -> None:
    sink = lake.beside("sink")
    for number in range(2):
        write_each(lake.path, *range(5 * number, 5 * number + 5))
        counts = stream_of_spark(lake).groupBy().count()
        run(counts, sink.path, "complete")
        assert sink.frame().collect() == [(5 * number + 5,)]
    with pytest.raises(PySparkException):
        run(counts, lake.beside("other").path, "update")


@pytest.mark.more
def test_a_stream_catches_up_in_the_run_after_a_crash_as_delta_spark_does(lake: Lake) -> None:
    found: dict[str, list[list[int]]] = {"delta": [], "delvec": []}
    for kind, copied in found.items():
        source, sink = lake.beside(f"{kind}-source"), lake.beside(f"{kind}-sink").path
        for number in range(3):
            rows = lake.spark.range(number, number + 1, 1, 1)
            rows.write.format("delta").mode("append").save(str(source.path))
            if number == 2:
                forget_last_commit(sink)
            run(stream_of_spark(source, kind), sink)
            copied.append(held(sink))
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
        self._sink, self._checkpoint = folder / "sink", folder / "sink-checkpoint"
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
def test_a_stream_that_is_killed_again_and_again_copies_every_change_once(lake: Lake) -> None:
    choice = random.Random(7)
    lake.create("id long, name string", properties=FEED)
    query = Crashes(lake.path, lake.path.parent)
    for number in range(10):
        start, stop = 10 * number, 10 * number + 10
        lake.sql(
            f"INSERT INTO {{T}} SELECT id, 'n{number}' FROM range({start}, {stop})",
            f"DELETE FROM {{T}} WHERE id % 10 = {number % 10} AND id < {stop}",
            f"UPDATE {{T}} SET name = 'u{number}' WHERE id % 7 = {number % 7}",
        )
        query.crash(query.events[choice.choice(list(query.events))])
    query.finish()
    assert rows_of(lake.beside("sink").frame()) == feed_of(lake)
