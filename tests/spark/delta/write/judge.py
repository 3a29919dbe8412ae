"""The same statement by delta-spark and by delvec, each on its own copy of a table."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from delvec import DeltaTable
from delvec.delta.write.report import WriteReport
from delvec.errors import DelvecError
from tests.delta import log_files
from tests.spark.delta import spark_tables

Rows = Counter[str]
Act = Callable[[DeltaTable], WriteReport]


class Lazily(dict[str, "Path"]):
    """Tables by name, each made when a test first asks for it."""

    def __init__(self, make: Callable[[str], Path]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Path:
        self[name] = self._make(name)
        return self[name]


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

    Args:
        spark: The session.
        template: The table; it stays as it is.
        name: A word for the copies.
        sql: The statement for delta-spark, in which `{T}` is the table; or what does it.
        act: The same for delvec.
        figures: Metrics of the commit that must be the same.
    """
    theirs, ours = copy_of(template, f"{name}-theirs"), copy_of(template, f"{name}-ours")
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


def _failed(act: Callable[[], Any]) -> str | None:
    try:
        act()
    except (PySparkException, Py4JError) as error:
        return str(error).splitlines()[0]
    return None
