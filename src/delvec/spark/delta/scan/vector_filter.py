"""The filter of a scan through vectors: is the bit of this row's position 0?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql import functions

from delvec.spark import jvm
from delvec.spark.bits import word_at

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

__all__ = ["ROW_INDEX", "Keep", "row_filter"]

# The rows that a scan keeps: those that are not in the vectors, or only those that are.
Keep = Literal["live", "selected"]

# Spark's Parquet reader fills a column of this name with the positions of the rows.
# `_metadata.row_index` ends in the same column, and makes an object for every row as well.
ROW_INDEX: Final = "_tmp_metadata_row_index"
_WORD_BITS: Final = 64


def row_filter(spark: SparkSession, vector: str, keep: Keep = "live") -> Column:
    """Return the condition that a scan keeps a row.

    It refers to its columns by name, so that one condition serves every scan of a JVM; building it
    takes some 80 calls into the JVM.

    Args:
        spark: A classic session.
        vector: The column that holds the vector of the row's file, as 64-bit words, big-endian;
            positions beyond the words are not in the vector.
        keep: Which rows to keep.
    """
    cache = jvm.cache(spark)
    key = ("row filter", vector, keep)
    if key not in cache:
        cache[key] = _condition(spark, functions.col(vector), int(keep == "selected"))
    condition: Column = cache[key]
    return condition


def _condition(spark: SparkSession, vector: Column, wanted: int) -> Column:
    index = functions.col(ROW_INDEX)
    size = functions.octet_length(vector).cast("long") * 8
    word = word_at(spark, vector, (functions.shiftright(index, 6) * 8).cast("int"))
    bit = functions.getbit(word, index.bitwiseAND(functions.lit(_WORD_BITS - 1)).cast("int"))
    missing = functions.raise_error(functions.lit("delvec: a file came without its vector"))
    return (
        functions.when(vector.isNull(), missing.cast("boolean"))
        .when(index < size, bit == wanted)
        .otherwise(functions.lit(wanted == 0))
    )
