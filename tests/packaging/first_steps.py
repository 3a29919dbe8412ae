"""What a new user does first, in an environment with nothing but `pip install delvec`."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

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
    result["sql"] = by_sql(spark, str(folder / "by sql"))
    try:
        delvec.convert(spark, path, "lake.db.orders")
        result["iceberg"] = sorted(row.id for row in spark.table("lake.db.orders").collect())
    except delvec.errors.MissingDependencyError as error:
        result["missing"] = [str(error), error.dependency]
    spark.stop()
    return {**result, "told": told}


def by_sql(spark: SparkSession, path: str) -> dict[str, Any]:
    """Return what statements give; one that fails gives its error, and the next one runs."""
    table = f"delta.`{path}`"
    steps: dict[str, Callable[[], Any]] = {
        "create": lambda: spark.sql("CREATE TABLE orders (id BIGINT, s STRING) USING delta"),
        "create by path": lambda: spark.sql(
            f"CREATE TABLE {table} USING delta"
            " TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
            " AS SELECT id, 'a' AS s FROM range(5)"
        ),
        "insert": lambda: spark.sql("INSERT INTO orders VALUES (1, 'x'), (9, DEFAULT)"),
        "merge": lambda: spark.sql(
            f"MERGE INTO {table} t USING orders s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
            " WHEN NOT MATCHED THEN INSERT *"
        ),
        "update": lambda: spark.sql(f"UPDATE {table} SET s = :s WHERE id = 2", args={"s": "it's"}),
        "delete": lambda: spark.sql(f"DELETE FROM {table} WHERE id IN (SELECT 3L)"),
        "select": lambda: spark.sql(f"SELECT * FROM {table} t JOIN orders o USING (id)"),
        "arguments": lambda: spark.sql(f"SELECT id FROM {table} WHERE s = ?", args=["it's"]),
        "versions": lambda: spark.sql(f"SELECT count(*) FROM {table} VERSION AS OF 0"),
        "at": lambda: spark.sql(f"SELECT count(*) FROM delta.`{path}@v1`"),
        "alter": lambda: spark.sql("ALTER TABLE orders ADD COLUMN more INT"),
        "constraint": lambda: spark.sql("ALTER TABLE orders ADD CONSTRAINT c CHECK (id > 0)"),
        "violation": lambda: spark.sql("INSERT INTO orders VALUES (-1, 'x', 1)"),
        "changes": lambda: spark.sql(
            f"SELECT _change_type, count(*) FROM table_changes_by_path('{path}', 1) GROUP BY 1"
        ),
        "optimize": lambda: spark.sql(f"OPTIMIZE {table}").selectExpr(
            "substring_index(path, '/', -1)"
        ),
        "restore": lambda: spark.sql("RESTORE orders TO VERSION AS OF 1").select(
            "num_of_files_after_restore"
        ),
        "history": lambda: spark.sql("DESCRIBE HISTORY orders").select("version", "operation"),
        "describe": lambda: spark.sql("DESCRIBE orders"),
        "save": lambda: spark.range(3).write.format("delta").save(f"{path} saved"),
        "load": lambda: spark.read.format("delta").load(f"{path} saved").where("id > 0"),
        "saveAsTable": lambda: spark.range(3).write.format("delta").saveAsTable("saved"),
        "writeTo": lambda: spark.range(3, 5).writeTo("saved").append(),
        "stream": lambda: (
            spark.readStream.format("delta")
            .load(f"{path} saved")
            .writeStream.format("delta")
            .option("checkpointLocation", f"{path} checkpoint")
            .trigger(availableNow=True)
            .toTable("streamed")
            .awaitTermination(120)
        ),
        "streamed": lambda: spark.table("streamed"),
        "show": lambda: spark.sql("SHOW TABLES").select("tableName"),
        "drop": lambda: spark.sql("DROP TABLE orders"),
        "dropped": lambda: spark.sql("SELECT * FROM orders"),
        "nothing of ours": lambda: spark.sql("SELECT :x + 1 AS y", args={"x": 1}),
    }
    return {name: told(step) for name, step in steps.items()}


def told(step: Callable[[], Any]) -> Any:  # noqa: ANN401
    try:
        found = step()
        return sorted(map(list, found.collect()), key=str) if hasattr(found, "collect") else None
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))  # noqa: T201
