"""What tests do on S3 by Spark, each in a process of its own: `programs PLACE NAME ARGUMENTS`.

The result is the last line of the output, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import delvec
from delvec import DeltaTable, IcebergTable
from delvec.errors import FormatError
from tests.s3.server import requests_of
from tests.s3.session import Place

ORDERS = "s3a://lake/delta/orders"
SMOKE = "s3a://lake/smoke"
FILES = 8
CROSSING = "s3a://lake/crossing"
CONTENDED = "s3a://lake/contended"


def by_source(spark: SparkSession, place: Place, uri: str) -> DataFrame:
    options = {f"storage.{key}": value for key, value in place.storage_options.items()}
    return spark.read.format("delvec").options(**options).load(uri)


def smoke(place: Place, log: str) -> dict[str, Any]:
    """Write a Delta table, delete from it and read it in three ways; requests are counted."""
    spark = place.session()
    table = DeltaTable.create(spark, SMOKE, "id BIGINT, name STRING")
    table.append(spark.range(0, 1000, 1, FILES).selectExpr("id", "concat('n', id) AS name"))

    def requests(work: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
        before = requests_of(Path(log))
        result = work()
        return result, dict(requests_of(Path(log)) - before)

    def total() -> int:
        return int(table.to_df().selectExpr("sum(id) AS total").first().total)  # type: ignore[union-attr]

    total()  # the first query lists jars and buckets
    clean, read_clean = requests(total)
    report, deleted = requests(lambda: table.delete("id % 10 = 3"))
    vectored, read_vectored = requests(total)
    rewritten, rewriting = requests(lambda: table.delete("id % 10 = 4", rewrite_ratio=0.001))
    source = by_source(spark, place, SMOKE)
    return {
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


def crossing(place: Place) -> dict[str, Any]:
    """Read a Delta table whose file is in another bucket: refused until that is named."""

    def settings_of(bucket: str) -> dict[str, str]:
        prefix = f"fs.s3a.bucket.{bucket}."
        return {key.replace("fs.s3a.", prefix): value for key, value in place.hadoop.items()}

    def refused(work: Callable[[], object]) -> bool:
        try:
            work()
        except FormatError as error:
            return "no credentials were given" in str(error)
        return False

    spark = replace(place, hadoop=settings_of("lake")).session()
    table = DeltaTable.for_path(spark, CROSSING)
    found = [refused(work) for work in (table.to_df, table.to_arrow, table.purge)]
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    for key, value in settings_of("other").items():
        configuration.set(key, value)
    named = DeltaTable.for_path(spark, CROSSING)
    rows = [named.to_df().count(), named.to_arrow().num_rows]
    # Tasks of Python have no Hadoop configuration: they get what the driver found.
    spark.conf.set("spark.delvec.scan.vectorMemory", "0")
    return {"refused": found, "rows": [*rows, named.to_df().count()]}


def delete(place: Place, number: str, processes: str, rounds: str) -> list[list[int | None]]:
    """Delete as one of many processes from one table at once: say `ready`, and wait for a line."""
    spark = place.session("local[1]", **{"spark.driver.memory": "512m"})
    table = DeltaTable.for_path(spark, CONTENDED)
    table.to_df().count()  # what a first query has to load is loaded
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    of = int(processes) + 1
    # Each row is of one process and one round; every file has rows of all of them.
    conditions = [
        f"id % {of} = {number} AND (id div {of}) % {rounds} = {step}" for step in range(int(rounds))
    ]
    reports = [table.delete(condition) for condition in conditions]
    return [[report.version, report.rows_deleted] for report in reports]


def ids(rows: DataFrame) -> list[int]:
    return sorted(row.id for row in rows.select("id").collect())


def delta(spark: SparkSession, place: Place) -> dict[str, Any]:
    columns, feed = "id BIGINT, day STRING, amount DOUBLE", {"delta.enableChangeDataFeed": "true"}
    table = DeltaTable.create(spark, ORDERS, columns, ["day"], feed)
    rows = "id", "concat('2026-01-0', 1 + id % 3) AS day", "CAST(id AS DOUBLE) AS amount"
    for start in (0, 100):
        table.append(spark.range(start, start + 100).selectExpr(*rows))
    found: dict[str, Any] = {"deleted": table.delete("id % 10 = 3").rows_deleted}
    found["updated"] = table.update({"amount": "-1.0"}, "id < 10").rows_updated
    source = spark.range(190, 220).selectExpr(*rows)
    merge = table.merge(source, on="t.id = s.id AND t.day = s.day").when_matched_update_all()
    report = merge.when_not_matched_insert_all().execute()
    found["merged"] = [report.rows_updated, report.rows_inserted]
    before = table.version
    changes = table.changes(3, before).groupBy("_change_type").count()
    found["changes"] = {row["_change_type"]: row["count"] for row in changes.collect()}
    found["ids"] = ids(table.to_df())
    found["source"] = ids(by_source(spark, place, ORDERS))
    found["arrow"] = sorted(table.to_arrow()["id"].to_pylist())
    table.optimize()
    found["optimized"] = ids(table.to_df())
    found["deleted_after"] = table.delete("id = 7").rows_deleted
    table.purge()
    found["purged"] = ids(table.to_df())
    found["vectors_left"] = sum(map(bool, table.arrow_files()["vector"].to_pylist()))
    table.restore(before)
    found["restored"] = ids(table.to_df())
    found["vacuumed"] = table.vacuum(0, force=True).files_deleted
    found["after_vacuum"] = ids(table.to_df())
    found["findings"] = [str(each) for each in table.check().findings]
    return found


def iceberg(spark: SparkSession, name: str) -> dict[str, Any]:
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.rpartition('.')[0]}")
    delvec.convert(spark, ORDERS, name, verify="rows")
    found: dict[str, Any] = {"converted": ids(spark.table(name))}
    DeltaTable.for_path(spark, ORDERS).delete("id = 11")
    delvec.convert(spark, ORDERS, name)
    return found | {"again": ids(spark.table(name))}


def staged(spark: SparkSession, name: str) -> dict[str, Any]:
    properties = "'format-version'='3'"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, v STRING) TBLPROPERTIES ({properties})")
    table = IcebergTable.for_name(spark, name)
    table.append(spark.range(100).selectExpr("id", "'old' AS v"))
    table.create_branch("changes", staging=True)
    table.upsert(spark.range(90, 110).selectExpr("id", "'new' AS v"), "id", branch="changes")
    table.delete_keys([1, 2, 3], column="id", branch="changes")
    table.resolve("id", staging="changes")
    rows = {row.id: row.v for row in spark.table(name).collect()}
    findings = [str(each) for each in table.check().findings]
    new = sum(value == "new" for value in rows.values())
    return {"rows": sorted(rows), "new": new, "findings": findings}


def end_to_end(place: Place) -> dict[str, Any]:
    """The life of a table: Delta, its conversion to Iceberg, staged upserts."""
    spark = place.session()
    return {
        "delta": delta(spark, place),
        "iceberg": iceberg(spark, "prod.db.orders"),
        "staged": staged(spark, "prod.db.staged"),
        "hadoop": iceberg(spark, "lake.db.orders"),
    }


PROGRAMS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (smoke, crossing, delete, end_to_end)
}

if __name__ == "__main__":
    told, name, *arguments = sys.argv[1:]
    result = PROGRAMS[name](Place(**json.loads(told)), *arguments)
    print(json.dumps(result))  # noqa: T201
    SparkSession.getActiveSession().stop()  # type: ignore[union-attr]
