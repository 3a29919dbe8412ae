"""What an open door costs statements that are none of delvec's: two sessions of one application.

They run in a JVM of their own, since the door stays closed where delta-spark's jar is.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import tempfile
from functools import partial
from typing import Final

import delvec
from benchmarks.runner import Contest, Peer, benchmark

# Goal: 2 ms more for a statement, which takes 12 ms or so by itself.
CLOSED_AT_MOST: Final = 1.17
STATEMENTS: Final = 50  # of each side, in each round
STATEMENT: Final = (
    "SELECT a.id, count(b.s) AS n FROM a JOIN db.b ON a.id = b.id"
    " WHERE a.id IN (SELECT id FROM v) GROUP BY a.id"
)


@benchmark("door-other-statements")
def other_statements() -> Contest:
    """Analyze a statement with three names, which are tables and a view of Spark's own."""
    command = [sys.executable, "-m", "benchmarks.door"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(child.kill)

    def ask(side: str) -> str:
        if child.stdin is None or child.stdout is None:
            raise RuntimeError("the child has no pipes")
        child.stdin.write(f"{side}\n")
        child.stdin.flush()
        return child.stdout.readline()

    def agree(ours: str, theirs: str) -> None:
        if not ours or ours != theirs:
            raise AssertionError((ours, theirs))

    peer = Peer("a session whose door is closed", partial(ask, "closed"), CLOSED_AT_MOST)
    return Contest(partial(ask, "open"), [peer], agree, rounds=15, warm_ups=5)


def main() -> None:
    """Analyze the statements in the session that each line of the input names."""
    folder = tempfile.mkdtemp(prefix="delvec-bench-")
    conf = {"spark.sql.warehouse.dir": folder}
    closed = delvec.session(master="local[2]", iceberg=False, sql=False, conf=conf)
    closed.sql("CREATE DATABASE db")
    for name in ("a", "db.b"):
        closed.sql(f"CREATE TABLE {name} USING parquet AS SELECT 1 AS id, 'x' AS s")
    closed.sql("CREATE TEMP VIEW v AS SELECT * FROM a")
    sessions = {"closed": closed, "open": delvec.enable_sql(closed)}
    for line in sys.stdin:
        spark = sessions[line.strip()]
        columns = [spark.sql(STATEMENT).columns for _ in range(STATEMENTS)]
        print(columns[-1], flush=True)


if __name__ == "__main__":
    main()
