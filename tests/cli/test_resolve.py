"""`delvec resolve`, also as a service, and `delvec compact`."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from http.client import HTTPConnection
from threading import Event, Thread
from typing import TYPE_CHECKING
from uuid import uuid4

import click
import pytest
from click.testing import CliRunner, Result

import delvec
from delvec.cli import main
from delvec.cli.exits import ExitCode
from delvec.cli.options import seconds
from delvec.iceberg.client.catalog import load_table
from delvec.iceberg.commits.lock import locked
from delvec.iceberg.commits.lock_state import lock_tags

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delvec import IcebergTable


def run(*arguments: str) -> Result:
    environment = {"COLUMNS": "200", "NO_COLOR": "1"}
    return CliRunner().invoke(main, list(arguments), env=environment)


@pytest.fixture
def table(spark: SparkSession) -> IcebergTable:
    """A table of the ids 0 to 9, and a branch `stage` that deletes 3 and 99 and upserts 5."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.cli")
    name = f"lake.cli.t_{uuid4().hex[:8]}"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, s STRING) USING iceberg"
        " TBLPROPERTIES ('format-version'='3')"
    )
    spark.sql(f"INSERT INTO {name} SELECT id, 'old' FROM range(0, 10, 1, 1)")
    made = delvec.IcebergTable.for_name(spark, name)
    made.create_branch("stage", staging=True)
    made.delete_keys([3, 99], "id", branch="stage")
    made.upsert(spark.createDataFrame([(5, "new")], "id BIGINT, s STRING"), "id", branch="stage")
    return made


def rows(table: IcebergTable) -> list[tuple[int, str]]:
    table.spark.catalog.refreshTable(table.name)
    return sorted((row[0], row[1]) for row in table.spark.table(table.name).collect())


RESOLVED = [(each, "new" if each == 5 else "old") for each in range(10) if each != 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("resolve", "lake.db.t", "--follow", "--dry-run"), "--follow does not go with --dry-run"),
        (("resolve", "lake.db.t", "--interval", "3s"), "--interval needs --follow"),
        (("resolve", "lake.db.t", "--metrics-port", "0"), "--metrics-port needs --follow"),
        (("resolve", "lake.db.t", "--drop-staging"), "--drop-staging needs --staging"),
        (("resolve", "lake.db.t", "--follow", "--interval", "soon"), "'soon' is not a duration"),
        (("resolve", "lake.db.t", "--follow", "--interval", "-3s"), "'-3s' is not a duration"),
        (("resolve", "lake.db.t", "--wait", "3 weeks"), "'3 weeks' is not a duration"),
        (("resolve", "lake.db.t", "--index", "hash"), "'auto', 'join', 'index'"),
        (("resolve", "lake.db.t", "--max-snapshots", "0"), "0 is not in the range"),
        (("resolve",), "Missing argument 'TABLE'"),
        (("compact", "lake.db.t", "--wait", "x"), "'x' is not a duration"),
        (("compact", "lake.db.t", "-o", "rewrite-all"), "is not of the form KEY=VALUE"),
    ],
)
def test_wrong_usage_is_told_before_anything_starts(
    arguments: tuple[str, ...], message: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == ExitCode.USAGE
    assert message in result.output


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30s", 30), ("30", 30), (" 1.5m ", 90), ("500ms", 0.5), ("2 h", 7200), ("1d", 86400)],
)
def test_durations_have_a_unit_or_are_seconds(text: str, expected: float) -> None:
    assert seconds(None, None, text) == expected


