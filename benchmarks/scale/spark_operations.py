"""Operations that need a JVM, on Delta and on Iceberg; each returns facts about its result.

Those on Delta touch the ten data files that exist, so what grows with the table is planning and the
commit. A conversion is not among them: it looks into data files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import delvec
from benchmarks.scale.delta_operations import IDS
from delvec.iceberg.client.catalog import TableName, load_table
from delvec.iceberg.client.file_scan import plan_snapshot
from delvec.iceberg.client.files import equality_deletes, snapshot_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delvec.iceberg.client.catalog import LoadedTable

__all__ = ["SPARK_OPERATIONS", "is_iceberg"]

Facts = dict[str, Any]


def is_iceberg(operation: str) -> bool:
    """Tell whether an operation is on an Iceberg table."""
    return operation.startswith("Iceberg")


def _read(spark: SparkSession, path: Path) -> Facts:
    table = delvec.DeltaTable.for_path(spark, path)
    return {"rows": table.to_df(where=IDS).count()}


def _deleted(spark: SparkSession, path: Path) -> Facts:
    table = delvec.DeltaTable.for_path(spark, path)
    return _facts(table.delete(f"{IDS} AND id % 2 = 0"))


def _updated(spark: SparkSession, path: Path) -> Facts:
    table = delvec.DeltaTable.for_path(spark, path)
    return _facts(table.update({"v": "v + 1"}, where=f"{IDS} AND id % 2 = 0"))


def _merged(spark: SparkSession, path: Path) -> Facts:
    """Merge by a condition that bounds the ids: without it, a merge reads all files."""
    table = delvec.DeltaTable.for_path(spark, path)
    source = spark.range(-10_000, 0, 2).selectExpr("id", "1.0D AS v")
    condition = "t.id = s.id AND t.id >= -10000 AND t.id < 0"
    merge = table.merge(source, on=condition).when_matched_update(set={"v": "s.v"})
    return _facts(merge.execute())


def _facts(report: Any) -> Facts:  # noqa: ANN401
    requests = report.requests
    return {"version": report.version, "gets": requests.gets, "puts": requests.puts}


def _iceberg(act: Callable[[LoadedTable], Facts]) -> Callable[[SparkSession, Path], Facts]:
    def operation(spark: SparkSession, path: Path) -> Facts:
        return act(load_table(spark, TableName("lake", (path.parent.name,), path.name)))

    return operation


def _head(table: LoadedTable, branch: str) -> int:
    head = table.metadata.head(branch)
    if head is None:
        raise AssertionError(f"{table.name} has no branch {branch}")
    return head.id


def _equality_deletes(table: LoadedTable) -> Facts:
    return {"deletes": len(equality_deletes(table, _head(table, "wide")))}


def _planned(branch: str) -> Callable[[LoadedTable], Facts]:
    def act(table: LoadedTable) -> Facts:
        found = plan_snapshot(table, _head(table, branch), table.metadata.schema)
        return {"files": found.file_count, "to search": found.files.num_rows}

    return act


def _listed(table: LoadedTable) -> Facts:
    return {"files": snapshot_files(table, _head(table, "main")).data.num_rows}


SPARK_OPERATIONS: Final[dict[str, Callable[[SparkSession, Path], Facts]]] = {
    "read ten files": _read,
    "delete in ten files": _deleted,
    "update in ten files": _updated,
    "merge into ten files": _merged,
    "Iceberg: equality deletes": _iceberg(_equality_deletes),
    "Iceberg: plan, 1 % to search": _iceberg(_planned("main")),
    "Iceberg: plan, all to search": _iceberg(_planned("wide")),
    "Iceberg: list all files": _iceberg(_listed),
}
