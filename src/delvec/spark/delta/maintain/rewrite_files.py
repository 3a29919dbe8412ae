"""Live rows of data files, written to new ones: one task for each new file, no shuffle.

Jobs have some dozens of tasks each. The driver keeps the entries of all files that are rewritten
until they are committed, and during a job the vectors of its files.

If others delete rows meanwhile, the same scan, asked again for file and position only, numbers the
rows in the order in which the task wrote them. Spark does not promise to read in the same order
twice, so deleted rows are compared with those at their new places: if they differ, nobody knows
where they went.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import DataType, StructType, VariantType

from delvec.delta.log.actions import JsonActions
from delvec.delta.log.file_set import FileEntry, FileSet
from delvec.delta.log.replay import read_added_files
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.footer_statistics import row_counts
from delvec.delta.schema.partition_values import shared_text
from delvec.delta.write.change import Rewrite
from delvec.delta.write.commit_actions import encode_lines
from delvec.delta.write.transaction import Attempt
from delvec.errors import DelvecError, EngineError
from delvec.report.format import escape_controls
from delvec.report.hints import call, format_hint
from delvec.spark import jvm
from delvec.spark.delta.write import rewrite
from delvec.spark.delta.write.data_files import ONE_FILE, write_each
from delvec.spark.expressions import row_sums
from delvec.spark.positions import NUMBER, POSITION, find_rows
from delvec.spark.types import table_schema
from delvec.vector import Bitmap

_LOG: Final = logging.getLogger("delvec")
_PLACE: Final = "__delvec_place"
_FILES_OF_A_JOB: Final = 32


def rewrite_files(attempt: Attempt, bins: Sequence[NDArray[np.int64]]) -> tuple[Rewrite, ...]:
    """Write the live rows of each group of files to one new file."""
    groups = [attempt.snapshot.files.select(each) for each in bins]
    with attempt.phase("plan"):
        # Files without live rows by the log are read as well: some writers count wrong.
        rows = [live_count(attempt, files) for files in groups]
    step = max(_FILES_OF_A_JOB, 4 * attempt.spark.sparkContext.defaultParallelism)
    rewrites: list[Rewrite] = []
    for start in range(0, len(groups), step):
        with attempt.phase("write"):
            end = start + step
            rewrites += _written(attempt, groups[start:end], rows[start:end])
    return tuple(rewrites)


def live_count(attempt: Attempt, files: FileSet) -> int:
    """Return the number of live rows, by the log, or by footers where it has none."""
    _ = files.live_rows
    counts = row_counts(attempt.storage, files, range(len(files)))
    return sum(counts) - sum(map(int, files.deleted_rows))


@dataclass(frozen=True)
class MovedRows:
    """The rows of some files of a version that one task wrote to one new file."""

    spark: SparkSession
    snapshot: Snapshot
    files: FileSet
    added: FileEntry

    def moved(self, path: str, positions: Bitmap) -> Bitmap | None:
        """Return the positions of rows in the new file; None if they cannot be told for sure."""
        if not positions.cardinality:
            return Bitmap()
        schema = table_schema(self.snapshot.metadata.schema.fields)
        if _has_variant(schema):  # cannot be compared
            return None
        try:
            return self._compared(path, positions, schema)
        except (DelvecError, PySparkException, Py4JError) as error:
            # Then the old files stay as they are; what is rewritten beside them is committed.
            _LOG.warning(
                "rows of %s could not be followed to a new file: %s", escape_controls(path), error
            )
            return None

    def _compared(self, path: str, positions: Bitmap, schema: StructType) -> Bitmap | None:
        number = self.files.paths.to_pylist().index(path)
        places = self._places(number, positions)
        if places.cardinality != positions.cardinality:
            return None
        body = encode_lines([{"add": dict(self.added.add)}])
        root, metadata = self.snapshot.table, self.snapshot.metadata
        target = read_added_files(metadata, root, JsonActions(root, body))
        kinds = StructType([*schema.fields, *rewrite.id_columns(metadata)])
        before, after = (
            row_sums(self._chosen(files, rows), kinds)
            for files, rows in ((self.files, {number: positions}), (target, {0: places}))
        )
        return places if before == after else None

    def _chosen(self, files: FileSet, rows: Mapping[int, Bitmap]) -> DataFrame:
        spark, snapshot = self.spark, self.snapshot
        chosen = rewrite.read_rows_with_positions(spark, snapshot, files, rows, "selected")
        return rewrite.add_row_ids(spark, snapshot.metadata, files, chosen, changed=False)

    def _places(self, number: int, positions: Bitmap) -> Bitmap:
        rows = rewrite.read_rows_with_positions(self.spark, self.snapshot, self.files)
        rows = rows.select(NUMBER, POSITION).coalesce(1)
        numbered = rows.withColumn(_PLACE, functions.monotonically_increasing_id())
        table = pa.table({POSITION: pa.array(positions.to_numpy().astype("int64"))})
        wanted = functions.broadcast(self.spark.createDataFrame(table))
        found = numbered.where(functions.col(NUMBER) == number).join(wanted, POSITION, "left_semi")
        placed = found.selectExpr(f"0L AS {NUMBER}", f"{_PLACE} AS {POSITION}")
        placed = jvm.in_copied_session(self.spark, placed, ONE_FILE)
        return find_rows(placed).bitmaps.get(0, Bitmap())


def _has_variant(kind: DataType) -> bool:
    if isinstance(kind, VariantType):
        return True
    inner = [getattr(kind, name, None) for name in ("elementType", "keyType", "valueType")]
    inner += [field.dataType for field in getattr(kind, "fields", ())]
    return any(_has_variant(each) for each in inner if each is not None)


def _partition_values(files: FileSet) -> dict[str, str | None]:
    """Return the partition values of files of one partition, which may spell them differently."""
    return {
        field.physical_name: shared_text(
            files.partition_strings(field.physical_name).to_pylist(), field.type
        )
        for field in files.metadata.partition_fields
    }


def _written(attempt: Attempt, groups: Sequence[FileSet], rows: Sequence[int]) -> list[Rewrite]:
    spark, snapshot = attempt.spark, attempt.snapshot
    tight = snapshot.protocol.has_vectors
    parts = [rewrite.read_live_rows(spark, snapshot, files) for files in groups]
    values = [_partition_values(files) for files in groups]
    folder, written = write_each(
        spark, attempt.storage, snapshot.metadata, parts, values, tight_bounds=tight
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
                hint=format_hint(
                    "nothing was changed; does {} find a wrong numRecords, and repair it?",
                    call("check"),
                ),
            )
        added = None if made is None else made[0]
        places = None if added is None else MovedRows(spark, snapshot, files, added)
        rewrites.append(Rewrite(tuple(files.entries()), added, found, places))
    return rewrites
