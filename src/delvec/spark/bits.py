"""Bits in binary values and in broadcast memory, as columns of generated code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions

from delvec.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

__all__ = ["broadcast_bytes", "word_at"]


def broadcast_bytes(spark: SparkSession, octets: bytes) -> Column:
    """Return bytes as a column that takes no room in plans: executors fetch them once.

    They live until Spark's cleaner finds that no plan refers to them.
    """
    view = jvm.view_of(spark)
    utils = view.org.apache.spark.sql.classic.ExpressionUtils
    expressions = view.org.apache.spark.sql.catalyst.expressions
    types = view.org.apache.spark.sql.types
    shared = spark.sparkContext._jsc.broadcast(octets)  # noqa: SLF001
    loader = view.java.lang.Thread.currentThread().getContextClassLoader()
    kind = loader.loadClass("org.apache.spark.broadcast.Broadcast")
    handle = expressions.Literal.fromObject(shared, types.ObjectType(kind))
    nothing = jvm.to_seq(spark, [])
    value = expressions.objects.Invoke(
        handle, "value", types.DataTypes.BinaryType, nothing, nothing, True, False, True
    )
    return type(functions.lit(0))(utils.column(value))


def word_at(spark: SparkSession, octets: Column, place: Column) -> Column:
    """Return `ByteBuffer.wrap(octets).getLong(place)` as a column.

    The buffer checks bounds, and costs nothing measurable: it never leaves the generated code.
    """
    view = jvm.view_of(spark)
    utils = view.org.apache.spark.sql.classic.ExpressionUtils
    objects = view.org.apache.spark.sql.catalyst.expressions.objects
    types = view.org.apache.spark.sql.types
    buffer = view.java.lang.Class.forName("java.nio.ByteBuffer")

    def arguments(*columns: Column) -> Any:  # noqa: ANN401
        return jvm.to_seq(spark, [utils.expression(each._jc) for each in columns])  # noqa: SLF001

    # The flags: a null argument makes the result null, the result may be null, the call is
    # deterministic.
    flags = (True, True, True)
    wrapped = objects.StaticInvoke(
        buffer,
        types.ObjectType(buffer),
        "wrap",
        arguments(octets),
        arguments(),
        *flags,
        view.scala.Option.empty(),
    )
    long = types.DataTypes.LongType
    word = objects.Invoke(wrapped, "getLong", long, arguments(place), arguments(), *flags)
    return type(octets)(utils.column(word))
