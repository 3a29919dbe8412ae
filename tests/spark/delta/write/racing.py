"""A process that deletes rows at the same moment as others; `test_concurrent_writes` starts it.

    python -m tests.spark.delta.write.racing '<job>'

A job is `{"table": folder, "ids": [...], "spark": bool}`. The process opens the table, says that
it is ready, waits for a line, then deletes and tells what it did.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from delvec import DeltaTable
from delvec.delta.write.change import Base
from delvec.delta.write.commit import commit
from delvec.errors import ConflictError
from delvec.storage.uncommitted import UncommittedFiles
from tests.delta.write.write_checks import deletion, ids, positions


def _wait() -> None:
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()


def without_spark(path: Path, wanted: set[int]) -> dict[str, Any]:
    """Delete rows by hand-made vectors; after a conflict, those that are left."""
    told = {"rows": 0, "reconciled": 0, "conflicts": 0}
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


def with_spark(path: Path, wanted: set[int]) -> dict[str, Any]:
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
    listed = ", ".join(map(str, sorted(wanted)))
    report = DeltaTable.for_path(spark, path).delete(f"id IN ({listed})", max_retries=30)
    spark.stop()
    return {"rows": report.rows_deleted, "reconciled": report.reconciled, "scans": report.scans}


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    work = with_spark if job["spark"] else without_spark
    print(json.dumps(work(Path(job["table"]), set(job["ids"]))))  # noqa: T201
