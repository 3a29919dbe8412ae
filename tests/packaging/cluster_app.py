"""An application for `spark-submit` on a cluster: it has delvec from an archive only.

spark-submit --py-files delvec.zip cluster_app.py FOLDER
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

import delvec


def where_delvec_is(_: Any) -> tuple[str, str]:  # noqa: ANN401
    import delvec  # noqa: PLC0415

    return str(delvec.__file__), sys.executable


def main(folder: str) -> dict[str, Any]:
    spark = delvec.session(iceberg=False)
    path = f"{folder}/orders"
    table = delvec.DeltaTable.create(spark, path, "id BIGINT, name STRING")
    table.append(spark.range(0, 1000, 1, 4).selectExpr("id", "concat('n', id) AS name"))
    deleted = table.delete("id % 10 = 3").rows_deleted
    spark.conf.set("spark.delvec.write.hitMemory", "1")  # tasks write the vectors
    deleted += table.delete("id % 10 = 4").rows_deleted
    source = spark.range(990, 1010, 1, 2).selectExpr("id", "'merged' AS name")
    merge = table.merge(source, on="t.id = s.id")
    report = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    workers = spark.sparkContext.parallelize(range(8), 8).map(where_delvec_is)
    spark.sql(f"CREATE TEMPORARY VIEW orders USING delvec OPTIONS (path '{path}')")
    return {
        "master": spark.sparkContext.master,
        "driver": delvec.__file__,
        "workers": sorted(set(workers.collect())),
        "deleted": deleted,
        "merged": [report.rows_updated, report.rows_inserted],
        "rows": ids(table.to_df()),
        "source": ids(spark.read.format("delvec").load(path)),
        "sql": ids(spark.sql("SELECT id FROM orders")),
        # Its file lister is Java, compiled from a source in the archive.
        "pruned": table.to_df().where("id < 10").count(),
        "statements": by_statements(spark, path),
    }


def by_statements(spark: SparkSession, path: str) -> list[list[int]]:
    """Return the rows of a table that only SQL has touched; executors have none of its classes."""
    spark.sql(f"CREATE TABLE named USING delta AS SELECT * FROM delta.`{path}`")
    spark.sql("UPDATE named SET name = upper(name) WHERE id % 10 = 5")
    spark.sql("DELETE FROM named WHERE id IN (SELECT id FROM orders WHERE id % 10 = 6)")
    spark.sql(
        "MERGE INTO named t USING (SELECT id FROM range(1005, 1020)) s ON t.id = s.id"
        " WHEN MATCHED THEN DELETE"
        " WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    spark.sql("OPTIMIZE named")
    return [ids(spark.table("named")), ids(spark.sql("SELECT id FROM named VERSION AS OF 0"))]


def ids(rows: Any) -> list[int]:  # noqa: ANN401
    return sorted(row.id for row in rows.collect())


if __name__ == "__main__":
    print("result", json.dumps(main(sys.argv[1])))  # noqa: T201
