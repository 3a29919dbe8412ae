"""A process that changes and maintains a table for a while; `test_mix` starts two of them.

    python -m tests.spark.delta.maintain.mixing <table> <seed> <seconds> <log>

Each operation that committed is a line of the log: its version, what it was and what it was about.
Replayed in the order of versions, they make the rows that the table must have.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.errors import ConflictError, InvalidArgumentError, ObjectNotFoundError
from tests.spark.delta.write.crash_child import session

# Young enough for files that are being written, so short that files do get removed.
KEEP_HOURS = 60 / 3600
Rows = dict[int, int]  # n by id
Done = tuple[str, "Mapping[str, Any]"]


def replayed(rows: Rows, line: Mapping[str, Any], states: Mapping[int, Rows]) -> Rows:
    """Apply one operation of the log to rows; `states` are those of all versions before."""
    kind, about = line["kind"], line["about"]
    if kind == "delete":
        return {id_: n for id_, n in rows.items() if id_ % about["of"] != about["is"]}
    if kind == "update":
        return {id_: n + (id_ % about["of"] == about["is"]) for id_, n in rows.items()}
    if kind == "append":
        return rows | dict.fromkeys(range(about["start"], about["end"]), 0)
    if kind == "merge":
        return rows | dict.fromkeys(range(about["start"], about["end"], 3), -about["n"])
    return states[about["version"]] if kind == "restore" else rows


def change(
    spark: SparkSession, table: DeltaTable, numbers: random.Random, worker: int
) -> tuple[Any, Done]:
    """Change some rows."""
    kind = numbers.choice(["delete", "delete", "update", "append", "merge"])
    of = numbers.randint(7, 60)
    about: dict[str, Any] = {"of": of, "is": numbers.randrange(of)}
    where = f"id % {of} = {about['is']}"
    if kind == "delete":
        return table.delete(where), (kind, about)
    if kind == "update":
        return table.update({"n": "n + 1"}, where), (kind, about)
    # Ids of a process of its own: nothing is inserted twice.
    start = 1000 * (2 * numbers.randrange(10**6) + worker)
    end = start + numbers.randint(10, 200)
    about = {"start": start, "end": end, "n": numbers.randint(1, 9)}
    if kind == "append":
        rows = spark.range(start, end, 1, 1).selectExpr("id", "0L AS n", "string(id % 3) AS part")
        return table.append(rows), (kind, about)
    source = spark.range(start, end, 3, 1).selectExpr(
        "id", f"bigint(-{about['n']}) AS n", "string(id % 3) AS part"
    )
    merge = table.merge(source, "t.id = s.id")
    return merge.when_matched_update_all().when_not_matched_insert_all().execute(), (kind, about)


def maintain(table: DeltaTable, numbers: random.Random) -> tuple[Any, Done]:
    """Maintain the table in some way."""
    back = max(0, table.version - numbers.randint(1, 4))
    ratio = numbers.choice([0, 0.05, 0.5])
    ways: dict[str, Callable[[], Any]] = {
        "optimize": lambda: table.optimize(max_deleted_ratio=ratio),
        "purge": table.purge,
        "zorder": lambda: table.optimize(zorder_by=["id", "n"]),
        "vacuum": lambda: table.vacuum(KEEP_HOURS, force=True),
        "statistics": table.recompute_statistics,
        "restore": lambda: table.restore(back),
        "checkpoint": table.checkpoint,
    }
    kind = numbers.choice(["optimize", *ways])
    try:
        return ways[kind](), (kind, {"version": back} if kind == "restore" else {})
    except (InvalidArgumentError, ObjectNotFoundError):
        if kind != "restore":  # its files may have been vacuumed
            raise
        return None, (kind, {})


def main(path: str, seed: int, seconds: float, log: str) -> None:
    """Do one thing after the other until the time is up."""
    spark, numbers, worker = session(), random.Random(seed), seed % 2
    table = DeltaTable.for_path(spark, path)
    end = time.monotonic() + seconds
    with Path(log).open("w") as lines:
        while time.monotonic() < end:
            try:
                if numbers.random() < 0.6:
                    report, (kind, about) = change(spark, table, numbers, worker)
                else:
                    report, (kind, about) = maintain(table, numbers)
            except ConflictError:
                continue
            version = getattr(report, "version", None)
            if version is not None and kind != "vacuum":
                line = {"version": version, "kind": kind, "about": about}
                lines.write(json.dumps(line) + "\n")
                lines.flush()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
