"""A DataFrame over the files of an index, by Spark's own Parquet reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from delvec.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from delvec.spark.delta.scan.file_index import FileIndex

__all__ = ["parquet_relation"]


def parquet_relation(
    spark: SparkSession, index: FileIndex, data: StructType, constants: StructType, *, by_id: bool
) -> DataFrame:
    """Return the rows of Parquet files; lazy.

    Args:
        spark: A classic session.
        index: The files.
        data: The columns that are stored in the files.
        constants: The columns that are constant in a file, partition columns first.
        by_id: Whether stored columns are found by their field ids instead of their names.
    """
    sources = "org.apache.spark.sql.execution.datasources"
    java_type = jvm.java_class(spark, "org.apache.spark.sql.types.DataType").fromJson
    schema = java_type(constants.json())
    relation = jvm.java_class(spark, f"{sources}.HadoopFsRelation")(
        index.java(schema),
        schema,
        java_type(data.json()),
        jvm.java_class(spark, "scala.Option").empty(),
        jvm.java_class(spark, f"{sources}.parquet.ParquetFileFormat")(),
        # A file that is gone or damaged is an error, whatever the session says of other files.
        jvm.java_class(spark, "org.apache.spark.api.python.PythonUtils").toScalaMap(
            {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
        ),
        _session_that_reads_ids(spark) if by_id else jvm.session_of(spark),
    )
    return DataFrame(jvm.session_of(spark).baseRelationToDataFrame(relation), spark)


def _session_that_reads_ids(spark: SparkSession) -> Any:  # noqa: ANN401
    """Return a session, in Java, that finds columns of Parquet files by their field ids.

    The setting is off by default; it is set in a copy, so that the user's session keeps its own.
    """
    key = "spark.sql.parquet.fieldId.read.enabled"
    if spark.conf.get(key) == "true":
        return jvm.session_of(spark)
    copy = jvm.session_of(spark).cloneSession()
    copy.conf().set(key, "true")
    return copy
