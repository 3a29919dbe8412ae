"""A process whose executors are killed while it changes tables; `test_lost_executors` starts it.

    python -m tests.spark.losing <folder> <checkpoint directory, or nothing>

It reads a case from each line of its input: `{"operation": name, "staging": k}` kills all executors
when rows were staged for the k-th time, and `{"operation": name, "seconds": s}` kills one of them
after that time. With `"speculation": 1` Spark says that it speculates. What became of the operation
is a line of its output.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructType

import delvec
from delvec import DeltaTable, IcebergTable
from delvec.errors import DelvecError
from delvec.spark.jobs import stage_rows
from tests.delta.write.write_checks import unnamed_files
from tests.spark.jars import resolved_jars

# Other rows in each computation: what was found before executors were lost must not be used.
SOME = "rand() < 0.5"
KEY = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": 0}


def changes(spark: SparkSession, start: int = 10, end: int = 30) -> DataFrame:
    return spark.range(start, end, 1, 2).where(SOME).selectExpr("id", "-1L AS n")


def merge(table: DeltaTable, source: DataFrame) -> Any:  # noqa: ANN401
    builder = table.merge(source, "t.id = s.id").when_matched_update({"n": "s.n"})
    return builder.when_not_matched_insert({"id": "s.id", "n": "s.n"}).execute()


OPERATIONS: Mapping[str, Callable[[Any, SparkSession], Any]] = {
    "update": lambda t, _: t.update({"n": "-1"}, SOME),
    "merge": lambda t, spark: merge(t, changes(spark)),
    "delete by keys": lambda t, spark: t.delete(keys=changes(spark), on="id"),
    "append": lambda t, spark: t.append(changes(spark, 20)),
    "overwrite": lambda t, spark: t.overwrite(changes(spark, 20), "id >= 15"),
    "iceberg upsert": lambda t, spark: t.upsert(changes(spark), "id"),
    "iceberg delete by keys": lambda t, spark: t.delete_keys(changes(spark).select("id"), "id"),
}


def made(spark: SparkSession, folder: Path, operation: str) -> DeltaTable | IcebergTable:
    """Make a table of ids 0 to 19 in two files."""
    rows = spark.range(0, 20, 1, 2).selectExpr("id", "id AS n")
    if operation.startswith("iceberg"):
        name = f"lake.db.{folder.name}"
        spark.sql(f"CREATE TABLE {name} (id BIGINT, n BIGINT) TBLPROPERTIES ('format-version'='2')")
        table: DeltaTable | IcebergTable = IcebergTable.for_name(spark, name)
    else:
        # An identity column and the change feed: rows are staged for both.
        schema = StructType().add("key", LongType(), metadata=KEY)
        schema = schema.add("id", "long").add("n", "long")
        feed = {"delta.enableChangeDataFeed": "true"}
        table = DeltaTable.create(spark, folder, schema, properties=feed)
    table.append(rows)
    return table


def executors(spark: SparkSession) -> list[int]:
    """Return the processes of this application's executors."""
    application = str(spark.sparkContext.applicationId)
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
        except OSError:  # it has ended
            continue
        if application in words and any("CoarseGrainedExecutorBackend" in word for word in words):
            found.append(int(folder.name))
    return found


def kill(processes: list[int]) -> None:
    for process in processes:
        os.kill(process, signal.SIGKILL)


@contextmanager
def killed_when_staged(spark: SparkSession, number: int) -> Iterator[list[int]]:
    """Kill all executors when rows were staged so many times."""
    calls, killed = count(1), list[int]()

    @contextmanager
    def staged(rows: DataFrame) -> Iterator[DataFrame]:
        with stage_rows(rows) as kept:
            if next(calls) == number:
                killed.extend(executors(spark))
                kill(killed)
            yield kept

    with ExitStack() as patches:
        for module in ("delta.write.append", "delta.write.merge", "delta.write.update"):
            patches.enter_context(patch(f"delvec.spark.{module}.stage_rows", staged))
        for name in ("spark.input.keys", "spark.jobs", "iceberg.write.upsert"):
            patches.enter_context(patch(f"delvec.{name}.stage_rows", staged))
        yield killed


@contextmanager
def killed_after(spark: SparkSession, seconds: float) -> Iterator[list[int]]:
    """Kill one executor after a time."""
    timer = threading.Timer(seconds, lambda: kill(executors(spark)[:1]))
    timer.start()
    try:
        yield []
    finally:
        timer.join()


def run(spark: SparkSession, folder: Path, case: Mapping[str, Any]) -> dict[str, Any]:
    """Run one case, and return what the table and the report say."""
    conf: Any = spark.sparkContext._conf
    conf.set("spark.speculation", "false")
    table = made(spark, folder, case["operation"])
    conf.set("spark.speculation", "true" if "speculation" in case else "false")
    lost = (
        killed_when_staged(spark, case["staging"])
        if "staging" in case
        else killed_after(spark, case["seconds"])
    )
    try:
        with lost as killed:
            report = OPERATIONS[case["operation"]](table, spark)
    except DelvecError as error:
        return {"error": str(error)}
    rows = [[row.id, row.n] for row in table.to_df().collect()]
    names = ("rows_updated", "rows_inserted", "rows_deleted", "rows_added", "keys")
    found: dict[str, Any] = {name: getattr(report, name, 0) for name in names}
    found["killed"] = killed
    if isinstance(table, DeltaTable):
        found["left"] = sorted(unnamed_files(folder))
        found["fed"] = table.changes(2).where("n = -1").count()
    return {"rows": rows, **found}


def main(folder: str, checkpoints: str = "") -> None:
    spark = delvec.session(
        f"{folder}/warehouse",
        master="local-cluster[2,1,1024]",
        conf={
            "spark.jars": ",".join(resolved_jars()),
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "768m",
        },
    )
    if checkpoints:
        spark.sparkContext.setCheckpointDir(checkpoints)
    spark.sql("CREATE NAMESPACE lake.db")
    for number, line in enumerate(sys.stdin):
        found = run(spark, Path(folder, f"t{number}"), json.loads(line))
        print(json.dumps(found), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
