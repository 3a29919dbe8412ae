"""An application for `spark-submit` on a cluster: it has delvec from an archive only.

spark-submit --py-files delvec.zip cluster_app.py FOLDER
"""

from __future__ import annotations

import json
import sys
from typing import Any

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
    }


def ids(rows: Any) -> list[int]:  # noqa: ANN401
    return sorted(row.id for row in rows.collect())


if __name__ == "__main__":
    print("result", json.dumps(main(sys.argv[1])))  # noqa: T201
