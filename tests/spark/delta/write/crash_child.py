"""A process that dies in the middle of an operation, or writes at the moment when others do.

    python -m tests.spark.delta.write.crash_child
        operations without a JVM: reads jobs from its input, forks for each, tells how each ended
    python -m tests.spark.delta.write.crash_child '<job>'
        one operation with Spark, or an act of `race`: it opens the table, says that it is ready,
        waits for a line, then writes and tells what it did

Else a job is `{"operation": name, "table": folder, "call": k, "when": "before" or "after"}`. Every
call that changes what is in storage is numbered, and at number `call` the whole process group is
killed: Python and JVM.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.delta.schema.types import parse_schema
from delvec.delta.write.commit import commit
from delvec.errors import ConflictError
from delvec.storage import Storage
from tests.delta.builder import small_table
from tests.delta.write.write_checks import deletion, ids, positions, put
from tests.repository import ROOT

_CHANGING = ("write", "write_if_absent", "delete", "delete_folder")
ID = parse_schema(
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
)


class Operation(NamedTuple):
    """How a table is made, and what is done to it; a second time it finds that it is done."""

    make: Callable[[Path], object]
    run: Callable[[Path], object]


def delete(path: Path, gone: tuple[int, ...] = (1, 2, 15)) -> None:
    """Delete rows by their ids, as far as they are there."""
    snapshot = DeltaTable.for_path(None, path).snapshot()
    rows = positions(path, set(ids(path)) & set(gone))
    if rows:
        put(snapshot, deletion(snapshot, rows))


def delete_behind_a_winner(path: Path) -> None:
    """Delete rows of files of which another writer deletes rows at the same time."""
    snapshot = DeltaTable.for_path(None, path).snapshot()
    rows = positions(path, set(ids(path)) & {1, 2, 15})
    if rows:
        quietly(delete)(path, (3, 16))
        put(snapshot, deletion(snapshot, rows))


def alter(path: Path) -> None:
    properties = {"delta.logRetentionDuration": "interval 9 days"}
    DeltaTable.for_path(None, path).set_properties(properties)


def made_with(properties: dict[str, str], path: Path) -> None:
    small_table(path)
    table = DeltaTable.for_path(None, path)
    if "delta.checkpointPolicy" in properties:
        table.add_feature("v2Checkpoint")
    table.set_properties(properties)


def plain(path: Path) -> None:
    """Make a table of a few files without vectors, with a manifest."""
    manifest = {"delta.compatibility.symlinkFormatManifest.enabled": "true"}
    DeltaTable.create(
        None, path, ID, properties=manifest | {"delta.enableDeletionVectors": "false"}
    )


def create(path: Path) -> None:
    DeltaTable.create(None, path, ID, mode="ignore")


def checkpoint(path: Path) -> None:
    DeltaTable.for_path(None, path).checkpoint()


OPERATIONS: dict[str, Operation] = {
    "delete": Operation(small_table, delete),
    "delete behind a winner": Operation(small_table, delete_behind_a_winner),
    "alter": Operation(small_table, alter),
    "alter with a checkpoint": Operation(
        partial(made_with, {"delta.checkpointInterval": "1"}), alter
    ),
    "alter with a manifest": Operation(plain, alter),
    "checkpoint": Operation(small_table, checkpoint),
    "checkpoint with sidecars": Operation(
        partial(made_with, {"delta.checkpointPolicy": "v2"}), checkpoint
    ),
    "create": Operation(Path.mkdir, create),
    "restore": Operation(small_table, lambda path: DeltaTable.for_path(None, path).restore(1)),
    "statistics": Operation(
        small_table, lambda path: DeltaTable.for_path(None, path).recompute_statistics()
    ),
}


# With Spark.
def session() -> SparkSession:
    """Start a small session without any engine's jars."""
    import delvec  # noqa: PLC0415

    conf = {"spark.driver.memory": "512m", "spark.ui.enabled": "false"}
    conf["spark.sql.shuffle.partitions"] = "1"
    return delvec.session(master="local[1]", iceberg=False, conf=conf)


def spark_table(spark: SparkSession, path: Path) -> None:
    """Make a table of two files, ids 0 to 19."""
    table = DeltaTable.create(spark, path, "id long, n long")
    for start in (0, 10):
        table.append(spark.range(start, start + 10, 1, 1).selectExpr("id", "id AS n"))


