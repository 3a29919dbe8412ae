"""Reading a snapshot through any mix of deletes.

Iceberg's planner tells to which data files equality deletes apply. All other data files are read by
Iceberg's reader as it is. The rows of these are read by Iceberg's reader as well, which applies
positions and vectors; their keys are compared by `key_bits` or `key_filter`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from delvec.iceberg.client.catalog import LoadedTable, iceberg_view
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.file_scan import DataFilesWithKeys, plan_snapshot, read_data_files
from delvec.iceberg.client.files import equality_deletes, from_content_file
from delvec.iceberg.deletes.key_bits import plan_bits
from delvec.iceberg.deletes.key_columns import add_dropped_key_columns
from delvec.iceberg.deletes.key_filter import ScopedDelete, filter_deleted
from delvec.identifiers import quote
from delvec.report.format import nonzero
from delvec.report.rendering import Line, Rendered, doc, documented, required, summary
from delvec.spark import jvm

PLACES: Final = ("_file", "_pos")
"""The columns that tell a row's data file, as the manifest spells it, and its position there."""


@documented()
class ReadPlan(Rendered):
    """How a snapshot is read; `to_df()` returns its rows."""

    table: str = required("The table.")
    snapshot_id: int | None = required("The snapshot; None for a table without any.")
    data_files: int = doc(
        "Data files that may match the condition; all, without equality deletes.", 0
    )
    files_with_keys: int = doc("Those of them that equality deletes apply to.", 0)
    equality_deletes: int = doc("Ordinary equality-delete files that are read.", 0)
    vectors: int = doc("Equality delete vectors that are read.", 0)
    skipped: int = doc(
        "Equality deletes that apply to none of them, by sequence number, partition or bounds.", 0
    )
    keys: int = doc("Deleted keys in the files that are read.", 0)
    reader: str = doc("`iceberg` where no equality deletes apply, else `keys`.", "iceberg")
    reason: str = doc("Why that reader.", "no equality deletes apply")
    _rows: DataFrame | None = field(default=None, repr=False, compare=False)

    def to_df(self) -> DataFrame:
        if self._rows is None:
            raise ValueError("a plan that was not made by plan_read has no rows")
        return self._rows

    def _lines(self) -> Iterator[Line]:
        deletes = (
            nonzero(self.equality_deletes, "equality-delete file"),
            nonzero(self.vectors, "equality delete vector"),
        )
        facts = {
            "data files": f"{self.data_files:,}, {self.files_with_keys:,} with deletes by key",
            "deletes": " and ".join(filter(None, deletes)),
            "keys": nonzero(self.keys),
            "skipped": nonzero(self.skipped, "equality delete"),
        }
        headline = f"{self.table}, snapshot {self.snapshot_id}: read by {self.reader}"
        return summary(f"{headline}, {self.reason}", facts)


def plan_read(
    table: LoadedTable,
    snapshot_id: int | None,
    schema: Mapping[str, Any],
    where: str | Column | None = None,
    columns: Sequence[str] | None = None,
) -> ReadPlan:
    """Plan to read a snapshot; only metadata is read, and keys that are compared as bits."""
    found = _planned(table, snapshot_id, schema, where)
    rows = found.rows
    if where is not None:
        rows = rows.where(where)
    rows = rows.select(*([quote(name) for name in _names(schema)] if columns is None else columns))
    vectors = sum(each.file.is_vector for each in found.deletes)
    total, with_keys = 0, 0
    if found.files is not None:
        total, with_keys = found.files.file_count, found.files.files.num_rows
    elif snapshot_id is not None:  # it is read as it is; its summary tells
        total = table.metadata.snapshots[snapshot_id].data_file_count or 0
    return ReadPlan(
        str(table.name),
        snapshot_id,
        total,
        with_keys,
        len(found.deletes) - vectors,
        vectors,
        found.live - len(found.deletes),
        sum(each.file.record_count for each in found.deletes),
        "keys" if found.deletes else "iceberg",
        found.reason,
        rows,
    )


def rows_with_places(
    table: LoadedTable, snapshot_id: int, where: str | Column | None = None
) -> DataFrame:
    """Return the live rows of a snapshot with the columns of `PLACES`; lazy."""
    rows = _planned(table, snapshot_id, table.metadata.schema, where, PLACES).rows
    return rows if where is None else rows.where(where)


