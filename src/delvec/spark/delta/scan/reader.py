"""Spark's Parquet reader, or `PositionedParquet.java`, which also says which rows are deleted.

The class is compiled on the driver, once for an application, and executors get it as a jar. Where
that is impossible Spark's own reader gives the positions, and vectors are joined.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from delvec.errors import InvalidArgumentError
from delvec.spark import jvm

READER: Final = "spark.delvec.scan.reader"
_OURS, _SPARKS = "delvec", "spark"
_PARQUET: Final = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"
_loading: Final = Lock()


class Reader(NamedTuple):
    """A file format of Spark; and why it is Spark's own, if it is."""

    format: Any
    why_not: str


def parquet_reader(spark: SparkSession, bit: str, vector: str) -> Reader:
    """Return a reader for files with vectors in the constant column `vector`.

    It fills the column `bit` of the rows: 1 where the vector has the row's position, else 0.
    """
    wanted = spark.conf.get(READER, _OURS)
    if wanted not in (_OURS, _SPARKS):
        raise InvalidArgumentError(
            f"{READER} is {wanted!r}", hint=f"set it to {_OURS} (the default) or to {_SPARKS}"
        )
    why_not = f"{READER} is {_SPARKS}" if wanted == _SPARKS else _unusable(spark)
    if why_not:
        return Reader(jvm.java_class(spark, _PARQUET)(), why_not)
    return Reader(jvm.java_class(spark, "delvec.PositionedParquet")(bit, vector), "")


def _unusable(spark: SparkSession) -> str:
    """Give the class to the driver and to executors, once; return why that was impossible."""
    loaded, key = jvm.cache(spark), ("positioned", spark.sparkContext.applicationId)
    with _loading:
        if key not in loaded:
            try:
                jar = jvm.install_java(spark, "delvec.spark.delta.scan", "PositionedParquet")
                spark.sparkContext._jsc.addJar(str(jar))  # noqa: SLF001
                loaded[key] = ""
            except Py4JError as error:
                cause = str(getattr(error, "java_exception", error)).partition("\n")[0]
                loaded[key] = f"Spark {spark.version} does not take it here: {cause}"
    return str(loaded[key])
