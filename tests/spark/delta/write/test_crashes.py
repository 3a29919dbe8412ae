"""Writers that are killed at every call that changes storage: a table is as before or as after.

Operations without a JVM die in forked processes. The same with Spark, a JVM for each call, is in
the slow set.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable as RustTable
from deltalake import QueryBuilder
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.errors import TableNotFoundError
from tests.delta.write.write_checks import ids, unnamed_files
from tests.repository import ROOT
from tests.spark.delta.spark_tables import as_delta_spark_reads
from tests.spark.delta.write.crash_child import OPERATIONS, SPARK_OPERATIONS, spark_table

pytestmark = pytest.mark.more

CHILD = [sys.executable, "-m", "tests.spark.delta.write.crash_child"]
# A put that was cut short leaves a hidden file; a delete of rows that was, a file of vectors.
HARMLESS = re.compile(r"(.*/)?\.delvec-staged-\w+|deletion_vector_[\w-]+\.bin")
IN_THE_LOG = re.compile(
    r"\d{20}\.(json|checkpoint(\.[\w-]+)?\.(parquet|json))|_last_checkpoint"
    r"|_sidecars/[\w-]+\.parquet|(_sidecars/)?\.delvec-staged-\w+"
)


class Killed(NamedTuple):
    """A table whose writer was killed."""

    operation: str
    call: int
    when: str
    table: Path
    is_done: bool


State = tuple[int, tuple[int, ...], tuple[tuple[str, str], ...]] | None


def state(path: Path) -> State:
    """Tell what matters of a table: version, rows, properties; None if there is none."""
    try:
        table = DeltaTable.for_path(None, path)
    except TableNotFoundError:
        return None
    return table.version, tuple(ids(path)), tuple(sorted(table.properties.items()))


class Server:
    """The process that forks."""

    def __init__(self) -> None:
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process: Any = subprocess.Popen(CHILD, cwd=ROOT, **pipes)

    def run(self, operation: str, table: Path, call: int, when: str) -> tuple[int, list[str]]:
        """Give the status of a child and which calls it made."""
        job = {"operation": operation, "table": str(table), "call": call, "when": when}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        status, calls = json.loads(self._process.stdout.readline())
        return status, calls

    def close(self) -> None:
        self._process.stdin.close()
        assert self._process.wait(60) == 0
        self._process.stdout.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture(scope="module")
def killed(server: Server, tmp_path_factory: pytest.TempPathFactory) -> list[Killed]:
    """Kill each operation before each of its calls, and at the end of those inside of a put.

    What is there after another call is what is there before the next one.
    """
    found = []
    for name, operation in OPERATIONS.items():
        folder = tmp_path_factory.mktemp("killed")
        operation.make(folder / "before")
        shutil.copytree(folder / "before", folder / "after")
        status, calls = server.run(name, folder / "after", 0, "never")
        assert status == 0
        assert len(calls) > 1
        before, after = state(folder / "before"), state(folder / "after")
        between = {before, after}
        if "winner" in name:  # it may have committed, and the other not yet
            assert before is not None
            rows = tuple(each for each in before[1] if each not in (3, 16))
            between.add((before[0] + 1, rows, before[2]))
        moments = [(call, "before") for call in range(1, len(calls) + 1)]
        moments += [
            (call, "after")
            for call, function in enumerate(calls, 1)
            if function in ("link", "replace") or call == len(calls)
        ]
        for call, when in moments:
            table = folder / f"{call}-{when}"
            shutil.copytree(folder / "before", table)
            status, _ = server.run(name, table, call, when)
            assert status == SIGKILL, f"{name} did not reach call {call}"
            now = state(table)
            assert now in between, f"{name}, killed {when} call {call}"
            found.append(Killed(name, call, when, table, now == after))
    return found


def test_each_operation_was_killed_before_and_after_it_counted(killed: list[Killed]) -> None:
    for name in OPERATIONS:
        outcomes = {each.is_done for each in killed if each.operation == name}
        assert True in outcomes, name
        if "checkpoint" not in name or "alter" in name:
            assert False in outcomes, name


def test_what_a_kill_leaves_is_in_nobodys_way(killed: list[Killed]) -> None:
    left = set()
    for each in killed:
        outside = unnamed_files(each.table)
        manifests = {name for name in outside if name.startswith("_symlink_format_manifest/")}
        for name in outside - manifests:
            assert HARMLESS.fullmatch(name), name
            left.add(name.split("-")[0])
        for path in (each.table / "_delta_log").rglob("*"):
            name = str(path.relative_to(each.table / "_delta_log"))
            assert path.is_dir() or IN_THE_LOG.fullmatch(name), name
            left |= {".delvec"} if ".delvec" in name else set()
    assert {name[:10] for name in left} == {".delvec", "deletion_v"}


def test_another_engine_reads_what_a_kill_leaves(killed: list[Killed]) -> None:
    for each in killed:
        if (now := state(each.table)) is None:
            continue
        table = RustTable(str(each.table))
        assert table.version() == now[0]
        rows = QueryBuilder().register("t", table).execute("SELECT id FROM t ORDER BY id")
        found = [value for batch in rows for value in batch["id"].to_pylist()]
        assert found == list(now[1]), each


@pytest.mark.slow
@pytest.mark.spark
def test_delta_spark_cleans_up_what_a_kill_leaves(
    spark: SparkSession, killed: list[Killed]
) -> None:
    kinds: dict[object, Killed] = {}
    for each in killed:
        left = {
            re.sub(r"[\w]{8}-[-\w]+|\w{32}|\d{20}", "", name) for name in unnamed_files(each.table)
        }
        kinds.setdefault(("checkpoint" in each.operation, *sorted(left)), each)
    setting = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(setting, "false")
    cleaned = 0
    for each in kinds.values():
        if (now := state(each.table)) is None:
            continue
        rows = as_delta_spark_reads(spark, each.table).toArrow().column("id").to_pylist()
        assert sorted(rows) == list(now[1]), each
        left = unnamed_files(each.table)
        if any("deletion_vector" in name for name in left):
            spark.sql(f"VACUUM delta.`{each.table}` RETAIN 0 HOURS")
            left = unnamed_files(each.table)
            assert not any("deletion_vector" in name for name in left), left
            assert ids(each.table) == list(now[1])
            cleaned += 1
    spark.conf.unset(setting)
    assert cleaned > 1


@pytest.mark.slow
def test_what_was_killed_can_be_done_again(killed: list[Killed], tmp_path: Path) -> None:
    for number, each in enumerate(killed):
        table = tmp_path / str(number)
        shutil.copytree(each.table, table)
        operation = OPERATIONS[each.operation]
        operation.run(table)
        now, after = state(table), state(each.table.parent / "after")
        assert now is not None
        assert after is not None
        # A winner that had committed before the kill makes one more version.
        assert now[1:] == after[1:], each
        assert now[0] >= after[0]
        if not each.is_done:
            assert now[0] == after[0], each


# With Spark.
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", SPARK_OPERATIONS)
def test_spark_is_killed_at_each_call(spark: SparkSession, tmp_path: Path, name: str) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    spark_table(spark, before)
    shutil.copytree(before, after)

    def run(table: Path, call: int, when: str) -> subprocess.CompletedProcess[str]:
        job = {"operation": name, "table": str(table), "call": call, "when": when}
        options: Any = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 300}
        return subprocess.run(
            [*CHILD, json.dumps(job)], start_new_session=True, check=False, **options
        )

    whole = run(after, 0, "never")
    assert whole.returncode == 0, whole.stderr
    calls = json.loads(whole.stdout.splitlines()[-1])[1]
    writes_rows = name != "DELETE"
    outcomes = []
    for call in range(1, calls + 1):
        for when in ("before", "after", *(["during"] if writes_rows and call == 1 else [])):
            table = tmp_path / f"{call}-{when}"
            shutil.copytree(before, table)
            ended = run(table, call, when)
            assert ended.returncode == -SIGKILL, ended.stderr
            rows = _rows(table)
            assert rows in (_rows(before), _rows(after)), (call, when)
            outcomes.append(rows == _rows(after))
            found = as_delta_spark_reads(spark, table).toArrow().to_pylist()
            assert sorted(found, key=str) == rows
            left = {key for key in unnamed_files(table) if not _is_harmless(key)}
            assert not left, (call, when)
            SPARK_OPERATIONS[name](spark, table)
            assert _rows(table) == _rows(after), (call, when)
    assert set(outcomes) == ({True} if name == "OPTIMIZE" else {True, False})


def _rows(path: Path) -> list[dict[str, object]]:
    return sorted(DeltaTable.for_path(None, path).to_arrow().to_pylist(), key=str)


def _is_harmless(key: str) -> bool:
    """Files in a folder of their own, of a job that ended or of one that was cut short."""
    own = re.fullmatch(r"[0-9a-f-]{36}/(_temporary/.*|part-[\w.-]+\.parquet|_SUCCESS|\..*)", key)
    return bool(own or HARMLESS.fullmatch(key))
