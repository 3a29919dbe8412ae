"""One of many processes that delete from one table at once.

Run as a program: a `Place`, the number of the process, how many there are, and the rounds. It says
`ready`, waits for a line, and deletes.
"""

from __future__ import annotations

import json
import sys

from delvec import DeltaTable
from tests.s3.session import place_of_arguments

URI = "s3a://lake/contended"

if __name__ == "__main__":
    number, processes, rounds = map(int, sys.argv[2:5])
    memory = {"spark.driver.memory": "512m"}
    spark = place_of_arguments().session("local[1]", **memory)
    table = DeltaTable.for_path(spark, URI)
    table.to_df().count()  # what a first query has to load is loaded
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    reports = [
        # Each row is of one process and one round; every file has rows of all of them.
        table.delete(
            f"id % {processes + 1} = {number} AND (id div {processes + 1}) % {rounds} = {step}"
        )
        for step in range(rounds)
    ]
    result = [[report.version, report.rows_deleted] for report in reports]
    print(json.dumps(result))  # noqa: T201
    spark.stop()
