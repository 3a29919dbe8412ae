"""A target that is kept current while its source changes, until told to stop."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

import delvec.conversion.follow as following
from delvec.cli.demo.bytes import write_orders
from delvec.conversion.apply import ConversionReport
from delvec.conversion.follow import Metrics, follow
from delvec.conversion.plan import ConversionPlan
from delvec.conversion.planning.options import Verify
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.footer_statistics import file_statistics
from delvec.delta.skipping.statistics import statistics_json
from delvec.delta.table import DeltaTable
from delvec.delta.write.change import Base, Change, Operation
from delvec.delta.write.commit import commit
from delvec.errors import (
    ConflictError,
    EngineError,
    InvalidArgumentError,
    StorageError,
    TableNotFoundError,
)
from delvec.storage.uncommitted import UncommittedFiles
from tests.conversion.targets import ids, ids_in_delta
from tests.delta.write.write_checks import deletion, live
from tests.iceberg.resolve.test_follow import Rounds

DAY = "2026-02-01"
APPENDED = 50


def append(path: Path, first: int) -> None:
    """Add a file of rows, without a session."""
    snapshot = DeltaTable.for_path(None, path).snapshot()
    name = f"day={DAY}/part-{first}.parquet"
    rows = range(first, first + APPENDED)
    file = path / name
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": rows, "amount": [float(row) for row in rows]}), file)
    statistics = file_statistics(snapshot.metadata, pq.read_metadata(file), tight_bounds=True)
    entry: dict[str, Any] = {
        "path": name,
        "partitionValues": {"day": DAY},
        "size": file.stat().st_size,
        "modificationTime": 1_769_000_000_000,
        "dataChange": True,
        "stats": statistics_json(statistics),
    }
    put(snapshot, Change(Operation("WRITE"), added=(entry,)))


def delete(path: Path, chance: random.Random) -> None:
    """Delete a few rows of some file, without a session."""
    snapshot = DeltaTable.for_path(None, path).snapshot()
    name, file = chance.choice(list(live(snapshot).items()))
    assert file.rows is not None
    put(snapshot, deletion(snapshot, {name: chance.sample(range(file.rows - 1), 3)}))


def put(snapshot: Snapshot, change: Change) -> None:
    with UncommittedFiles(snapshot.storage) as uncommitted:
        commit(Base.of(snapshot), change, uncommitted)


def change(path: Path, number: int, chance: random.Random) -> None:
    if number % 2:
        delete(path, chance)
    else:
        append(path, 1_000_000 + number * APPENDED)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A table of 30,000 rows at version 2, in which every seventh of two files is deleted."""
    path = tmp_path / "orders"
    write_orders(str(path))
    return path


@pytest.mark.spark
def test_each_version_of_the_source_arrives_and_is_told(spark: SparkSession, orders: Path) -> None:
    name, stop, chance = "lake.follow.each", Event(), random.Random(5)
    told: list[ConversionReport] = []

    def on_report(report: ConversionReport) -> None:
        told.append(report)
        assert ids(spark, name) == ids_in_delta(orders, report.version)
        if len(told) == 5:
            stop.set()
        else:
            change(orders, len(told), chance)

    counted: list[Metrics] = []
    last = follow(
        spark, orders, name, stop=stop, on_report=on_report, on_metrics=counted.append, interval=0
    )
    assert [report.version for report in told] == [2, 3, 4, 5, 6]
    assert [report.mode for report in told] == ["full", *["incremental"] * 4]
    assert last is told[-1]
    end = counted[-1]
    assert (end.cycles - end.idle_cycles, end.commits, end.version) == (5, 5, 6)
    assert end.files_added == sum(report.files_added for report in told)
    assert end.lag_seconds is not None
    assert (end.oldest_age_seconds, end.waiting_ms) == (0.0, None)
    first = next(each for each in counted if each.waiting_ms is not None)
    assert first.cycles == 0
    assert first.oldest_age_seconds > 0, "before the first success too"
    text = end.to_prometheus()
    labels = f'{{source="{orders}",target="{name}"}}'
    assert f"delvec_convert_version{labels} 6\n" in text
    assert f"delvec_convert_commits_total{labels} 5\n" in text
    assert f"delvec_convert_oldest_unconverted_age_seconds{labels} 0.000\n" in text


@pytest.mark.spark
def test_a_look_without_news_costs_one_listing_and_no_job(
    spark: SparkSession, orders: Path
) -> None:
    told: list[ConversionReport] = []
    table = DeltaTable.for_path(spark, orders)
    name = "lake.follow.idle"
    last = follow(spark, table, name, stop=Rounds(1), on_report=told.append, interval=7)
    requests = table.storage.requests
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup()
    stop = Rounds(3)
    last = follow(spark, table, name, stop=stop, on_report=told.append, interval=7)
    spent = table.storage.requests - requests
    assert (spent.lists, spent.puts, spent.bytes_written) == (3, 0, 0)
    assert spent.gets <= 3  # the pointer to the last checkpoint
    assert spark.sparkContext.statusTracker().getJobIdsForGroup() == jobs
    assert [report.mode for report in told] == ["full", "none"]  # only the first of three is told
    assert last is not None
    assert last.version == 2
    assert all(0 < wait <= 7 for wait in stop.waits)


