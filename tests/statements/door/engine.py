"""Steps of a case carried out by one engine: delta-spark in the tests' own session, or a child.

    python -m tests.statements.door.engine <warehouse>

is the child: a JVM without delta-spark in which the door of delvec is open. It reads cases from its
input, a line each, and prints what came of them.

A step is a statement of SQL, or an expression of Python that begins with `spark.`. In both `$W`
is the folder of the case, in which the tables of its database are as well, and `$D` the name of
that database.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.ui.enabled": "false",
    "spark.sql.ui.retainedExecutions": "1",
}


def perform(spark: SparkSession, name: str, folder: str, steps: Iterable[str]) -> list[Any]:
    """Carry out the steps of a case in a database of its own; say what came of each."""
    spark.sql(f"CREATE DATABASE {name} LOCATION '{folder}/db'")
    spark.sql(f"USE {name}")
    try:
        return [
            _plain(_outcome(spark, step.replace("$W", folder).replace("$D", name)), folder)
            for step in steps
        ]
    finally:
        spark.sql("USE default")
        spark.catalog.clearCache()
        for view in spark.sql("SHOW VIEWS").where("isTemporary").collect():
            spark.catalog.dropTempView(view.viewName)


def _outcome(spark: SparkSession, step: str) -> dict[str, Any]:
    try:
        result = (
            eval(step, {"spark": spark, "F": F})  # noqa: S307 - the steps are our own
            if step.startswith("spark.")
            else spark.sql(step)
        )
        if not isinstance(result, DataFrame):
            return {"value": repr(result) if isinstance(result, int | str | bool) else None}
        columns = [f"{field.name} {field.dataType.simpleString()}" for field in result.schema]
        rows = [repr(tuple(row)) for row in result.collect()]
    except Exception as error:  # noqa: BLE001 - whatever an engine raises is its answer
        return {"error": type(error).__name__, "message": _message(error)}
    return {"columns": columns, "rows": rows if "ORDER BY" in step else sorted(rows)}


def _message(error: Exception) -> str:
    try:
        return str(error)[:2000]
    except Exception:  # noqa: BLE001 - delta-spark has errors without a text
        return ""


def _plain(outcome: dict[str, Any], folder: str) -> Any:  # noqa: ANN401
    """Return an outcome with the same folder in all engines."""
    return json.loads(json.dumps(outcome).replace(f"file:{folder}", "$W").replace(folder, "$W"))


def main(warehouse: str) -> None:
    """Serve cases until the input ends."""
    import delvec  # noqa: PLC0415
    from delvec.door.door import enable_sql  # noqa: PLC0415

    conf = {**SETTINGS, "spark.sql.warehouse.dir": warehouse}
    spark = enable_sql(delvec.session(master="local[2]", iceberg=False, conf=conf))
    for line in sys.stdin:
        print(json.dumps(perform(spark, **json.loads(line))), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
