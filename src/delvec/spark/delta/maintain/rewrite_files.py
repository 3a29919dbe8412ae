"""Live rows of data files, written to new ones: one task for each new file, no shuffle.

Jobs have some dozens of tasks each. The driver keeps the entries of all files that are rewritten
until they are committed, and during a job the vectors of its files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delvec.delta.alter.table_state import TableState
from delvec.delta.parquet.row_counts import row_counts
from delvec.delta.write.change import Rewrite
from delvec.errors import EngineError
from delvec.report.wordings import call, worded
from delvec.spark.delta.maintain.moved_rows import MovedRows
from delvec.spark.delta.write.data_files import write_each
from delvec.spark.delta.write.rewrite import placed_rows
from delvec.spark.delta.write.row_tracking import with_ids
from delvec.spark.positions import NUMBER, POSITION

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.write.transaction import Attempt

__all__ = ["live_counts", "live_rows", "rewrite_files"]

_FILES_OF_A_JOB: Final = 32


def rewrite_files(attempt: Attempt, bins: Sequence[NDArray[np.int64]]) -> tuple[Rewrite, ...]:
    """Write the live rows of each group of files to one new file.

    New files are deleted again if the operation fails.

    Args:
        attempt: The operation.
        bins: The numbers of files that become one; all of a group are of one partition.

    Raises:
        EngineError: A file has not got as many rows as those that it replaces.
    """
    groups = [attempt.snapshot.files.select(each) for each in bins]
    with attempt.phase("plan"):
        # Files without live rows by the log are read as well: some writers count wrong.
        rows = [sum(live_counts(attempt, files)) for files in groups]
    step = max(_FILES_OF_A_JOB, 4 * attempt.spark.sparkContext.defaultParallelism)
    rewrites: list[Rewrite] = []
    for start in range(0, len(groups), step):
        with attempt.phase("write"):
            end = start + step
            rewrites += _written(attempt, groups[start:end], rows[start:end])
    return tuple(rewrites)


def live_rows(attempt: Attempt, files: FileSet) -> DataFrame:
    """Return the live rows of files, with their row ids if these are tracked; lazy."""
    spark, snapshot = attempt.spark, attempt.snapshot
    placed = placed_rows(spark, snapshot, files)
    return with_ids(spark, snapshot.metadata, files, placed, changed=False).drop(NUMBER, POSITION)


def live_counts(attempt: Attempt, files: FileSet) -> list[int]:
    """Return the number of live rows of each file, by the log, or by footers where it has none.

    Raises:
        FormatError: A vector marks more rows than its file has.
    """
    _ = files.live_rows
    counts = row_counts(attempt.storage, files, range(len(files)))
    return [rows - int(gone) for rows, gone in zip(counts, files.deleted_rows, strict=True)]


def _written(attempt: Attempt, groups: Sequence[FileSet], rows: Sequence[int]) -> list[Rewrite]:
    spark, snapshot = attempt.spark, attempt.snapshot
    state = TableState.of(snapshot)
    parts = [live_rows(attempt, files) for files in groups]
    values = [files.data_files([0])[0].partition_values for files in groups]
    folder, written = write_each(
        spark,
        attempt.storage,
        state.metadata,
        parts,
        values,
        tight_bounds=state.protocol.has_vectors,
    )
    attempt.uncommitted.add_folder(folder)
    # One by one too: those that are given up are deleted although the others are committed.
    attempt.uncommitted.add(*(each[0].path for each in written if each is not None))
    rewrites = []
    for files, expected, made in zip(groups, rows, written, strict=True):
        found = 0 if made is None else made[1]
        if found != expected:
            raise EngineError(
                f"Spark wrote {found:,} rows in place of the {expected:,} live rows of"
                f" {files.paths[0].as_py()} and {len(files) - 1} more files of {snapshot.table}",
                hint=worded(
                    "nothing was changed; does {} find a wrong numRecords, and repair it?",
                    call("check"),
                ),
            )
        entries = tuple(files.entries())
        if made is None:
            rewrites.append(Rewrite(entries, None, 0))
        else:
            places = MovedRows(spark, snapshot, files, made[0])
            rewrites.append(Rewrite(entries, made[0], expected, places))
    return rewrites
