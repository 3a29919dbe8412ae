"""Every way in which delvec reads a Delta table, by name; each gives the rows as an Arrow table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import delvec.delta.table as delta
from delvec.datasource import DelvecDataSource

Reader = Callable[["SparkSession", "Path", int | None], "pa.Table"]


def by_frame(spark: SparkSession, path: Path, version: int | None = None) -> DataFrame:
    return delta.DeltaTable.for_path(spark, path).to_df(version)


def by_source(spark: SparkSession, path: Path, version: int | None = None) -> DataFrame:
    spark.dataSource.register(DelvecDataSource)
    reading = spark.read.format("delvec").option("timeZone", spark.conf.get(ZONE))
    if version is not None:
        reading = reading.option("versionAsOf", version)
    return reading.load(str(path))


def by_arrow(spark: SparkSession, path: Path, version: int | None = None) -> pa.Table:
    return delta.DeltaTable.for_path(spark, path).to_arrow(version=version)


ZONE = "spark.sql.session.timeZone"
# To compile the plans of small tables takes longer than to run them.
INTERPRETED: dict[str, object] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
FRAMES: dict[str, Callable[..., DataFrame]] = {"to_df": by_frame, "source": by_source}
READERS: dict[str, Reader] = {
    "to_df": lambda spark, path, version: by_frame(spark, path, version).toArrow(),
    "to_arrow": by_arrow,
    "source": lambda spark, path, version: by_source(spark, path, version).toArrow(),
}


def read(name: str, spark: SparkSession, path: Path, version: int | None = None) -> pa.Table:
    return READERS[name](spark, path, version)


def read_frame(name: str, spark: SparkSession, path: Path, version: int | None = None) -> DataFrame:
    return FRAMES[name](spark, path, version)


@contextmanager
def settings_of(spark: SparkSession, settings: Mapping[str, object]) -> Iterator[None]:
    """Change settings of a session for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, str(value))
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
