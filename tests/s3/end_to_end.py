"""The life of a table on S3, by Spark: Delta, its conversion to Iceberg, staged upserts.

Run as a program, with a `Place` as its argument.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import delvec
from delvec import DeltaTable, IcebergTable
from tests.s3.session import Place, place_of_arguments

URI = "s3a://lake/delta/orders"


def ids(rows: DataFrame) -> list[int]:
    return sorted(row.id for row in rows.select("id").collect())


def delta(spark: SparkSession, place: Place) -> dict[str, Any]:
    properties = {"delta.enableChangeDataFeed": "true"}
    table = DeltaTable.create(
        spark, URI, "id BIGINT, day STRING, amount DOUBLE", ["day"], properties
    )
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
    found["changes"] = {
        row["_change_type"]: row["count"]
        for row in table.changes(3, before).groupBy("_change_type").count().collect()
    }
    found["ids"] = ids(table.to_df())
    options = {f"storage.{key}": value for key, value in place.storage_options.items()}
    found["source"] = ids(spark.read.format("delvec").options(**options).load(URI))
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
    delvec.convert(spark, URI, name, verify="rows")
    found: dict[str, Any] = {"converted": ids(spark.table(name))}
    DeltaTable.for_path(spark, URI).delete("id = 11")
    delvec.convert(spark, URI, name)
    found["again"] = ids(spark.table(name))
    return found


def staged(spark: SparkSession, name: str) -> dict[str, Any]:
    properties = "'format-version'='3'"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, v STRING) TBLPROPERTIES ({properties})")
    table = IcebergTable.for_name(spark, name)
    table.append(spark.range(100).selectExpr("id", "'old' AS v"))
    table.create_branch("changes", staging=True)
    table.upsert(spark.range(90, 110).selectExpr("id", "'new' AS v"), "id", branch="changes")
    table.delete_keys([1, 2, 3], column="id", branch="changes")
    report = table.resolve("id", staging="changes")
    rows = {row.id: row.v for row in spark.table(name).collect()}
    return {
        "rows": sorted(rows),
        "new": sum(value == "new" for value in rows.values()),
        "text": str(report).splitlines()[0],
        "findings": [str(each) for each in table.check().findings],
    }


def main(place: Place) -> None:
    spark = place.session()
    result = {
        "delta": delta(spark, place),
        "iceberg": iceberg(spark, "prod.db.orders"),
        "staged": staged(spark, "prod.db.staged"),
        "hadoop": iceberg(spark, "lake.db.orders"),
    }
    print(json.dumps(result))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(place_of_arguments())
