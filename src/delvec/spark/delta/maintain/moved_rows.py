"""Where rows of rewritten files went, for deletes that others commit while these are rewritten.

A task wrote the live rows of its files in the order in which Spark read them. The same scan, asked
again for file and position only, numbers them in that order. Spark does not promise that it reads
in the same order twice, so the rows that were deleted and those at their new places are compared as
well: if they are not the same rows, nobody knows where they went.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions
from pyspark.sql.types import StructType, VariantType

from delvec.delta.log.commits import added_files
from delvec.delta.log.json_actions import JsonActions
from delvec.delta.write.commit_lines import encode_lines
from delvec.errors import DelvecError
from delvec.report.figures import visible
from delvec.spark import jvm
from delvec.spark.delta.scan.scan import scan
from delvec.spark.delta.write.data_files import ONE_FILE
from delvec.spark.delta.write.rewrite import placed_rows
from delvec.spark.delta.write.row_tracking import id_columns, with_ids
from delvec.spark.positions import NUMBER, POSITION, find_rows
from delvec.spark.row_sums import row_sums
from delvec.spark.types import table_schema
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from delvec.delta.log.file_set import FileEntry, FileSet
    from delvec.delta.log.snapshot import Snapshot

__all__ = ["MovedRows"]

_LOG: Final = logging.getLogger("delvec")
_PLACE: Final = "__delvec_place"


@dataclass(frozen=True)
class MovedRows:
    """The rows of some files that were written to one file, by one task.

    Attributes:
        spark: The session.
        snapshot: The version that they were read from.
        files: The files.
        added: The new file.
    """

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
            _LOG.warning("rows of %s could not be followed to a new file: %s", visible(path), error)
            return None

    def _compared(self, path: str, positions: Bitmap, schema: StructType) -> Bitmap | None:
        number = self.files.paths.to_pylist().index(path)
        places = self._places(number, positions)
        if places.cardinality != positions.cardinality:
            return None
        body = encode_lines([{"add": dict(self.added.add)}])
        root, metadata = self.snapshot.table, self.snapshot.metadata
        target = added_files(metadata, root, JsonActions(root, body))
        kinds = StructType([*schema.fields, *id_columns(metadata)])
        before, after = (
            row_sums(self._chosen(files, rows), kinds)
            for files, rows in ((self.files, {number: positions}), (target, {0: places}))
        )
        return places if before == after else None

    def _chosen(self, files: FileSet, rows: Mapping[int, Bitmap]) -> DataFrame:
        """Return some rows of files, with their row ids if these are tracked."""
        metadata = self.snapshot.metadata
        chosen = scan(
            self.spark,
            self.snapshot,
            None,
            files,
            added={NUMBER: "number", POSITION: "position"},
            vectors=rows,
            keep="selected",
            stored=id_columns(metadata),
        )
        return with_ids(self.spark, metadata, files, chosen, changed=False)

    def _places(self, number: int, positions: Bitmap) -> Bitmap:
        rows = placed_rows(self.spark, self.snapshot, self.files).select(NUMBER, POSITION)
        numbered = rows.coalesce(1).withColumn(_PLACE, functions.monotonically_increasing_id())
        wanted = self._wanted(positions)
        found = numbered.where(functions.col(NUMBER) == number).join(
            functions.broadcast(wanted), POSITION, "left_semi"
        )
        placed = found.selectExpr(f"0L AS {NUMBER}", f"{_PLACE} AS {POSITION}")
        return find_rows(jvm.in_copied_session(self.spark, placed, ONE_FILE)).bitmaps.get(
            0, Bitmap()
        )

    def _wanted(self, positions: Bitmap) -> DataFrame:
        table = pa.table({POSITION: pa.array(positions.to_numpy().astype("int64"))})
        return self.spark.createDataFrame(table)


def _has_variant(kind: DataType) -> bool:
    if isinstance(kind, VariantType):
        return True
    inner = [getattr(kind, name, None) for name in ("elementType", "keyType", "valueType")]
    inner += [field.dataType for field in getattr(kind, "fields", ())]
    return any(_has_variant(each) for each in inner if each is not None)
