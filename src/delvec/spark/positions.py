"""The positions of all rows of a DataFrame, as one bitmap for each file.

The JVM aggregates positions to words of 64 bits, so that the driver gets at most 24 bytes for each
word with a hit, however wide the rows are. (Spark's own `bitmap_construct_agg` makes pages of 4 KiB
and sorts all rows first, which takes twice as long where hits are dense.) A scan reads the rows of
a file in order, so that two tasks share no more than the word where a file is split: the driver
takes the groups of each task as they are, without the shuffle and the second aggregate that are
most of what an aggregate costs. If the words of all scanned files could take more than
`spark.delvec.write.hitMemory`, tasks make the vectors instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession, functions

from delvec.delta.log.file_set import FileSet
from delvec.spark import jvm
from delvec.spark.engine import bytes_setting
from delvec.vector import Bitmap

HIT_MEMORY: Final = "spark.delvec.write.hitMemory"
NUMBER: Final = "__delvec_number"
"""The column that holds the number of a row's file."""
POSITION: Final = "__delvec_position"
"""The column that holds a row's position in its file."""
_BYTES_OF_A_WORD: Final = 24
_WORDS_OF_A_PAGE: Final = 512


@dataclass(frozen=True)
class Hits:
    """The positions of the rows that a job found, by the number of their file.

    So many satisfy each of the conditions that were asked for; a row of the repeated files was
    found more than once.
    """

    bitmaps: Mapping[int, Bitmap]
    counts: Mapping[str, int]
    repeated: tuple[int, ...] = ()


def find_rows(
    rows: DataFrame, counted: Mapping[str, str] | None = None, *, in_order: bool = True
) -> Hits:
    """Return the positions of all rows, by one job."""
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


def fits_driver(spark: SparkSession, files: FileSet) -> bool:
    """Whether the words of all rows of some files are within the driver's limit."""
    at_most = files.bitmap_bytes().sum() * _BYTES_OF_A_WORD / 8
    return bool(at_most <= bytes_setting(spark, HIT_MEMORY, "256m"))


def hit_words(rows: DataFrame, counted: Mapping[str, str]) -> DataFrame:
    """Return (number of the file, number of the word, its bits, rows that it stands for); lazy."""
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


def collect_groups(groups: DataFrame, keys: int, buffers: Sequence[str]) -> pa.Table:
    """Collect an aggregate, whose keys may come more than once: at most once from each task.

    If the plan has a shuffle of its own, which leaves the rows of a key in many tasks, or is not of
    the form that is known, Spark completes the aggregate.
    """
    # An adaptive plan is not known before it runs.
    spark, fixed = groups.sparkSession, {"spark.sql.adaptive.enabled": "false"}
    planned: Any = jvm.in_copied_session(spark, groups, fixed)._jdf  # noqa: SLF001
    partial = _below_shuffle(planned.queryExecution().executedPlan())
    if partial is None or _has_shuffle(partial):
        return groups.toArrow()
    schema = partial.schema()
    if list(schema.fieldNames())[keys:] != list(buffers):
        return groups.toArrow()
    rows = jvm.session_of(spark).internalCreateDataFrame(partial.execute(), schema, False)
    return DataFrame(rows, spark).toArrow().rename_columns(groups.columns)


def shuffles(rows: DataFrame) -> bool:
    """Whether the plan of some rows has a shuffle; plans them, and runs no job."""
    planned: Any = rows._jdf  # noqa: SLF001
    plan = planned.queryExecution().executedPlan()
    return _has_shuffle(plan.initialPlan() if plan.nodeName() == "AdaptiveSparkPlan" else plan)


def _below_shuffle(plan: Any) -> Any | None:  # noqa: ANN401
    """Return what the topmost shuffle of a plan reads; None if there is none before it branches."""
    while plan.nodeName() != "Exchange":
        children = list(jvm.items(plan.children()))
        if len(children) != 1:
            return None
        [plan] = children
    return plan.child()


def _has_shuffle(plan: Any) -> bool:  # noqa: ANN401
    return any(node.nodeName() == "Exchange" for node in _nodes(plan))


def _nodes(plan: Any) -> Iterator[Any]:  # noqa: ANN401
    yield plan
    for child in jvm.items(plan.children()):
        yield from _nodes(child)
