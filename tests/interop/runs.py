"""A plan carried out on a real table: after each step all readers must see what the model says."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from delvec import DeltaTable
from delvec.delta.write.report import WriteReport
from tests.delta import log_files
from tests.delta.rows import rows_of
from tests.interop.expressions import (
    Append,
    Clause,
    Delete,
    Expression,
    Merge,
    Operation,
    Outcome,
    Overwrite,
    Rows,
    Update,
)
from tests.interop.plans import COLUMNS, Engine, Kind, Step
from tests.spark.delta import readers, spark_tables

LOG = logging.getLogger(__name__)
LOG.setLevel("INFO")
# A file of ten rows then has several row groups.
SMALL_ROW_GROUPS: dict[str, object] = {
    "parquet.block.size": 64,
    "parquet.block.size.row.check.min": 2,
    "parquet.block.size.row.check.max": 2,
    "parquet.page.size.row.check.min": 2,
    "parquet.page.size.row.check.max": 2,
}
PROPERTIES = {"delta.checkpointInterval": "3"}


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


@dataclass
class Run:
    """A table, the rows that it should have, and what was seen of it so far."""

    spark: SparkSession
    path: Path
    kind: Kind
    rows: Rows = field(default_factory=list)
    states: dict[int, Rows] = field(default_factory=dict)
    steps: dict[int, tuple[Step, Outcome]] = field(default_factory=dict)
    checkpoints: dict[int, Engine] = field(default_factory=dict)
    reads: Counter[str] = field(default_factory=Counter)

    @property
    def version(self) -> int:
        return log_files.newest_version(self.path)

    def start(self, by: Engine) -> None:
        LOG.info("%s creates %s", by, self.kind)
        create(self.spark, self.path, self.kind, by=by, properties=PROPERTIES)
        self.states[self.version] = []

    def do(self, step: Step) -> None:
        LOG.info("version %d: %s", self.version + 1, step)
        before, outcome = self.version, step.operation.apply(self.rows)
        self.rows = outcome.rows
        if step.engine == "delvec":
            report = by_delvec(self.spark, self.path, step.operation)
            check_report(report, step.operation, outcome)
            assert (report.version or before) == self.version
        else:
            by_delta_spark(self.spark, self.path, step.operation)
        if self.version > before:
            assert self.version == before + 1
            self.steps[self.version] = step, outcome
        self.check()
        self._note_checkpoints(step.engine)
        if step.checkpoint and self.version not in self.checkpoints:
            DeltaTable.for_path(self.spark, self.path).checkpoint()
            self._note_checkpoints("delvec")

    def sql(self, statement: str, rows: Rows | None = None) -> None:
        """Let delta-spark run a statement, after which the table has these rows or as before."""
        LOG.info("version %d: %s", self.version + 1, statement)
        self.rows = self.rows if rows is None else rows
        spark_tables.sql(self.spark, self.path, statement)
        self.check()

    def check(self, path: Path | None = None, only: Sequence[str] = tuple(READERS)) -> None:
        """Hold what each reader finds against the model."""
        expected = rows_of(as_arrow(self.rows))
        for name in only:
            if name == "deltalake" and self.kind.mapped:
                continue  # it does not know column mapping
            found = bag(READERS[name](self.spark, path or self.path))
            wrong = f"{name}, version {self.version}"
            assert not found - expected, f"{wrong}: rows too many: {list(found - expected)[:5]}"
            assert not expected - found, f"{wrong}: rows missing: {list(expected - found)[:5]}"
            self.reads[name] += 1
        self.states[self.version] = self.rows

    def _note_checkpoints(self, by: Engine) -> None:
        for version in checkpoints(self.path):
            self.checkpoints.setdefault(version, by)


def bag(table: pa.Table) -> Counter[Any]:
    return rows_of(table.select(COLUMNS))


def check_report(report: WriteReport, operation: Operation, outcome: Outcome) -> None:
    assert report.rows_inserted == outcome.inserted
    if operation.name != "overwrite":
        assert (report.rows_deleted, report.rows_updated) == (outcome.deleted, outcome.updated)


def checkpoints(path: Path) -> list[int]:
    """List the versions that have a checkpoint."""
    names = [file.name for file in (path / "_delta_log").glob("*.checkpoint*.parquet")]
    return sorted({int(name.split(".")[0]) for name in names})


def vector_updates(path: Path) -> set[tuple[str, str]]:
    """Name the engines that put a vector in place of another: of the old one, of the new one."""
    writers: dict[str, str] = {}
    updates = set()
    for actions in log_files.commits(path):
        [info] = [action["commitInfo"] for action in actions if "commitInfo" in action]
        engine = "delvec" if info["engineInfo"].startswith("delvec") else "delta-spark"
        removed = {
            action["remove"]["path"]
            for action in actions
            if action.get("remove", {}).get("deletionVector")
        }
        for add in (action["add"] for action in actions if "add" in action):
            if add.get("deletionVector"):
                if add["path"] in removed:
                    updates.add((writers[add["path"]], engine))
                writers[add["path"]] = engine
    return updates
