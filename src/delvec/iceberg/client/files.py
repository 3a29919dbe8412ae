"""What a snapshot holds: its live files in bulk, as columns, and its rows as a DataFrame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from delvec.iceberg.client.failures import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delvec.iceberg.client.catalog import IcebergTable

__all__ = ["LiveFiles", "live_files", "rows_of"]

_FEW: Final = 500  # names that fit into a condition; more are joined
_COLUMNS: Final = (
    "content",
    "file_path",
    "file_format",
    "record_count",
    "file_size_in_bytes",
    "referenced_data_file",
    "content_offset",
    "content_size_in_bytes",
)
_DATA: Final = 0  # the content of a data file


@dataclass(frozen=True, eq=False)
class LiveFiles:
    """The files of a snapshot, as columns.

    Attributes:
        data: Path, physical rows (`record_count`) and bytes of each data file.
        deletes: What data file each delete file is for, where its vector is, how many rows it
            marks (`record_count`).
    """

    data: pa.Table
    deletes: pa.Table


def live_files(table: IcebergTable, snapshot_id: int, paths: pa.Array | None = None) -> LiveFiles:
    """List data files and delete files, by one query of Spark's.

    Args:
        table: Of which.
        snapshot_id: The snapshot, of any branch.
        paths: Only data files of these names, and the delete files that name one of them. Spark
            reads all manifests all the same, in the JVM; what comes to Python grows with what is
            found.
    """
    with explained(str(table.name)):
        found = _as_of(table, f"{table.name}.files", snapshot_id).select(*_COLUMNS)
        if paths is not None:
            found = _restricted(found, paths)
        listed = found.toArrow()
    is_data = pc.equal(listed.column("content"), _DATA)
    return LiveFiles(listed.filter(is_data), listed.filter(pc.invert(is_data)))


def rows_of(table: IcebergTable, snapshot_id: int) -> DataFrame:
    """Read the rows of a snapshot, of any branch, with the schema that it was made with."""
    with explained(str(table.name)):
        return _as_of(table, str(table.name), snapshot_id)


def _as_of(table: IcebergTable, relation: str, snapshot_id: int) -> DataFrame:
    table.spark.catalog.refreshTable(str(table.name))
    return table.spark.sql(f"SELECT * FROM {relation} VERSION AS OF {snapshot_id:d}")  # noqa: S608


def _restricted(found: DataFrame, wanted: pa.Array) -> DataFrame:
    # Of a data file this is its own name; a delete file for several names none.
    named = F.when(F.col("content") == _DATA, F.col("file_path")).otherwise(
        F.col("referenced_data_file")
    )
    if len(wanted) <= _FEW:
        return found.where(named.isin(wanted.to_pylist()))
    names = found.sparkSession.createDataFrame(pa.table({"name": wanted.cast(pa.string())}))
    return found.join(F.broadcast(names), named == F.col("name"), "left_semi")
