"""Processes that write to one table at the same moment.

    python -m tests.spark.delta.write.racing '<job>'

A job is `{"act": name, "table": folder}`, and what the act takes. A process opens the table, says
that it is ready, waits for a line, then writes and tells what it did.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from delvec import DeltaTable
from delvec.delta.write.change import Base
from delvec.delta.write.commit import commit
from delvec.errors import ConflictError
from delvec.storage.uncommitted import UncommittedFiles
from tests.delta.write.write_checks import deletion, ids, positions
from tests.repository import ROOT


def race(path: Path, act: str, arguments: list[dict[str, Any]]) -> list[Any]:
    """Let a process for each of some arguments act at once; return what each told."""
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.spark.delta.write.racing"),
                json.dumps({"act": act, "table": str(path), **each}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for each in arguments
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
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
            with UncommittedFiles(snapshot.storage) as uncommitted:
                done = commit(Base.of(snapshot), deletion(snapshot, rows), uncommitted)
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
    from tests.spark.delta.write.crash_child import session  # noqa: PLC0415

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
    from tests.spark.delta.write.crash_child import session  # noqa: PLC0415

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
    job = json.loads(sys.argv[1])
    print(json.dumps(ACTS[job.pop("act")](Path(job.pop("table")), **job)))  # noqa: T201
