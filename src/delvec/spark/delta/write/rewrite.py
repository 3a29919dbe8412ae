"""Live rows of data files with file, position and row ids, and their copies into new files.

With row tracking, ids of rows that move are materialised in columns of the new file: an id is the
value of its file's materialised column, else the file's base row id plus the row's position; the
row commit version likewise. Without row tracking there is no cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import LongType, StructField

from delvec.delta.alter.table_state import TableState
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.footer_statistics import row_counts
from delvec.delta.schema.metadata import Metadata
from delvec.delta.write.change import materialized_columns
from delvec.delta.write.transaction import Attempt
from delvec.identifiers import quote
from delvec.spark.delta.scan.scan import PLACE, scan
from delvec.spark.delta.scan.vectors import Keep
from delvec.spark.delta.write.data_files import WrittenFiles, write_rows
from delvec.spark.positions import NUMBER, POSITION
from delvec.vector import Bitmap

_BASE: Final = "__delvec_base_row_id"
_VERSION: Final = "__delvec_row_version"
_TARGET: Final = 128 << 20
_MOST_FILES: Final = 10_000
_WORTH_A_TASK: Final = 16 << 20
# One task that encodes a few megabytes alone would take a tenth of an UPDATE of 20 million rows.
_WORTH_TWO_TASKS: Final = 2 << 20


def read_rows_with_positions(
    spark: SparkSession,
    snapshot: Snapshot,
    files: FileSet,
    marks: Mapping[int, Bitmap] | None = None,
    keep: Keep = "live",
) -> DataFrame:
    """Return rows with `NUMBER` and `POSITION`, and the materialised row tracking columns."""
    ids = id_columns(snapshot.metadata)
    return scan(spark, snapshot, None, files, added=PLACE, vectors=marks, keep=keep, stored=ids)


def read_live_rows(
    spark: SparkSession,
    snapshot: Snapshot,
    files: FileSet,
    marks: Mapping[int, Bitmap] | None = None,
) -> DataFrame:
    """Return the live rows of files, with their row ids if these are tracked; lazy."""
    rows = read_rows_with_positions(spark, snapshot, files, marks)
    tracked = add_row_ids(spark, snapshot.metadata, files, rows, changed=False)
    return tracked.drop(NUMBER, POSITION)


def read_kept_rows(
    spark: SparkSession, snapshot: Snapshot, files: FileSet, gone: Mapping[int, Bitmap]
) -> DataFrame:
    """Return the live rows of files that are rewritten, with their row ids if these are tracked."""
    numbers = np.array(sorted(gone), dtype=np.int64)
    marks = {place: gone[int(number)] for place, number in enumerate(numbers)}
    return read_live_rows(spark, snapshot, files.select(numbers), marks)


def count_kept(snapshot: Snapshot, files: FileSet, gone: Mapping[int, Bitmap]) -> int:
    total = sum(row_counts(snapshot.storage, files, sorted(gone)))
    return total - sum(each.cardinality for each in gone.values())


def count_live(snapshot: Snapshot, numbers: NDArray[np.int64]) -> int:
    files = snapshot.files
    physical = sum(row_counts(snapshot.storage, files, numbers))
    return physical - int(files.deleted_rows[numbers].sum())


def store_rows(
    attempt: Attempt, state: TableState, rows: DataFrame, expected: int | None = None
) -> WrittenFiles:
    """Write rows to new files, which are deleted again if the operation fails."""
    spark, tight = attempt.spark, state.protocol.has_vectors
    files = None if expected is None else _file_count(spark, attempt.snapshot, expected)
    with attempt.phase("write"):
        written = write_rows(
            spark, attempt.storage, state.metadata, rows, tight_bounds=tight, files=files
        )
        attempt.uncommitted.add_folder(written.folder)
    return written


def id_names(metadata: Metadata) -> list[str]:
    """Return the names of the materialised columns; none without row tracking."""
    return list(materialized_columns(metadata) or ())


def stored_names(metadata: Metadata) -> list[str]:
    """Return all columns that files have, quoted."""
    return [quote(name) for name in (*metadata.schema.names, *id_names(metadata))]


def id_columns(metadata: Metadata) -> list[StructField]:
    """Return the materialised columns as a scan reads them."""
    return [StructField(name, LongType()) for name in id_names(metadata)]


def add_row_ids(
    spark: SparkSession, metadata: Metadata, files: FileSet, rows: DataFrame, *, changed: bool
) -> DataFrame:
    """Fill the materialised columns of rows that move to another file."""
    names = id_names(metadata)
    if not names:
        return rows
    adds = [file.add for file in files.entries()]
    table = pa.table(
        {
            f"{NUMBER}_of": pa.array(range(len(files)), pa.int64()),
            _BASE: pa.array([add.get("baseRowId") for add in adds], pa.int64()),
            _VERSION: pa.array([add.get("defaultRowCommitVersion") for add in adds], pa.int64()),
        }
    )
    bases = functions.broadcast(spark.createDataFrame(table))
    joined = rows.join(bases, rows[NUMBER] == bases[f"{NUMBER}_of"], "left")
    identity, version = (functions.col(quote(name)) for name in names)
    filled = joined.withColumns(
        {
            names[0]: functions.coalesce(identity, functions.col(_BASE) + functions.col(POSITION)),
            names[1]: functions.lit(None).cast("long")
            if changed
            else functions.coalesce(version, functions.col(_VERSION)),
        }
    )
    return filled.drop(f"{NUMBER}_of", _BASE, _VERSION)


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