def iceberg_condition(rows: DataFrame, where: str | Column) -> Any:  # noqa: ANN401
    """Return what Iceberg understands of a condition, as an object of its own; None if nothing.

    Parts of a conjunction that it does not understand are omitted: files are pruned by the others,
    and Spark applies the condition to rows in any case.
    """
    spark = rows.sparkSession
    with translate_errors("the condition"):
        plan: Any = rows.where(where)._jdf.queryExecution().analyzed()  # noqa: SLF001
        if jvm.class_name(plan) != "Filter":
            return None  # it names metadata columns
        patterns = jvm.java_class(spark, "org.apache.spark.sql.catalyst.trees.TreePattern")
        if plan.condition().containsPattern(patterns.CURRENT_LIKE()):
            return None  # it means the time of the query, which is later
        folding = jvm.java_class(spark, "org.apache.spark.sql.catalyst.optimizer.ConstantFolding")
        condition = folding.apply(plan).condition()
        return _converted(spark, condition)


@dataclass(frozen=True, eq=False)
class _Planned:
    rows: DataFrame
    files: DataFilesWithKeys | None
    deletes: tuple[ScopedDelete, ...]
    live: int
    reason: str = "no equality deletes apply"


def _planned(
    table: LoadedTable,
    snapshot_id: int | None,
    schema: Mapping[str, Any],
    where: str | Column | None,
    places: Sequence[str] = (),
) -> _Planned:
    if snapshot_id is None:
        return _Planned(read_data_files(table, None, schema, (), chosen=False), None, (), 0)
    names = [*(quote(name) for name in _names(schema)), *places]
    rows = read_data_files(table, snapshot_id, schema, (), chosen=False).select(*names)
    live = len(equality_deletes(table, snapshot_id))
    if not live:
        return _Planned(rows, None, (), 0)
    condition = None if where is None else iceberg_condition(rows, where)
    files = plan_snapshot(table, snapshot_id, schema, condition)
    deletes = tuple(
        ScopedDelete(from_content_file(text, sequence), scope)
        for sequence, scope, text in files.deletes
    )
    if not deletes:
        return _Planned(rows, files, (), live)
    ids = {each for delete in deletes for each in delete.file.equality_ids}
    wide = add_dropped_key_columns(table.metadata, schema, ids, str(table.name))
    read = partial(read_data_files, table, snapshot_id, condition=condition)
    bits = plan_bits(table, wide, files, deletes)
    paths = files.files.column("path").to_pylist()
    if isinstance(bits, str):
        rows = read(wide, paths, chosen=True)
        parts = [filter_deleted(table, snapshot_id, wide, rows, files, deletes)]
        reason = f"keys are joined: {bits}"
    else:
        parts = [read(wide, each.paths, chosen=True).where(each.condition) for each in bits]
        reason = "keys are compared as bits"
    if files.file_count > len(paths):
        parts.append(read(schema, paths, chosen=False))
    live_rows = reduce(DataFrame.unionAll, [part.select(*names) for part in parts])
    return _Planned(live_rows, files, deletes, live, reason)


def _converted(spark: SparkSession, condition: Any) -> Any:  # noqa: ANN401
    if jvm.class_name(condition) == "And":
        parts = [_converted(spark, each) for each in (condition.left(), condition.right())]
        known = [each for each in parts if each is not None]
        if len(known) > 1:
            return getattr(iceberg_view(spark).expressions.Expressions, "and")(*known)
        return known[0] if known else None
    subqueries = "org.apache.spark.sql.catalyst.expressions.SubqueryExpression"
    if jvm.java_class(spark, subqueries).hasSubquery(condition):
        return None  # Spark's own conversion, which Iceberg's calls first, never ends on them
    if any(each.name() in PLACES for each in jvm.items(condition.references())):
        return None  # no columns of files
    converter = jvm.java_class(
        spark, "org.apache.spark.sql.execution.datasources.SparkExpressionConverter"
    )
    try:
        return converter.convertToIcebergExpression(condition)
    except (Py4JError, PySparkException):
        return None  # pruning is optional


def _names(schema: Mapping[str, Any]) -> list[str]:
    return [field["name"] for field in schema["fields"]]
