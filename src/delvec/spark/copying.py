"""Rows that stay when their file is rewritten, and the sizes of the files that they go to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from delvec.spark.find import NUMBER, POSITION
from delvec.spark.row_tracking import id_columns, with_ids
from delvec.spark.scan import scan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from delvec.delta.fileset import FileSet
    from delvec.delta.snapshot import Snapshot
    from delvec.vector import Bitmap

__all__ = ["file_count", "kept_rows"]

_TARGET: Final = 128 << 20
_WORTH_A_TASK: Final = 16 << 20


def kept_rows(
    spark: SparkSession, snapshot: Snapshot, files: FileSet, gone: Mapping[int, Bitmap]
) -> DataFrame:
    """Give the rows of some files that are left, with their ids where rows are tracked.

    Args:
        spark: The session.
        snapshot: The version.
        files: The files that were looked at.
        gone: All deleted rows of those that are meant, by their number.
    """
    numbers = np.array(sorted(gone), dtype=np.int64)
    chosen = files.select(numbers)
    marks = {place: gone[int(number)] for place, number in enumerate(numbers)}
    metadata = snapshot.metadata
    rows = scan(
        spark,
        snapshot,
        None,
        chosen,
        added={NUMBER: "number", POSITION: "position"},
        marks=marks,
        stored=id_columns(metadata),
    )
    tracked = with_ids(spark, metadata, chosen, rows, changed=False)
    return tracked.drop(NUMBER, POSITION)


def file_count(spark: SparkSession, snapshot: Snapshot, rows: int) -> int:
    """Tell how many files some rows make, by the bytes that the table's rows take so far."""
    files = snapshot.files
    known = int(files.row_counts.fill_null(0).to_numpy().sum())
    per_row = int(files.sizes.sum()) / known if known else 100.0
    expected = rows * per_row
    tasks = min(spark.sparkContext.defaultParallelism, int(expected // _WORTH_A_TASK))
    return max(1, tasks, -(-int(expected) // _TARGET))
