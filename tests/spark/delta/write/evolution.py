"""The same statement with schema evolution by delta-spark and by delvec, side by side."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from delvec import DeltaTable
from delvec.errors import DelvecError
from delvec.spark.delta.write.clauses import Clause
from tests.spark.delta import spark_tables
from tests.spark.delta.readers import INTERPRETED, settings_of
from tests.spark.delta.write.judge import Values, add_clauses, clauses_sql, set_sql


@dataclass(frozen=True)
class Rows:
    """Rows by the DDL of their columns; each is what JSON can hold."""

    columns: str
    rows: tuple[Any, ...] = ()
    select: str = "*"

    def frame(self, spark: SparkSession) -> DataFrame:
        text = json.dumps(self.rows)
        kind = f"array<struct<{self.columns}>>"
        return spark.sql(
            f"SELECT {self.select} FROM (SELECT inline(from_json('{text}', '{kind}')))"
        )


@dataclass(frozen=True)
class Merge:
    """A merge by the column `k`."""

    clauses: tuple[Clause, ...]


@dataclass(frozen=True)
class Update:
    """An update; delta-spark has no schema evolution for it, and neither has delvec."""

    values: Values
    where: str | None = None


@dataclass(frozen=True)
class Append:
    """An append of the source by name, as delta-spark's `writeTo(...).append()`.

    That sets missing fields of structs to NULL, with and without evolution. delvec does so with it
    only, and else refuses them as delta-spark's `INSERT` does, UPDATE and MERGE.
    """


@dataclass(frozen=True)
class Case:
    """A statement, and what it meets."""

    target: Rows
    source: Rows
    statement: Merge | Update | Append
    evolve: bool = True


@dataclass(frozen=True)
class Outcome:
    """A schema and rows, or an error."""

    schema: str = ""
    rows: tuple[str, ...] = ()
    error: str = ""

    def __eq__(self, other: object) -> bool:
        """Compare what was written; of errors, that there was one."""
        if not isinstance(other, Outcome):
            return NotImplemented
        if self.error or other.error:
            return bool(self.error) == bool(other.error)
        return (self.schema, Counter(self.rows)) == (other.schema, Counter(other.rows))

    __hash__ = None  # type: ignore[assignment]


# Of the judge only the result matters: vectors cost it a third join, and a copy of the source.
_JUDGE: dict[str, object] = INTERPRETED | {
    "spark.databricks.delta.merge.deletionVectors.persistent": "false",
    "spark.databricks.delta.update.deletionVectors.persistent": "false",
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.sql.shuffle.partitions": "1",
}


def outcomes(spark: SparkSession, folder: Path, case: Case) -> tuple[Outcome, Outcome]:
    """Run a case by delta-spark and by delvec; tables stay in the folder for the next one."""
    template = folder / f"{crc32(repr(case.target).encode()):08x}"
    with settings_of(spark, _JUDGE):
        if not template.exists():
            writing = case.target.frame(spark).coalesce(1).write.format("delta")
            writing.option("delta.enableDeletionVectors", "true").save(str(template))
        theirs, ours = folder / "theirs", folder / "ours"
        for path in (theirs, ours):
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(template, path)
        return _judged(spark, theirs, case), _tried(spark, ours, case)


def _judged(spark: SparkSession, path: Path, case: Case) -> Outcome:
    source, statement = case.source.frame(spark), case.statement
    try:
        if isinstance(statement, Append):
            if not case.evolve and _lacks_fields(source.schema, case.target.frame(spark).schema):
                return Outcome(error="fields are missing")
            writer = source.writeTo(f"delta.`{path}`")
            writer.option("mergeSchema", str(case.evolve).lower()).append()
        elif isinstance(statement, Update):
            where = f"WHERE {statement.where}" if statement.where else ""
            spark.sql(f"UPDATE delta.`{path}` SET {set_sql(statement.values)} {where}")
        else:
            source.createOrReplaceTempView("delvec_source")
            evolution = "WITH SCHEMA EVOLUTION" if case.evolve else ""
            spark.sql(
                f"MERGE {evolution} INTO delta.`{path}` t USING delvec_source s ON t.k = s.k"
                f" {clauses_sql(statement.clauses)}"
            )
    except (PySparkException, Py4JError) as error:
        return Outcome(error=str(error).splitlines()[0])
    return _written(spark, path)


def _lacks_fields(have: DataType, wanted: DataType, *, columns: bool = True) -> bool:
    """Tell whether a struct in `have` lacks a field of that in `wanted`; columns may be missing."""
    match have, wanted:
        case StructType(), StructType():
            given = {field.name.lower(): field.dataType for field in have.fields}
            return any(
                _lacks_fields(given[name], field.dataType, columns=False)
                if (name := field.name.lower()) in given
                else not columns
                for field in wanted.fields
            )
        case ArrayType(), ArrayType():
            return _lacks_fields(have.elementType, wanted.elementType, columns=False)
        case MapType(), MapType():
            return _lacks_fields(have.keyType, wanted.keyType, columns=False) or _lacks_fields(
                have.valueType, wanted.valueType, columns=False
            )
    return False


def _tried(spark: SparkSession, path: Path, case: Case) -> Outcome:
    source, statement = case.source.frame(spark), case.statement
    table = DeltaTable.for_path(spark, path)
    try:
        if isinstance(statement, Append):
            table.append(source, merge_schema=case.evolve)
        elif isinstance(statement, Update):
            table.update(statement.values, where=statement.where)
        else:
            merge = table.merge(source, "t.k = s.k", merge_schema=case.evolve)
            add_clauses(merge, statement.clauses).execute()
    except DelvecError as error:
        return Outcome(error=f"{type(error).__name__}: {error}")
    return _written(spark, path)


def _written(spark: SparkSession, path: Path) -> Outcome:
    frame = spark_tables.as_delta_spark_reads(spark, path)
    return Outcome(frame.schema.json(), tuple(sorted(map(repr, frame.collect()))))
