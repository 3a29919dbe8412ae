"""The same statement by delta-spark and by delvec, each on its own copy of a table."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from delvec import DeltaTable
from delvec.delta.table.writes import MergeBuilder
from delvec.delta.write.report import WriteReport
from delvec.errors import DelvecError
from delvec.spark.delta.write.clauses import Clause
from tests.delta import log_files
from tests.spark.delta import spark_tables

Rows = Counter[str]
Act = Callable[[DeltaTable], WriteReport]
Values = Mapping[str, Any]
# The fixtures `new` and `meanwhile`.
New = Callable[..., DeltaTable]
Meanwhile = Callable[..., list[int]]

FEED = {"delta.enableChangeDataFeed": "true"}
OFF = {"delta.enableDeletionVectors": "false"}
# Partition columns and properties.
Kind = tuple[tuple[str, ...], Mapping[str, str]]
KINDS: dict[str, Kind] = {"feed": ((), FEED), "copied": ((), FEED | OFF), "parts": (("p",), FEED)}


def made(
    spark: SparkSession,
    path: Path,
    columns: str,
    *statements: str,
    partitioned_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Path:
    """Let delta-spark create a table with vectors on, and run statements on it."""
    spark_tables.create(spark, path, columns, partitioned_by=partitioned_by, properties=properties)
    spark_tables.sql(spark, path, *statements)
    return path


class Lazily(dict[str, "Path"]):
    """Tables by name, each made when a test first asks for it."""

    def __init__(self, make: Callable[[str], Path]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Path:
        self[name] = self._make(name)
        return self[name]


def lazily_made(
    spark: SparkSession,
    factory: pytest.TempPathFactory,
    kinds: Mapping[str, Kind],
    columns: str,
    *statements: str,
    then: Callable[[Path], object] = lambda _: None,
) -> Lazily:
    """Let delta-spark make a table of each kind by the same statements, then add to it."""

    def make(kind: str) -> Path:
        parts, properties = kinds[kind]
        path = factory.mktemp(kind) / "a table"  # a name that has to be escaped
        made(spark, path, columns, *statements, partitioned_by=parts, properties=properties)
        then(path)
        return path

    return Lazily(make)


UPDATE_ALL = Clause("matched", "update")
INSERT_ALL = Clause("not_matched", "insert")
DELETE = Clause("matched", "delete")


def update(values: Values, condition: str | None = None) -> Clause:
    return Clause("matched", "update", condition, values)


def insert(values: Values | None, condition: str | None = None) -> Clause:
    return Clause("not_matched", "insert", condition, values)


def by_source_update(values: Values, condition: str | None = None) -> Clause:
    return Clause("not_matched_by_source", "update", condition, values)


def add_clauses(merge: MergeBuilder, clauses: Iterable[Clause]) -> MergeBuilder:
    for clause in clauses:
        has_all = clause.action != "delete" and clause.values is None
        add = getattr(merge, f"when_{clause.when}_{clause.action}{'_all' * has_all}")
        values = () if clause.values is None else (clause.values,)
        merge = add(*values, clause.condition)
    return merge


def clauses_sql(clauses: Iterable[Clause]) -> str:
    return " ".join(map(_clause_sql, clauses))


def _clause_sql(clause: Clause) -> str:
    when = clause.when.upper().replace("_", " ")
    condition = f"AND {clause.condition}" if clause.condition else ""
    if clause.action == "delete":
        action = "DELETE"
    elif clause.action == "update":
        action = f"UPDATE SET {'*' if clause.values is None else set_sql(clause.values)}"
    elif clause.values is None:
        action = "INSERT *"
    else:
        names, values = ", ".join(clause.values), ", ".join(map(str, clause.values.values()))
        action = f"INSERT ({names}) VALUES ({values})"
    return f"WHEN {when} {condition} THEN {action}"


def set_sql(values: Values) -> str:
    return ", ".join(
        f"{name} = {'NULL' if value is None else value}" for name, value in values.items()
    )


@dataclass(frozen=True)
class Judged:
    """What came of a statement: a report or an error, and the folder that delvec wrote to."""

    path: Path
    report: WriteReport | None
    error: DelvecError | None

    @property
    def done(self) -> WriteReport:
        """The report of what must have worked."""
        if self.report is None:
            raise AssertionError("delvec refused") from self.error
        return self.report


def bag(df: DataFrame) -> Rows:
    """Give rows as texts, which maps and variants are good for as well."""
    return Counter(map(repr, df.collect()))


def _judge_bag(df: DataFrame) -> Rows:
    return Counter(map(repr, spark_tables.collected(df)))


def rows_of(spark: SparkSession, path: Path) -> Rows:
    """Read a table by delta-spark, and see that delvec reads the same."""
    rows = _judge_bag(spark_tables.as_delta_spark_reads(spark, path))
    assert bag(DeltaTable.for_path(spark, path).to_df()) == rows
    return rows


def feed(spark: SparkSession, path: Path, version: int) -> Rows:
    """Read the changes of one version by delta-spark, without their time."""
    reading = spark.read.format("delta").option("readChangeFeed", "true")
    reading = reading.option("startingVersion", version).option("endingVersion", version)
    return _judge_bag(reading.load(str(path)).drop("_commit_timestamp"))


def metrics(path: Path, *names: str) -> dict[str, int]:
    """Give some of the figures that the newest commit tells of itself."""
    [info] = [each["commitInfo"] for each in log_files.commits(path)[-1] if "commitInfo" in each]
    told = info.get("operationMetrics", {})
    return {name: int(told[name]) for name in names if name in told}


def copy_of(path: Path, name: str) -> Path:
    """Copy a table beside itself."""
    target = path.parent / name
    shutil.copytree(path, target)
    return target


def folder(path: Path) -> set[str]:
    """Name all files of a table but Hadoop's checksums, to see what an operation left."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)) for file in files if not file.name.endswith(".crc")}