@pytest.mark.spark
def test_a_stop_in_the_middle_lets_the_conversion_end(
    spark: SparkSession, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, told, apply = Event(), list[ConversionReport](), ConversionPlan.apply

    def stopped(self: ConversionPlan, verify: Verify | bool = "counts") -> ConversionReport:  # noqa: FBT001
        stop.set()
        return apply(self, verify)

    monkeypatch.setattr(ConversionPlan, "apply", stopped)
    name = "lake.follow.stopped"
    last = follow(spark, orders, name, stop=stop, on_report=told.append)
    assert [last] == told
    assert ids(spark, name) == ids_in_delta(orders, 2)


def failing(
    monkeypatch: pytest.MonkeyPatch,
    *errors: Exception | None,
    at_once: Callable[[], object] = lambda: None,
) -> list[Any]:
    """Let conversions fail one after the other, and give what they were called with."""
    left, calls = list(errors), list[Any]()

    def convert(*arguments: Any, **_: Any) -> ConversionReport:  # noqa: ANN401
        calls.append(arguments)
        at_once()
        if error := left.pop(0):
            raise error
        return ConversionReport("s", "t", 1, 2, 7)

    monkeypatch.setattr(following, "apply_newest", convert)
    return calls


def run(orders: Path, stop: Event, **more: Any) -> tuple[list[str], list[float]]:  # noqa: ANN401
    told, waited = list[str](), list[float]()

    def on_retry(error: Exception, seconds: float) -> None:
        told.append(str(error))
        waited.append(seconds)

    arguments: dict[str, Any] = {"interval": 3.0, "on_report": lambda _: None, **more}
    table = DeltaTable.for_path(None, orders)
    spark: Any = None  # what would use it is replaced
    follow(spark, table, "lake.db.t", stop=stop, on_retry=on_retry, **arguments)
    return told, waited


# What conversions fail with, and the waits that are told.
GONE, DEAD = StorageError("gone"), EngineError("dead")
RETRIED: dict[str, tuple[list[Exception | None], float, list[float]]] = {
    "a store that fails is waited for": ([GONE, DEAD, DEAD], 3.0, [3.0, 3.0, 4.0]),
    "a conversion in between begins again": (
        [*[GONE] * 5, None, *[GONE] * 5],
        0.0,
        [1.0, 2.0, 4.0, 8.0, 16.0] * 2,
    ),
}


@pytest.mark.parametrize("case", RETRIED)
def test_what_may_pass_is_tried_again(
    orders: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    errors, interval, waited = RETRIED[case]
    calls = failing(monkeypatch, *errors, None)
    told = [str(error) for error in errors if error is not None]
    assert run(orders, Rounds(len(errors) + 1), interval=interval) == (told, waited)
    assert len(calls) == len(errors) + 1


def test_a_lost_race_is_tried_again_ever_later(
    orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = failing(monkeypatch, *[ConflictError("lost")] * 9, None)
    told, waited = run(orders, Rounds(10))
    assert told == ["lost"] * 9
    for seconds, longest in zip(waited, (3, 6, 12, *[24] * 6), strict=True):
        assert 0.75 * longest <= seconds <= longest
    assert len(calls) == 10


def test_what_does_not_pass_is_raised(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, *[GONE] * 6)
    with pytest.raises(StorageError, match="gone"):
        run(orders, Rounds(99))
    failing(monkeypatch, TableNotFoundError("no catalog"))
    with pytest.raises(TableNotFoundError):
        run(orders, Rounds(9))
    failing(monkeypatch, ConnectionRefusedError(111, "Connection refused"))
    with pytest.raises(EngineError, match="the JVM of this session has ended"):
        run(orders, Rounds(9))
    for interval in (-1, float("inf"), float("nan")):
        with pytest.raises(InvalidArgumentError, match="expected a number of seconds from 0 to"):
            run(orders, Rounds(9), interval=interval)
    stop = Event()
    failing(monkeypatch, DEAD, at_once=stop.set)
    with pytest.raises(EngineError, match="dead"):  # after the stop, too
        run(orders, stop)


def command(orders: Path, warehouse: Path, *more: str) -> list[str]:
    code = "from delvec.cli import main; main()"
    words = ["convert", str(orders), "lake.db.orders", "--warehouse", str(warehouse), "--json"]
    return [sys.executable, "-c", code, *words, *more]


def by_pyiceberg(warehouse: Path) -> list[int]:
    folder = warehouse / "db/orders/metadata"
    newest = (folder / "version-hint.text").read_text()
    table = StaticTable.from_metadata(f"file://{folder}/v{newest}.metadata.json")
    return sorted(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_target_follows_a_writer_that_commits_every_second(
    orders: Path, tmp_path: Path, sign: signal.Signals
) -> None:
    seconds = 60 if sign is signal.SIGTERM else 10
    warehouse, chance = tmp_path / "warehouse", random.Random(7)
    arguments = command(orders, warehouse, "--follow", "--interval", "1")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline())]
        rest = Thread(target=lambda: lines.extend(map(json.loads, process.stdout or ())))
        rest.start()
        for number in range(seconds):
            start = time.monotonic()
            change(orders, number, chance)
            time.sleep(max(0.0, start + 1 - time.monotonic()))
        process.send_signal(sign)
        change(orders, 1, chance)  # the writer does not stop for us
        rest.join(120)
        assert process.wait(10) == 0
    *reports, end = lines
    version = end["version"]
    assert (end["stopped"], end["source"], end["target"]) == (True, str(orders), "lake.db.orders")
    versions = [report["version"] for report in reports]
    assert versions == sorted(set(versions))
    assert versions[-1] == version
    assert [report["mode"] for report in reports] == ["full"] + ["incremental"] * (len(reports) - 1)
    assert len(reports) > seconds / 6  # even where each takes some seconds
    assert version > 2 + seconds / 2
    assert by_pyiceberg(warehouse) == ids_in_delta(orders, version)

    append(orders, 5_000_000)
    done = subprocess.run(command(orders, warehouse), capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert (report["start_version"], report["mode"]) == (version, "incremental")
    assert by_pyiceberg(warehouse) == ids_in_delta(orders, report["version"])
    assert 5_000_000 in by_pyiceberg(warehouse)
