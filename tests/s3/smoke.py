"""A Delta table on S3, by Spark: written, deleted from, and read in three ways; requests counted.

Run as a program: a `Place`, and the server's log of requests.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from delvec import DeltaTable
from tests.s3.server import requests_of
from tests.s3.session import Place, place_of_arguments

URI = "s3a://lake/smoke"
FILES = 8


def main(place: Place, log: Path) -> None:
    spark = place.session()
    table = DeltaTable.create(spark, URI, "id BIGINT, name STRING")
    table.append(spark.range(0, 1000, 1, FILES).selectExpr("id", "concat('n', id) AS name"))

    def requests(work: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
        before = requests_of(log)
        result = work()
        return result, dict(requests_of(log) - before)

    def total() -> int:
        return int(table.to_df().selectExpr("sum(id) AS total").first().total)  # type: ignore[union-attr]

    total()  # the first query lists jars and buckets
    clean, read_clean = requests(total)
    report, deleted = requests(lambda: table.delete("id % 10 = 3"))
    vectored, read_vectored = requests(total)
    rewritten, rewriting = requests(lambda: table.delete("id % 10 = 4", rewrite_ratio=0.001))
    options = {f"storage.{key}": value for key, value in place.storage_options.items()}
    source = spark.read.format("delvec").options(**options).load(URI)
    result = {
        "sums": [clean, vectored],
        "deleted": [report.rows_deleted, report.vectors_added, rewritten.rows_deleted],
        "rows": [table.to_df().count(), source.count(), table.to_arrow().num_rows],
        "requests": {
            "read": read_clean,
            "read through vectors": read_vectored,
            "delete": deleted,
            "delete by rewriting": rewriting,
        },
    }
    print(json.dumps(result))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(place_of_arguments(), Path(sys.argv[2]))
