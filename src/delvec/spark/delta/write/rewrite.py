"""Live rows of data files with file and position, and their copies into new files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from delvec.delta.parquet.row_counts import row_counts
from delvec.spark.delta.scan.scan import scan
from delvec.spark.delta.write.data_files import write_rows
from delvec.spark.delta.write.row_tracking import id_columns, with_ids
from delvec.spark.positions import NUMBER, POSITION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from delvec.delta.alter.table_state import TableState
    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.write.transaction import Attempt
    from delvec.spark.delta.write.data_files import WrittenFiles
    from delvec.vector import Bitmap

__all__ = ["count_kept", "kept_rows", "placed_rows", "store_rows"]

_TARGET: Final = 128 << 20
_MOST_FILES: Final = 10_000
_WORTH_A_TASK: Final = 16 << 20
# One task that encodes a few megabytes alone would take a tenth of an UPDATE of 20 million rows.
_WORTH_TWO_TASKS: Final = 2 << 20


def placed_rows(
    spark: SparkSession,
    snapshot: Snapshot,
    files: FileSet,
    marks: Mapping[int, Bitmap] | None = None,
) -> DataFrame:
    """Return live rows with `NUMBER` and `POSITION`, and the materialised row tracking columns."""
    return scan(
        spark,
        snapshot,
        None,
        files,
        added={NUMBER: "number", POSITION: "position"},
        vectors=marks,
        stored=id_columns(snapshot.metadata),
    )


def kept_rows(
    spark: SparkSession, snapshot: Snapshot, files: FileSet, gone: Mapping[int, Bitmap]
) -> DataFrame:
    """Return the live rows of files that are rewritten, with their row ids if these are tracked.

    Args:
        spark: The session.
        snapshot: The version.
        files: The files that were scanned.
        gone: All deleted rows of the files to rewrite, by the number of the file.
    """
    numbers = np.array(sorted(gone), dtype=np.int64)
    chosen = files.select(numbers)
    marks = {place: gone[int(number)] for place, number in enumerate(numbers)}
    rows = placed_rows(spark, snapshot, chosen, marks)
    tracked = with_ids(spark, snapshot.metadata, chosen, rows, changed=False)
    return tracked.drop(NUMBER, POSITION)


def count_kept(snapshot: Snapshot, files: FileSet, gone: Mapping[int, Bitmap]) -> int:
    """Count the rows that `kept_rows` returns."""
    total = sum(row_counts(snapshot.storage, files, sorted(gone)))
    return total - sum(each.cardinality for each in gone.values())


def store_rows(
    attempt: Attempt, state: TableState, rows: DataFrame, expected: int | None = None
) -> WrittenFiles:
    """Write rows to new files, which are deleted again if the operation fails.

    Args:
        attempt: The operation.
        state: The table after the operation.
        rows: See `write_rows`.
        expected: About how many rows there are: few go to few files. None: one file per task.
    """
    files = None if expected is None else _file_count(attempt.spark, attempt.snapshot, expected)
    with attempt.phase("write"):
        written = write_rows(
            attempt.spark,
            attempt.storage,
            state.metadata,
            rows,
            tight_bounds=state.protocol.has_vectors,
            files=files,
        )
        attempt.uncommitted.add_folder(written.folder)
    return written


def _file_count(spark: SparkSession, snapshot: Snapshot, rows: int) -> int:
    """Estimate the number of files for some rows by the bytes per row of the table so far."""
    files = snapshot.files
    known = int(files.row_counts.fill_null(0).to_numpy().sum())
    per_row = int(files.sizes.sum()) / known if known else 100.0
    expected = rows * per_row
    worth = max(int(expected // _WORTH_A_TASK), 2 if expected >= _WORTH_TWO_TASKS else 1)
    tasks = min(spark.sparkContext.defaultParallelism, worth)
    # The bytes per row are what the log claims: a file has a row at least.
    return max(tasks, min(-(-int(expected) // _TARGET), rows, _MOST_FILES))
