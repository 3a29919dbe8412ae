"""The positions of all rows of a DataFrame, as one bitmap for each file.

The JVM aggregates positions to words of 64 bits, so that the driver gets at most 24 bytes for each
word with a hit, however wide the rows are. (Spark's own `bitmap_construct_agg` makes pages of 4 KiB
and sorts all rows first, which takes twice as long where hits are dense.) A scan reads the rows of
a file in order, so that two tasks share no more than the word where a file is split: the driver
takes the words of each task as they are. If the words of all scanned files could take more than
`spark.delvec.write.hitMemory`, tasks make the vectors instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc
from pyspark.sql import functions

from delvec.spark.conf import bytes_setting
from delvec.spark.task_groups import collect_groups
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from delvec.delta.log.file_set import FileSet

__all__ = [
    "HIT_MEMORY",
    "NUMBER",
    "POSITION",
    "Hits",
    "bitmap_of",
    "find_rows",
    "fits_driver",
    "hit_words",
]

HIT_MEMORY: Final = "spark.delvec.write.hitMemory"
NUMBER: Final = "__delvec_number"
"""The column that holds the number of a row's file."""
POSITION: Final = "__delvec_position"
"""The column that holds a row's position in its file."""

_BYTES_OF_A_WORD: Final = 24
_WORDS_OF_A_PAGE: Final = 512


@dataclass(frozen=True)
class Hits:
    """The rows that a job found.

    Attributes:
        bitmaps: Their positions, by the number of their file.
        counts: How many satisfy each of the conditions that were asked for.
        repeated: Numbers of the files in which a row was found more than once.
    """

    bitmaps: Mapping[int, Bitmap]
    counts: Mapping[str, int]
    repeated: tuple[int, ...] = ()


def fits_driver(spark: SparkSession, files: FileSet) -> bool:
    """Whether the words of all rows of some files are within the driver's limit."""
    at_most = files.bitmap_bytes().sum() * _BYTES_OF_A_WORD / 8
    return bool(at_most <= bytes_setting(spark, HIT_MEMORY, "256m"))


def hit_words(rows: DataFrame, counted: Mapping[str, str]) -> DataFrame:
    """Return (number of the file, number of the word, its bits, rows that it stands for); lazy.

    Args:
        rows: With `NUMBER` and `POSITION`.
        counted: Conditions in SQL, by the name of a column that counts the rows that satisfy each.
    """
    places = rows.selectExpr(
        f"int({NUMBER}) AS {NUMBER}",
        f"int(shiftright({POSITION}, 6)) AS word",
        f"shiftleft(1L, int({POSITION} & 63)) AS bit",
        *(f"{sql} AS {name}" for name, sql in counted.items()),
    )
    return places.groupBy(NUMBER, "word").agg(
        # An alias of its own would be five calls into the JVM, and one more expression as well.
        functions.expr("bit_or(bit) AS bits"),
        functions.expr("count(1) AS rows"),
        *(functions.expr(f"count_if({name}) AS {name}") for name in counted),
    )


def bitmap_of(words: NDArray[np.int64], bits: NDArray[np.int64]) -> Bitmap:
    """Return the bitmap of some words of 64 bits, in any order; those given twice are united.

    >>> bitmap_of(np.array([0, 2, 0]), np.array([0b101, 1, 0b110])).to_numpy().tolist()
    [0, 1, 2, 128]
    """
    numbers, places = np.unique(words // _WORDS_OF_A_PAGE, return_inverse=True)
    pages = np.zeros((len(numbers), _WORDS_OF_A_PAGE), dtype="<i8")
    np.bitwise_or.at(pages, (places, words % _WORDS_OF_A_PAGE), bits)
    return Bitmap.from_pages(numbers + 1, pages.view(np.uint8).reshape(-1))


def find_rows(
    rows: DataFrame, counted: Mapping[str, str] | None = None, *, in_order: bool = True
) -> Hits:
    """Return the positions of all rows, by one job.

    Args:
        rows: See `hit_words`.
        counted: See `hit_words`.
        in_order: Whether they are in the tasks that have read them. After a shuffle every task may
            have rows of every word; if the plan of `rows` shows no shuffle that was, say so here.
    """
    words = hit_words(rows, counted or {})
    buffers = ["bit_or", *["count"] * (1 + len(counted or ()))]
    found = collect_groups(words, 2, buffers) if in_order else words.toArrow()
    counts = {name: pc.sum(found.column(name)).as_py() or 0 for name in counted or ()}
    if not found.num_rows:
        return Hits({}, counts)
    found = found.sort_by(NUMBER)
    numbers, words, bits, found_rows = (
        found.column(name).to_numpy() for name in (NUMBER, "word", "bits", "rows")
    )
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    bitmaps, repeated = {}, []
    for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
        number = int(numbers[start])
        bitmaps[number] = bitmap_of(words[start:stop].astype(np.int64), bits[start:stop])
        if bitmaps[number].cardinality != found_rows[start:stop].sum():
            repeated.append(number)
    return Hits(bitmaps, counts, tuple(repeated))
