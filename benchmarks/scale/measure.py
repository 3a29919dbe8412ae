"""Measuring one operation in a process of its own: CPU seconds, peak memory, requests.

    python -m benchmarks.scale.measure OPERATION TABLE [HEAP]

prints one line of JSON. The time is that of all threads on the processor, since the clock depends
on what else the machine does. The peak is that of the process, libraries included; of the heap of
the JVM there is an upper bound, see `heap_bound`.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

__all__ = ["GIB", "MIB", "S3_OPTIONS", "measured", "run_here"]

MIB: Final = 1 << 20
GIB: Final = 1 << 30
S3_OPTIONS: Final = "DELVEC_SCALE_STORAGE_OPTIONS"
"""The variable with the storage options of a table in a bucket, as JSON."""


def measured(
    operation: str, table: str, *, heap: str = "", most_memory: int | None = None
) -> dict[str, Any]:
    """Run an operation in a new process; a failure is returned as its last line.

    Args:
        operation: A name of `DELTA_OPERATIONS` or `SPARK_OPERATIONS`.
        table: The folder or URI of the table.
        heap: The heap of the JVM, such as `2g`; none starts without.
        most_memory: Bytes of address space that a process without a JVM may take.
    """
    command = [sys.executable, "-m", "benchmarks.scale.measure", operation, table]
    limit, limits = [], {}
    if most_memory is not None and not heap:
        limit = ["prlimit", f"--as={most_memory}"]
        limits = {"address_space_gib": most_memory / GIB}
    done = subprocess.run(
        [*limit, *command, *([heap] if heap else [])], capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"operation"')]
    if done.returncode or not lines:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        errors = [line for line in said if "Error" in line] or said
        return {"operation": operation, "failed": errors[-1][:300], "heap": heap, **limits}
    found: dict[str, Any] = json.loads(lines[-1])
    return found | limits


def run_here(operation: str, table: str, heap: str = "") -> dict[str, Any]:
    """Run an operation in this process and return what it took."""
    taken = _on_spark(operation, Path(table), heap) if heap else _without_jvm(operation, table)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"operation": operation, "peak_mib": round(peak / MIB), **taken}


def _without_jvm(operation: str, table: str) -> dict[str, Any]:
    import delvec  # noqa: PLC0415 - what a process has loaded is part of the measurement
    from benchmarks.scale.delta_operations import DELTA_OPERATIONS  # noqa: PLC0415

    options = json.loads(os.environ.get(S3_OPTIONS, "null")) if "://" in table else None
    begin = _cpu_seconds()
    handle = delvec.DeltaTable.for_path(None, table, options)
    facts = DELTA_OPERATIONS[operation](handle)
    seconds = _cpu_seconds() - begin
    requests = {name: count for name, count in asdict(handle.storage.requests).items() if count}
    return {"seconds": round(seconds, 3), "requests": requests, "facts": facts}


def _on_spark(operation: str, table: Path, heap: str) -> dict[str, Any]:
    import delvec  # noqa: PLC0415
    from benchmarks.scale.jvm_use import cpu_seconds, heap_bound, started_tasks  # noqa: PLC0415
    from benchmarks.scale.spark_operations import SPARK_OPERATIONS, is_iceberg  # noqa: PLC0415

    warehouse = table.parent.parent if is_iceberg(operation) else table.parent / "warehouse"
    scratch = tempfile.mkdtemp()
    spark = delvec.session(
        warehouse,
        master="local[2]",
        conf={
            "spark.driver.memory": heap,
            "spark.ui.enabled": "false",
            "spark.local.dir": scratch,
            # In one JVM the results of tasks are the driver's memory too.
            "spark.driver.maxResultSize": "0",
        },
    )
    spark.range(1).count()  # what Spark loads at its first job is not the operation's
    before, begin = started_tasks(spark), _cpu_seconds() + cpu_seconds(spark)
    facts = SPARK_OPERATIONS[operation](spark, table)
    seconds = _cpu_seconds() + cpu_seconds(spark) - begin
    return {
        "seconds": round(seconds, 3),
        "heap": heap,
        "heap_bound_mib": round(heap_bound(spark) / MIB),
        "tasks": started_tasks(spark) - before,
        "facts": facts,
    }


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run_here(*sys.argv[1:])) + "\n")
