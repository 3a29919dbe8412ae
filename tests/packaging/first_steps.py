"""What a new user does first, in an environment with nothing but `pip install delvec`."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pyspark

import delvec


def main(folder: Path) -> dict[str, Any]:
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("delvec").addHandler(handler)

    spark = delvec.session(folder / "warehouse", master="local[2]")
    path = str(folder / "orders")
    table = delvec.DeltaTable.create(spark, path, "id BIGINT, amount DOUBLE")
    table.append(spark.range(100).selectExpr("id", "id * 1.5 AS amount"))
    deleted = table.delete("id % 7 = 0").rows_deleted
    source = spark.range(90, 110).selectExpr("id", "CAST(0 AS DOUBLE) AS amount")
    merge = table.merge(source, on="t.id = s.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    rows = sorted(row.id for row in table.to_df().collect())
    by_source = sorted(row.id for row in spark.read.format("delvec").load(path).collect())

    result: dict[str, Any] = {
        "delvec": delvec.__file__,
        "spark": pyspark.__version__,
        "deleted": deleted,
        "rows": rows,
        "by_source": by_source,
        "arrow": sorted(table.to_arrow()["id"].to_pylist()),
    }
    try:
        delvec.convert(spark, path, "lake.db.orders")
        result["iceberg"] = sorted(row.id for row in spark.table("lake.db.orders").collect())
    except delvec.errors.MissingDependencyError as error:
        result["missing"] = [str(error), error.dependency]
    spark.stop()
    return {**result, "told": told}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))  # noqa: T201