def _merge(spark: SparkSession, path: Path) -> None:
    source = spark.range(18, 22, 1, 1).selectExpr("id", "-1L AS n")
    merge = DeltaTable.for_path(spark, path).merge(source, "t.id = s.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


SPARK_OPERATIONS: dict[str, Callable[[SparkSession, Path], object]] = {
    "DELETE": lambda spark, path: DeltaTable.for_path(spark, path).delete("id % 10 = 3"),
    "UPDATE": lambda spark, path: DeltaTable.for_path(spark, path).update(
        {"n": "-1"}, "id % 10 = 3"
    ),
    "MERGE": _merge,
    "OPTIMIZE": lambda spark, path: DeltaTable.for_path(spark, path).optimize(),
    "append": lambda spark, path: DeltaTable.for_path(spark, path).append(
        spark.range(20, 22, 1, 1).selectExpr("id", "-1L AS n"), txn_app_id="a", txn_version=1
    ),
}


# Killing.
_calls: list[str] = []
_quiet = threading.local()


def quietly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function make calls that are not numbered."""

    @wraps(function)
    def called(*arguments: Any) -> Any:  # noqa: ANN401
        _quiet.on = True
        try:
            return function(*arguments)
        finally:
            _quiet.on = False

    return called


def _die() -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)
    time.sleep(60)


def _numbered(function: Callable[..., Any], job: dict[str, Any]) -> Callable[..., Any]:
    @wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        if getattr(_quiet, "on", False):
            return function(*arguments, **keywords)
        _calls.append(function.__name__)
        number = len(_calls)
        if number == job["call"] and job["when"] == "before":
            _die()
        if number == job["call"] and job["when"] == "during":
            threading.Thread(target=_die_at_a_file, args=(Path(job["table"]),)).start()
        try:
            return function(*arguments, **keywords)
        finally:
            if number == job["call"] and job["when"] == "after":
                _die()

    return called


def _die_at_a_file(table: Path) -> None:
    """Wait for the first file that a job writes."""
    while not list(table.glob("*/_temporary/**/*.parquet")):
        time.sleep(0.001)
    _die()


def _number_calls(job: dict[str, Any]) -> None:
    for name in _CHANGING:
        setattr(Storage, name, _numbered(getattr(Storage, name), job))
    # Inside a put on a disk: what was staged is there, and not yet under its name.
    for name in ("link", "replace"):
        setattr(os, name, _numbered(getattr(os, name), job))


def _forked(job: dict[str, Any], told: int) -> None:
    os.setsid()
    _number_calls(job)
    OPERATIONS[job["operation"]].run(Path(job["table"]))
    os.write(told, json.dumps(_calls).encode())


def _serve() -> None:
    """Fork for each job, and say its status and which calls it made."""
    for line in sys.stdin:
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            status = 1
            try:
                _forked(json.loads(line), writing)
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        _, status = os.waitpid(child, 0)
        with os.fdopen(reading) as told:
            calls = told.read()
        print(json.dumps([status, json.loads(calls or "[]")]), flush=True)  # noqa: T201


def _with_spark(job: dict[str, Any]) -> None:
    spark = session()
    import delvec.spark.delta.maintain.rewrite_files as rewriting  # noqa: PLC0415
    import delvec.spark.delta.write.rewrite as storing  # noqa: PLC0415

    storing.write_rows = _numbered(storing.write_rows, job)  # type: ignore[attr-defined]
    rewriting.write_each = _numbered(rewriting.write_each, job)  # type: ignore[attr-defined]
    _number_calls(job)
    SPARK_OPERATIONS[job["operation"]](spark, Path(job["table"]))
    print(json.dumps([0, len(_calls)]))  # noqa: T201
    sys.stdout.flush()
    spark.stop()


# Processes that write to one table at the same moment.
def race(path: Path, act: str, arguments: list[dict[str, Any]]) -> list[Any]:
    """Let a process for each of some arguments act at once; return what each told."""
    module = [sys.executable, "-m", "tests.spark.delta.write.crash_child"]
    jobs = [json.dumps({"act": act, "table": str(path), **each}) for each in arguments]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    processes: list[Any] = [subprocess.Popen([*module, job], **pipes) for job in jobs]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    told = [process.communicate(timeout=600)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(arguments)
    return [json.loads(text) for text in told]


def _wait() -> None:
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()


def without_spark(path: Path, gone: list[int]) -> dict[str, Any]:
    """Delete rows by hand-made vectors; after a conflict, those that are left."""
    wanted, told = set(gone), {"rows": 0, "reconciled": 0, "conflicts": 0}
    snapshot = DeltaTable.for_path(None, path).snapshot()
    rows = positions(path, wanted)
    _wait()
    while rows:
        try:
            done = put(snapshot, deletion(snapshot, rows))
        except ConflictError:
            told["conflicts"] += 1
            snapshot = DeltaTable.for_path(None, path).snapshot()
            rows = positions(path, wanted & set(ids(path, snapshot.version)))
            continue
        told["rows"] += sum(map(len, rows.values()))
        told["reconciled"] += done.reconciled
        break
    return told


def with_spark(path: Path, gone: list[int]) -> dict[str, Any]:
    """Delete rows with a session of its own."""
    import delvec.delta.write.transaction as running  # noqa: PLC0415

    spark = session()
    waiting = [True]

    def at_once(*arguments: Any) -> Any:  # noqa: ANN401
        if waiting:
            waiting.clear()
            _wait()
        return commit(*arguments)

    setattr(running, "commit", at_once)  # noqa: B010 - it is no name that the module gives away
    where = f"id IN ({', '.join(map(str, gone))})"
    report = DeltaTable.for_path(spark, path).delete(where, max_retries=30)
    spark.stop()
    return {"rows": report.rows_deleted, "reconciled": report.reconciled, "scans": report.scans}


def increment(table: DeltaTable, write: str) -> bool:
    """Read the counter and add 1 to it; return whether that succeeded, or we were told that not."""
    source = table.to_df()
    try:
        if write == "merge":
            merge = table.merge(source, "t.id = s.id").when_matched_update({"n": "s.n + 1"})
            merge.execute()
        else:
            table.overwrite(source.select("id", (source["n"] + 1).alias("n")))
    except ConflictError:
        return False
    return True


def increments(path: Path, write: str, times: int) -> int:
    """Increment the counter with a session of its own; return how often it succeeded."""
    spark = session()
    table = DeltaTable.for_path(spark, path)
    _wait()
    done = sum(increment(table, write) for _ in range(times))
    spark.stop()
    return done


ACTS: dict[str, Callable[..., Any]] = {
    "delete": without_spark,
    "delete on Spark": with_spark,
    "increment": increments,
}

if __name__ == "__main__":
    job = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    if "act" in job:
        done = ACTS[job.pop("act")](Path(job.pop("table")), **job)
        print(json.dumps(done))  # noqa: T201
    elif job:
        _with_spark(job)
    else:
        _serve()
