"""Row tracking of rows that move to another file: ids materialised in columns of that file.

A row's id is the value of its file's materialised column, else the file's base row id plus the
row's position; the row commit version likewise. Without row tracking there is no cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.types import LongType, StructField

from delvec.delta.write.row_ids import materialized_columns
from delvec.identifiers import quote
from delvec.spark.positions import NUMBER, POSITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.schema.metadata import Metadata

__all__ = ["id_columns", "id_names", "with_ids"]

_BASE: Final = "__delvec_base_row_id"
_VERSION: Final = "__delvec_row_version"


def id_names(metadata: Metadata) -> list[str]:
    """Return the names of the materialised columns; none without row tracking."""
    return list(materialized_columns(metadata) or ())


def id_columns(metadata: Metadata) -> list[StructField]:
    """Return the materialised columns as a scan reads them."""
    return [StructField(name, LongType()) for name in id_names(metadata)]


def with_ids(
    spark: SparkSession, metadata: Metadata, files: FileSet, rows: DataFrame, *, changed: bool
) -> DataFrame:
    """Fill the materialised columns of rows that move to another file.

    Args:
        spark: The session.
        metadata: The table's.
        files: The files that the rows are from, by their number.
        rows: With `NUMBER`, `POSITION` and the columns of `id_columns`.
        changed: Whether the rows get new values: then their commit version is that of the commit.
    """
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
