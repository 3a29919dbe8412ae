"""The same operation by delvec and by delta-spark, and the rows as every reader sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from delvec import DeltaTable
from delvec.delta.write.report import WriteReport
from tests.interop.expressions import Expression
from tests.interop.model import Append, Clause, Delete, Merge, Operation, Overwrite, Rows, Update
from tests.interop.plans import COLUMNS, Kind
from tests.spark.delta import readers, spark_tables

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "part": pa.string(),
        "name": pa.string(),
        "amount": pa.decimal128(12, 2),
        "day": pa.date32(),
        "stamp": pa.timestamp("us", "UTC"),
        "place": pa.struct({"x": pa.int32(), "label": pa.string()}),
    }
)
DDL = (
    "id BIGINT, part STRING, name STRING, amount DECIMAL(12, 2), day DATE, stamp TIMESTAMP,"
    " place STRUCT<x: INT, label: STRING>"
)


def create(
    spark: SparkSession, path: Path, kind: Kind, *, by: str, properties: Mapping[str, str]
) -> None:
    settings = {
        "delta.enableDeletionVectors": str(kind.vectors).lower(),
        "delta.enableChangeDataFeed": str(kind.feed).lower(),
        **({"delta.columnMapping.mode": "name"} if kind.mapped else {}),
        **properties,
    }
    if by == "delvec":
        DeltaTable.create(spark, path, DDL, kind.partitioned_by, settings)
    else:
        spark_tables.create(
            spark, path, DDL, partitioned_by=kind.partitioned_by, properties=settings
        )


def as_arrow(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def frame(spark: SparkSession, rows: Rows, files: int = 1) -> DataFrame:
    return spark.createDataFrame(as_arrow(rows)).repartition(files)


def by_delvec(spark: SparkSession, path: Path, operation: Operation) -> WriteReport:
    table = DeltaTable.for_path(spark, path)
    match operation:
        case Append(rows, files):
            return table.append(frame(spark, rows, files))
        case Overwrite(rows, files, where):
            return table.overwrite(frame(spark, rows, files), _sql(where))
        case Delete(where):
            return table.delete(_sql(where))
        case Update(values, where):
            return table.update(_texts(values), _sql(where))
        case Merge(source, on, clauses):
            merge = table.merge(frame(spark, source), on.sql)
            for clause in clauses:
                name = f"when_{clause.when} {clause.action}".replace(" ", "_")
                if clause.set is None:
                    name += "" if clause.action == "delete" else "_all"
                    merge = getattr(merge, name)(condition=_sql(clause.condition))
                else:
                    merge = getattr(merge, name)(_texts(clause.set), _sql(clause.condition))
            return merge.execute()


def by_delta_spark(spark: SparkSession, path: Path, operation: Operation) -> None:
    table = f"delta.`{path}`"
    match operation:
        case Append(rows, files):
            frame(spark, rows, files).write.format("delta").mode("append").save(str(path))
        case Overwrite(rows, files, where):
            writing = frame(spark, rows, files).write.format("delta").mode("overwrite")
            if where is not None:
                writing = writing.option("replaceWhere", where.sql)
            writing.save(str(path))
        case Delete(where):
            spark.sql(f"DELETE FROM {table} {_where(where)}")
        case Update(values, where):
            spark.sql(f"UPDATE {table} SET {_listed(values)} {_where(where)}")
        case Merge(source, on, clauses):
            frame(spark, source).createOrReplaceTempView("source_of_merge")
            whens = " ".join(map(_when, clauses))
            spark.sql(f"MERGE INTO {table} t USING source_of_merge s ON {on.sql} {whens}")


def _when(clause: Clause) -> str:
    condition = "" if clause.condition is None else f" AND ({clause.condition.sql})"
    head = f"WHEN {clause.when.upper()}{condition} THEN {clause.action.upper()}"
    if clause.action == "delete":
        return head
    if clause.action == "update":
        return f"{head} SET {'*' if clause.set is None else _listed(clause.set)}"
    if clause.set is None:
        return f"{head} *"
    values = ", ".join(value.sql for value in clause.set.values())
    return f"{head} ({', '.join(clause.set)}) VALUES ({values})"


def _sql(condition: Expression | None) -> str | None:
    return None if condition is None else condition.sql


def _where(condition: Expression | None) -> str:
    return "" if condition is None else f"WHERE {condition.sql}"


def _texts(values: Mapping[str, Expression]) -> dict[str, str]:
    return {name: value.sql for name, value in values.items()}


def _listed(values: Mapping[str, Expression]) -> str:
    return ", ".join(f"{name} = {value.sql}" for name, value in values.items())


def _as_deltalake(_: SparkSession, path: Path) -> pa.Table:
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(path)))
    return pa.table(query.execute(f"SELECT {', '.join(COLUMNS)} FROM t").read_all())


def _as_delta_spark(spark: SparkSession, path: Path) -> pa.Table:
    return spark_tables.as_delta_spark_reads(spark, path).toArrow()


READERS: dict[str, Callable[[Any, Path], pa.Table]] = {
    "delta-spark": _as_delta_spark,
    "deltalake": _as_deltalake,
    "to_df": lambda spark, path: readers.read("to_df", spark, path),
    "to_arrow": lambda spark, path: readers.read("to_arrow", spark, path),
}