@pytest.mark.parametrize("text", ["", "s", "1e3", "1 week", "٣s", "1s2m", "inf", "nan"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration such as 30s"):
        seconds(None, None, text)


def test_a_port_that_is_taken_is_told_before_spark_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = run("resolve", "lake.db.t", "--follow", "--metrics-port", port)
    assert result.exit_code == ExitCode.USAGE
    assert f"metrics cannot be served on 127.0.0.1:{port}" in result.output


@pytest.mark.spark
def test_resolving_tells_what_it_did(table: IcebergTable) -> None:
    before = rows(table)
    result = run("resolve", table.name, "--key", "id", "--staging", "stage", "--dry-run")
    assert result.exit_code == 0, result.output
    assert "stage to main, dry run, nothing was written" in result.output
    assert rows(table) == before
    result = run("resolve", table.name, "--key", "id", "--staging", "stage", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["staged_snapshots"] >= 2
    assert (report["rows_deleted"], report["absent"], report["rows_added"]) == (2, 1, 1)
    assert rows(table) == RESOLVED
    result = run("resolve", table.name, "--staging", "stage", "--max-snapshots", "1")
    assert result.exit_code == 0, result.output
    assert f"RESOLVE on {table.name}: stage to main, nothing to do" in result.output


@pytest.mark.spark
def test_a_locked_table_is_a_conflict(table: IcebergTable) -> None:
    with locked(load_table(table.spark, table.identifier), "TEST", owner="somebody"):
        for command in ("resolve", "compact"):
            result = run(command, table.name, "--wait", "200ms", "--json")
            assert result.exit_code == ExitCode.CONFLICT
            error = json.loads(result.output)["error"]
            assert error["type"] == "LockedError"
            assert "is locked by somebody for TEST" in error["message"]


@pytest.mark.spark
def test_compaction_tells_what_it_did(table: IcebergTable) -> None:
    for number in (10, 11):
        table.spark.sql(f"INSERT INTO {table.name} VALUES ({number}, 'old')")
    chosen = ("compact", table.name, "-o", "min-input-files=2", "--where", "id >= 0")
    result = run(*chosen, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "main, dry run, nothing was written\n  data files  3 -> 1" in result.output
    result = run(*chosen, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert (report["files_rewritten"], report["files_added"]) == (3, 1)
    assert rows(table) == [(each, "old") for each in range(12)]
    table.delete_keys([1], "id")
    result = run(*chosen)
    assert result.exit_code == ExitCode.FAILED
    assert "Hint: resolve() turns them into deletion vectors" in result.output


def follow(
    table: IcebergTable, when: Callable[[], bool], sign: signal.Signals, *arguments: str
) -> Result:
    """Follow until something is true, and then get a signal."""
    done = Event()

    def kill() -> None:
        while not done.wait(0.05):
            if when():
                os.kill(os.getpid(), sign)
                return

    killer = Thread(target=kill)
    killer.start()
    try:
        return run("resolve", table.name, "--staging", "stage", "--follow", *arguments)
    finally:
        done.set()
        killer.join()


@pytest.mark.spark
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_following_after_the_running_cycle(
    table: IcebergTable, sign: signal.Signals
) -> None:
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    before = load_table(table.spark, table.identifier).metadata.head()

    def is_running() -> bool:
        newest = load_table(table.spark, table.identifier).metadata
        return bool(lock_tags(newest)) or newest.head() != before

    result = follow(table, is_running, sign, "--interval", "10m", "--json")
    assert result.exit_code == 0, result.output
    report, end = map(json.loads, result.output.splitlines())
    assert (report["rows_deleted"], report["oldest_unresolved_age_seconds"]) == (2, 0.0)
    assert (end["stopped"], end["cycles"], end["rows_deleted"]) == (True, 1, 2)
    assert rows(table) == RESOLVED
    assert set(_refs(table)) == {"main", "stage"}
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers


def _refs(table: IcebergTable) -> list[str]:
    return list(load_table(table.spark, table.identifier).metadata.refs)


@pytest.mark.spark
def test_following_takes_what_comes_tells_of_conflicts_and_serves_metrics(
    table: IcebergTable,
) -> None:
    served: list[str] = []
    free = Event()
    port = _free_port()

    def hold() -> None:
        with locked(load_table(table.spark, table.identifier), "TEST", owner="somebody"):
            free.wait(60)

    holder = Thread(target=hold)
    holder.start()
    while "delvec-lock-1" not in _refs(table):
        time.sleep(0.05)

    def is_done() -> bool:
        text = _metrics(port)
        if text is None:
            return False
        found = _value(text, "conflicts_total")
        if found and not free.is_set():
            free.set()
        if _value(text, "rows_deleted_total") == 2 and not served:
            served.append(text)
            table.delete_keys([7], "id", branch="stage")
        return _value(text, "rows_deleted_total") == 3

    try:
        result = follow(
            table, is_done, signal.SIGTERM, "--interval", "300ms", "--metrics-port", str(port)
        )
    finally:
        free.set()
        holder.join()
    assert result.exit_code == 0, result.output
    first, *lines, last = result.output.splitlines()
    assert first == f"{table.name}, every 0.3 s"
    assert f"metrics: http://127.0.0.1:{port}/metrics" in lines
    assert any("again in 0." in line and "locked by somebody" in line for line in lines)
    assert sum("of main, from stage: " in line for line in lines) == 2
    assert "stopped after " in last
    assert "3 rows deleted" in last
    assert rows(table) == [row for row in RESOLVED if row[0] != 7]
    assert f'delvec_resolve_rows_deleted_total{{table="{table.name}"' in served[0]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: int = server.getsockname()[1]
        return found


def _metrics(port: int) -> str | None:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    except ConnectionRefusedError:
        return None
    finally:
        connection.close()


def _value(text: str, name: str) -> float:
    [line] = [each for each in text.splitlines() if each.startswith(f"delvec_resolve_{name}{{")]
    return float(line.rpartition(" ")[2])
