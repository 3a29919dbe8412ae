"""Where rows are: the positions of all rows of a DataFrame as one bitmap for each file.

The JVM aggregates positions to pages of 32,768 bits, so that at most one bit for each row of a
touched page comes to the driver, whatever the rows hold. Where the pages of all files that are
looked at could take more than `spark.delvec.write.pageMemory`, tasks make the vectors instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions

from delvec.spark.scan import bytes_of_bits
from delvec.spark.settings import bytes_setting
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from delvec.delta.fileset import FileSet

__all__ = ["NUMBER", "PAGE_MEMORY", "POSITION", "Hits", "find_rows", "fits_driver", "pages"]

PAGE_MEMORY: Final = "spark.delvec.write.pageMemory"
NUMBER: Final = "__delvec_number"
"""The column that tells which file a row is in."""
POSITION: Final = "__delvec_position"
"""The column that tells where in the file it is."""


@dataclass(frozen=True)
class Hits:
    """Rows that were found.

    Attributes:
        bitmaps: Their positions, by the number of their file.
        counts: How many there are of each kind that was asked for.
        twice: Numbers of the files in which a row came more than once.
    """

    bitmaps: Mapping[int, Bitmap]
    counts: Mapping[str, int]
    twice: tuple[int, ...] = ()


def fits_driver(spark: SparkSession, files: FileSet) -> bool:
    """Tell whether the pages of all rows of some files would fit the driver's limit."""
    return bool(bytes_of_bits(files).sum() <= bytes_setting(spark, PAGE_MEMORY, "256m"))


def pages(rows: DataFrame, kinds: Mapping[str, str]) -> DataFrame:
    """Give (number of the file, number of the page, its bits, how many rows made it).

    Args:
        rows: With `NUMBER` and `POSITION`.
        kinds: Conditions in SQL, by the name of a column that counts the rows that satisfy them.
    """
    counts = [functions.expr(f"count_if({sql})").alias(name) for name, sql in kinds.items()]
    return rows.groupBy(
        NUMBER, functions.expr(f"bitmap_bucket_number({POSITION} + 1)").alias("bucket")
    ).agg(
        functions.expr(f"bitmap_construct_agg(bitmap_bit_position({POSITION} + 1))").alias("page"),
        functions.expr("count(1)").alias("rows"),
        *counts,
    )


def find_rows(rows: DataFrame, kinds: Mapping[str, str] | None = None) -> Hits:
    """Run one job that gives the positions of all rows; see `pages`."""
    found: pa.Table = pages(rows, kinds or {}).toArrow()
    counts = {name: pc.sum(found.column(name)).as_py() or 0 for name in kinds or ()}
    if not found.num_rows:
        return Hits({}, counts)
    found = found.sort_by([(NUMBER, "ascending"), ("bucket", "ascending")])
    numbers, buckets, came = (found.column(name).to_numpy() for name in (NUMBER, "bucket", "rows"))
    page = found.column("page").combine_chunks()
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    bitmaps, twice = {}, []
    for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
        number = int(numbers[start])
        bitmaps[number] = Bitmap.from_pages(buckets[start:stop], page.slice(start, stop - start))
        if bitmaps[number].cardinality != came[start:stop].sum():
            twice.append(number)
    return Hits(bitmaps, counts, tuple(twice))
