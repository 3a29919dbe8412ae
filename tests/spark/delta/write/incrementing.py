"""Additions of 1 to a counter that is read from the table which they write.

    python -m tests.spark.delta.write.incrementing '{"table": folder, "write": ..., "times": 50}'

The process says that it is ready, waits for a line, adds, and tells how often it succeeded.
"""

from __future__ import annotations

import json
import sys

from delvec import DeltaTable
from delvec.errors import ConflictError


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


def _main() -> None:
    from delvec import DeltaTable  # noqa: PLC0415
    from tests.spark.delta.write.crash_child import session  # noqa: PLC0415

    job = json.loads(sys.argv[1])
    spark = session()
    table = DeltaTable.for_path(spark, job["table"])
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    done = sum(increment(table, job["write"]) for _ in range(job["times"]))
    spark.stop()
    print(done)  # noqa: T201


if __name__ == "__main__":
    _main()
