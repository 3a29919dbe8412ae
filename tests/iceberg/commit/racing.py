"""A process that takes the lock of a table when it is told to, and says what became of it.

    python -m tests.iceberg.commit.racing '{"spark.sql.catalog...": ...}' sqlite.db.t

It prints `ready`, and then answers lines: `try` with `won <generation>` or `lost`, and a winner has
the lock until the line `end`; `keep <seconds>` is the same with a lease of so long; `count <times>
<path>` adds one to the number in a file so many times, each under the lock, and prints the
generations; `loop <path>` has the lock again and again, a second each and without a pause, until
the file is gone, and prints how often.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from delvec.errors import LockedError
from delvec.iceberg.client.catalog import LoadedTable, load_table, table_name
from delvec.iceberg.commit.lock import hold_lock


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201


def attempt(table: LoadedTable, lease: float = 300.0) -> None:
    try:
        with hold_lock(table, "RACE", lease=lease) as held:
            assert held.state is not None
            say("won", held.state.generation)
            assert sys.stdin.readline() == "end\n"
            held.check()
        say("ended")
    except LockedError:
        say("lost")


def count(table: LoadedTable, times: int, file: Path) -> None:
    generations = []
    for _ in range(times):
        with hold_lock(table, "COUNT", wait=300) as held:
            assert held.state is not None
            generations.append(held.state.generation)
            number = int(file.read_text())
            time.sleep(0.05)
            file.write_text(str(number + 1))
    say(json.dumps(generations))


def loop(table: LoadedTable, file: Path) -> None:
    turns = 0
    while file.exists():
        try:
            with hold_lock(table, "LOOP"):
                turns += 1
                time.sleep(1.0)
        except LockedError:  # noqa: PERF203
            time.sleep(0.05)
    say(turns)


def main() -> None:
    builder = SparkSession.builder.master("local[1]")
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    table = load_table(spark, table_name(spark, sys.argv[2]))
    say("ready")
    for line in sys.stdin:
        match line.split():
            case ["try"]:
                attempt(table)
            case ["keep", lease]:
                attempt(table, float(lease))
            case ["loop", path]:
                loop(table, Path(path))
            case ["count", times, path]:
                count(table, int(times), Path(path))


if __name__ == "__main__":
    main()
