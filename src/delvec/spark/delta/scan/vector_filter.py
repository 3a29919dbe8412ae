"""The filter of a scan through vectors: is the bit of this row's position 0?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions

from delvec.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

__all__ = ["ROW_INDEX", "is_live"]

# A column of this name is filled by Spark's Parquet reader with the positions of the rows. The way
# by `_metadata.row_index` ends in the same column, and makes an object for every row on top.
ROW_INDEX: Final = "_tmp_metadata_row_index"
_WORD_BITS: Final = 64


def is_live(spark: SparkSession, vector: str, *, marked: bool = False) -> Column:
    """Give the condition that a row is not deleted, by the column that holds its file's vector.

    With `marked` the opposite: that the vector has the row.

    That holds 64-bit words, big-endian; rows beyond them are live. The condition names its columns,
    so that it serves every scan; to make it takes some 80 calls into the JVM.
    """
    kept = jvm.kept(spark)
    key = ("is live", vector, marked)
    if key not in kept:
        kept[key] = _is_live(spark, functions.col(vector), marked=marked)
    condition: Column = kept[key]
    return condition


def _is_live(spark: SparkSession, vector: Column, *, marked: bool) -> Column:
    index = functions.col(ROW_INDEX)
    size = functions.octet_length(vector).cast("long") * 8
    word = _word_at(spark, vector, (functions.shiftright(index, 6) * 8).cast("int"))
    bit = functions.getbit(word, index.bitwiseAND(functions.lit(_WORD_BITS - 1)).cast("int"))
    missing = functions.raise_error(functions.lit("delvec: a file came without its vector"))
    return (
        functions.when(vector.isNull(), missing.cast("boolean"))
        .when(index < size, bit == int(marked))
        .otherwise(functions.lit(not marked))
    )


def _word_at(spark: SparkSession, octets: Column, place: Column) -> Column:
    """Give `ByteBuffer.wrap(octets).getLong(place)` as a column.

    The buffer checks bounds, and costs nothing measurable: it never leaves the generated code.
    """
    view = jvm.view_of(spark)
    utils = view.org.apache.spark.sql.classic.ExpressionUtils
    objects = view.org.apache.spark.sql.catalyst.expressions.objects
    types = view.org.apache.spark.sql.types
    buffer = view.java.lang.Class.forName("java.nio.ByteBuffer")

    def listed(*columns: Column) -> Any:  # noqa: ANN401
        return jvm.to_seq(spark, [utils.expression(each._jc) for each in columns])  # noqa: SLF001

    # The flags: null in is null out, the result may be null, it is deterministic.
    flags = (True, True, True)
    wrapped = objects.StaticInvoke(
        buffer,
        types.ObjectType(buffer),
        "wrap",
        listed(octets),
        listed(),
        *flags,
        view.scala.Option.empty(),
    )
    long = types.DataTypes.LongType
    word = objects.Invoke(wrapped, "getLong", long, listed(place), listed(), *flags)
    return type(octets)(utils.column(word))
