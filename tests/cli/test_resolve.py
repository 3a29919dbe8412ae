"""`delvec resolve`, also as a service, and `delvec compact`."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from io import BytesIO
from threading import Event, Thread
from urllib.request import urlopen

import pytest
from click.testing import Result
from pyspark.sql import SparkSession

from delvec import IcebergTable
from delvec.cli.exits import ExitCode
from delvec.iceberg.client.catalog import load_table
from delvec.iceberg.commit.lock import hold_lock
from delvec.iceberg.commit.lock_state import lock_tags
from tests.cli.runner import run, run_json
from tests.iceberg.deletes.tables import open_new

DEADLINE = 300.0  # seconds for what takes a few: a machine may be slow, and no test waits longer


@pytest.fixture
def table(spark: SparkSession) -> IcebergTable:
    """A table of the ids 0 to 9, and a branch `stage` that deletes 3 and 99 and upserts 5."""
    made = open_new(spark)
    spark.sql(f"INSERT INTO {made.name} SELECT id, 'old' FROM range(0, 10, 1, 1)")
    made.create_branch("stage", staging=True)
    made.delete_keys([3, 99], "id", branch="stage")
    made.upsert(spark.createDataFrame([(5, "new")], "id BIGINT, s STRING"), "id", branch="stage")
    return made


def rows(table: IcebergTable) -> list[tuple[int, str]]:
    table.spark.catalog.refreshTable(table.name)
    return sorted((row[0], row[1]) for row in table.spark.table(table.name).collect())


RESOLVED = [(each, "new" if each == 5 else "old") for each in range(10) if each != 3]


def test_a_port_that_is_taken_is_told_before_spark_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        given = ("--follow", "--metrics-port", port)
        result = run("resolve", "lake.db.t", *given, code=ExitCode.USAGE)
    assert f"metrics cannot be served on 127.0.0.1:{port}" in result.output


@pytest.mark.spark
def test_resolving_tells_what_it_did(table: IcebergTable) -> None:
    before, given = rows(table), ("resolve", table.name, "--staging", "stage")
    snapshots = load_table(table.spark, table.identifier).metadata.ancestors("stage")
    # Newest first: deleted keys, then 5.
    assert oldest_ms(table, "stage") == [each.timestamp_ms for each in snapshots][1]
    assert oldest_ms(table) is None
    result = run(*given, "--key", "id", "--dry-run", code=0)
    assert "stage to main, dry run, nothing was written" in result.output
    assert rows(table) == before
    report = run_json(*given, "--key", "id")
    assert report["staged_snapshots"] >= 2
    assert (report["rows_deleted"], report["absent"], report["rows_added"]) == (2, 1, 1)
    assert rows(table) == RESOLVED
    assert oldest_ms(table, "stage") is None
    result = run(*given, "--max-snapshots", "1", code=0)
    assert f"RESOLVE on {table.name}: stage to main, nothing to do" in result.output
    table.delete_keys([8], "id")
    head = load_table(table.spark, table.identifier).metadata.head()
    assert head is not None
    assert oldest_ms(table) == head.timestamp_ms


def oldest_ms(table: IcebergTable, *branch: str) -> int | None:
    found = table.oldest_unresolved(*branch)
    return None if found is None else round(found.timestamp() * 1000)


@pytest.mark.more
@pytest.mark.spark
def test_what_was_committed_before_a_refusal_is_told(table: IcebergTable) -> None:
    table.delete("id = 7", branch="stage")  # by position, of a file that is gone then
    table.compact(options={"rewrite-all": True})
    refused = ("resolve", table.name, "--staging", "stage", "--max-snapshots", "3", "--json")
    error = json.loads(run(*refused).output)["error"]
    report = error["report"]
    assert (error["type"], report["commits"]) == ("PlanError", 1)
    assert (report["rows_deleted"], report["rows_added"]) == (2, 1)
    assert "has rewritten or removed it" in error["message"]
    committed = f"(committed before: snapshot {report['snapshot_id']} of main, from stage: 2 rows"
    assert committed in error["message"]
    assert rows(table) == RESOLVED
    assert "report" not in json.loads(run(*refused).output)["error"]


@pytest.mark.more
@pytest.mark.spark
def test_a_locked_table_is_a_conflict(table: IcebergTable) -> None:
    with hold_lock(load_table(table.spark, table.identifier), "TEST", owner="somebody"):
        waiting = ("--wait", "200ms", "--lease", "10m")
        for command, *more in (
            ("resolve", "--staging", "stage", *waiting),
            ("compact", *waiting),
            ("unlock",),
        ):
            result = run(command, table.name, *more, "--json", code=ExitCode.CONFLICT)
            error = json.loads(result.output)["error"]
            assert error["type"] == "LockedError"
            assert "is locked by somebody for TEST" in error["message"]
            assert "--wait 60s" in error["hint"]
            assert "`delvec unlock --force`" in error["hint"]
        planned = run_json("unlock", table.name, "--force", "--dry-run")
        assert (planned["owner"], planned["dry_run"]) == ("somebody", True)
        removed = run("unlock", table.name, "--force").output
        assert "the lock of somebody for TEST is removed" in removed
        assert f"UNLOCK of {table.name}: it is not locked" in run("unlock", table.name).output


@pytest.mark.slow
@pytest.mark.spark
def test_the_index_is_made_brought_up_to_date_and_dropped(table: IcebergTable) -> None:
    build, drop = (("index", table.name, *more) for more in (("--key", "id"), ("--drop",)))
    told = f"INDEX of {table.name} by id: built, reflects snapshot"
    assert told in run(*build, code=0).output
    table.spark.sql(f"INSERT INTO {table.name} VALUES (10, 'old')")
    report = run_json(*build)
    assert (report["action"], report["added_rows"]) == ("updated", 1)
    given = ("--key", "id", "--staging", "stage", "--index", "index")
    run("resolve", table.name, *given, code=0)
    assert rows(table) == [*RESOLVED, (10, "old")]
    assert run_json(*drop)["dropped"] is True
    run(*build, code=0)
    assert "is dropped" in run(*drop).output
    assert run_json(*drop)["dropped"] is False
    assert "has no index" in run(*drop).output
    run("index", table.name, "--key", "nothing", code=ExitCode.USAGE)


@pytest.mark.more
@pytest.mark.spark
def test_compaction_tells_what_it_did(table: IcebergTable) -> None:
    for number in (10, 11):
        table.spark.sql(f"INSERT INTO {table.name} VALUES ({number}, 'old')")
    chosen = ("compact", table.name, "--rewrite-option", "min-input-files=2", "--where", "id >= 0")
    result = run(*chosen, "--dry-run", code=0)
    assert "main, dry run, nothing was written\n  data files  3 -> 1" in result.output
    report = run_json(*chosen)
    assert (report["files_rewritten"], report["files_added"]) == (3, 1)
    assert rows(table) == [(each, "old") for each in range(12)]
    table.delete_keys([1], "id")
    result = run(*chosen, code=ExitCode.FAILED)
    assert "Hint: `delvec resolve` turns them into deletion vectors" in result.output


def printed() -> str:
    """What the command has printed so far: its runner collects it."""
    buffer = getattr(sys.stdout, "buffer", None)
    return buffer.getvalue().decode() if isinstance(buffer, BytesIO) else ""


def follow(
    table: IcebergTable, when: Callable[[], bool], sign: signal.Signals, *arguments: str
) -> Result:
    """Follow until something is true, and then get a signal; it ends in any case."""
    done, overdue = Event(), Event()
    failures: list[BaseException] = []
    deadline = time.monotonic() + DEADLINE

    def unheard(*_: object) -> None:
        """Take signals that come before the command hears them, or after it, and end it late."""
        if overdue.is_set():
            overdue.clear()
            raise TimeoutError(f"no signal has ended the command: {printed()}")

    def kill() -> None:
        try:
            while not when():
                assert time.monotonic() < deadline, f"in vain: {printed()}"
                if done.wait(0.05):
                    return
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
        wait = DEADLINE
        while not done.is_set():
            os.kill(os.getpid(), sign)
            if done.wait(wait):
                return
            overdue.set()
            wait = 1.0  # the first two are for the command, which hands on the next

    killer = Thread(target=kill)
    before = signal.signal(sign, unheard)
    try:
        killer.start()
        try:
            result = run("resolve", table.name, "--staging", "stage", "--follow", *arguments)
            assert signal.getsignal(sign) is unheard
        finally:
            done.set()
            killer.join(DEADLINE)
    finally:
        signal.signal(sign, before)
    assert not killer.is_alive()
    if failures:
        raise failures[0]
    return result


def eventually(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_at_work(table: IcebergTable) -> Callable[[], bool]:
    """Tell whether a cycle has the lock of the table, or has committed."""
    before = load_table(table.spark, table.identifier).metadata.head()

    def is_running() -> bool:
        newest = load_table(table.spark, table.identifier).metadata
        return bool(lock_tags(newest)) or newest.head() != before

    return is_running


@pytest.mark.more
@pytest.mark.spark
def test_a_signal_ends_following_after_the_running_cycle(table: IcebergTable) -> None:
    result = follow(table, is_at_work(table), signal.SIGTERM, "--interval", "10m", "--json")
    assert result.exit_code == 0, result.output
    report, end = map(json.loads, result.output.splitlines())
    assert report["rows_deleted"] == 2
    counted = report["metrics"]
    assert (counted["cycles"], counted["keys"], counted["rows_deleted"]) == (1, 3, 2)
    assert counted["oldest_unresolved_age_seconds"] == 0.0
    assert counted["phases"].keys() == report["phases"].keys()
    assert (end["stopped"], end["cycles"], end["rows_deleted"]) == (True, 1, 2)
    assert rows(table) == RESOLVED
    assert set(_refs(table)) == {"main", "stage"}


@pytest.mark.more
@pytest.mark.spark
def test_ctrl_c_does_so_too(table: IcebergTable) -> None:
    result = follow(table, is_at_work(table), signal.SIGINT, "--interval", "10m")
    assert result.exit_code == 0, result.output
    first, second, last = result.output.splitlines()
    assert first == f"{table.name}, every 600 s"
    when = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d"
    assert re.match(rf"{when}  snapshot.* of main, from stage: 2 rows deleted", second)
    assert last.endswith("stopped after 1 cycle: 1 commit, 3 keys, 2 rows deleted")
    assert rows(table) == RESOLVED


def _refs(table: IcebergTable) -> list[str]:
    return list(load_table(table.spark, table.identifier).metadata.refs)


@pytest.mark.slow
@pytest.mark.spark
def test_following_takes_what_comes_tells_of_conflicts_and_serves_metrics(
    table: IcebergTable,
) -> None:
    served: list[str] = []
    free = Event()

    def hold() -> None:
        with hold_lock(load_table(table.spark, table.identifier), "TEST", owner="somebody"):
            free.wait(DEADLINE)

    def is_done() -> bool:
        found = re.search(r'"metrics_port": (\d+)', printed())
        if found is None:
            return False
        text = _metrics(int(found[1]))
        if _value(text, "conflicts_total"):
            free.set()
        if _value(text, "rows_deleted_total") == 2 and not served:
            served.append(text)
            table.delete_keys([7], "id", branch="stage")
        return _value(text, "rows_deleted_total") == 3

    holder = Thread(target=hold)
    holder.start()
    port = ("--metrics-port", "0", "--metrics-host", "localhost")
    try:
        eventually(lambda: "delvec-lock-1" in _refs(table))
        result = follow(table, is_done, signal.SIGTERM, "--interval", "300ms", "--json", *port)
    finally:
        free.set()
        holder.join(DEADLINE)
    assert result.exit_code == 0, result.output
    first, *documents, last = map(json.loads, result.output.splitlines())
    assert first.keys() == {"metrics_port"}
    failed = [each for each in documents if "error" in each]
    assert all("locked by somebody" in each["error"]["message"] for each in failed)
    assert [each["metrics"]["conflicts"] for each in failed] == list(range(1, len(failed) + 1))
    assert failed[-1]["metrics"]["oldest_unresolved_age_seconds"] > 0
    reports = [each for each in documents if "commits" in each]
    assert len(failed) + len(reports) == len(documents)
    assert [each["metrics"]["rows_deleted"] for each in reports if each["commits"]] == [2, 3]
    assert (last["stopped"], last["rows_deleted"], last["conflicts"]) == (True, 3, len(failed))
    assert rows(table) == [row for row in RESOLVED if row[0] != 7]
    assert f'delvec_resolve_rows_deleted_total{{table="{table.name}"' in served[0]


@pytest.mark.more
@pytest.mark.spark
def test_an_error_that_ends_it_comes_after_what_was_done(table: IcebergTable) -> None:
    result = follow(table, lambda: False, signal.SIGTERM, "--target", "nowhere", "--json")
    assert result.exit_code == ExitCode.USAGE
    end, error = map(json.loads, result.output.splitlines())
    assert (end["stopped"], end["cycles"], end["errors"]) == (True, 1, 1)
    assert "nowhere" in error["error"]["message"]


def _metrics(port: int) -> str:
    with urlopen(f"http://localhost:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def _value(text: str, name: str) -> float:
    [line] = [each for each in text.splitlines() if each.startswith(f"delvec_resolve_{name}{{")]
    return float(line.rpartition(" ")[2])