def judged(
    spark: SparkSession,
    template: Path,
    name: str,
    sql: str | Callable[[Path], None],
    act: Act,
    *figures: str,
) -> Judged:
    """Do the same with both engines, and hold rows, changes, figures and errors side by side.

    `sql` is the statement for delta-spark, or what does it, and `act` the same for delvec, each on
    a copy; `name` is a word for the copies, and `figures` are of the commit.
    """
    slug = name.replace(" ", "-")
    theirs, ours = copy_of(template, f"{slug}-theirs"), copy_of(template, f"{slug}-ours")
    start = log_files.newest_version(ours)
    refused = _failed(
        lambda: spark_tables.sql(spark, theirs, sql) if isinstance(sql, str) else sql(theirs)
    )
    table = DeltaTable.for_path(spark, ours)
    before = folder(ours)
    report, error = None, None
    try:
        report = act(table)
    except DelvecError as caught:
        error = caught
    assert (error is None) == (refused is None), f"delta-spark: {refused}; delvec: {error!r}"
    assert rows_of(spark, ours) == rows_of(spark, theirs)
    if error is not None:
        assert folder(ours) == before
    elif report is not None and report.version is not None:
        assert log_files.newest_version(ours) == start + 1
        assert metrics(ours, *figures) == metrics(theirs, *figures)
        if table.properties.get("delta.enableChangeDataFeed") == "true":
            assert feed(spark, ours, start + 1) == feed(spark, theirs, start + 1)
    return Judged(ours, report, error)


def judged_merge(
    spark: SparkSession,
    template: Path,
    name: str,
    source: str,
    clauses: Iterable[Clause] = (UPDATE_ALL, INSERT_ALL),
    *figures: str,
    on: str = "t.id = s.id",
    evolve: bool = False,
) -> Judged:
    """Merge the rows of a query by both engines."""
    evolution = "WITH SCHEMA EVOLUTION" if evolve else ""
    target = f"MERGE {evolution} INTO {{T}} t USING ({source}) s ON {on}"
    return judged(
        spark,
        template,
        name,
        f"{target} {clauses_sql(clauses)}",
        lambda t: add_clauses(
            t.merge(spark.sql(source), on, merge_schema=evolve), clauses
        ).execute(),
        *figures,
    )


def judged_write(
    spark: SparkSession,
    template: Path,
    name: str,
    query: str,
    act: Callable[[DeltaTable, DataFrame], WriteReport],
    *figures: str,
    mode: str = "append",
    **options: str,
) -> Judged:
    """Write the rows of a query by delta-spark's DataFrameWriter and by delvec."""
    rows = spark.sql(query)
    writer = rows.write.format("delta").mode(mode).options(**options)
    return judged(
        spark, template, name, lambda path: writer.save(str(path)), lambda t: act(t, rows), *figures
    )


def _failed(act: Callable[[], Any]) -> str | None:
    try:
        act()
    except (PySparkException, Py4JError) as error:
        return str(error).splitlines()[0]
    return None
