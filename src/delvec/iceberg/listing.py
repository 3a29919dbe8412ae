"""What a snapshot holds: its live files in bulk, as columns, and its rows as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from delvec.iceberg.failures import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delvec.iceberg.gateway import IcebergTable

__all__ = ["data_files", "delete_files", "rows_of"]

_FEW: Final = 500  # names that fit into a condition; more are joined
_DATA: Final = ("file_path", "record_count", "file_size_in_bytes")
_DELETES: Final = (
    "content",
    "file_path",
    "file_format",
    "referenced_data_file",
    "content_offset",
    "content_size_in_bytes",
    "record_count",
)


def data_files(table: IcebergTable, snapshot_id: int, paths: pa.Array | None = None) -> pa.Table:
    """List data files: path, physical rows, bytes.

    Args:
        table: Of which.
        snapshot_id: The snapshot, of any branch.
        paths: Only files of these names. Spark reads all manifests all the same, in the JVM; what
            comes to Python grows with what is found.
    """
    return _listed(table, "data_files", snapshot_id, _DATA, "file_path", paths)


def delete_files(
    table: IcebergTable, snapshot_id: int, data_paths: pa.Array | None = None
) -> pa.Table:
    """List delete files: what data file each is for, where its vector is, how many rows it marks.

    Args:
        table: Of which.
        snapshot_id: The snapshot, of any branch.
        data_paths: Only those that name one of these data files.
    """
    found = _listed(
        table, "delete_files", snapshot_id, _DELETES, "referenced_data_file", data_paths
    )
    lower = [name.lower() for name in found.column("file_format").to_pylist()]
    return found.set_column(2, "file_format", pa.array(lower, pa.string()))


def rows_of(table: IcebergTable, snapshot_id: int) -> DataFrame:
    """Read the rows of a snapshot, of any branch, with the schema that it was made with."""
    with explained(str(table.name)):
        return _as_of(table, str(table.name), snapshot_id)


def _as_of(table: IcebergTable, relation: str, snapshot_id: int) -> DataFrame:
    table.spark.catalog.refreshTable(str(table.name))
    return table.spark.sql(f"SELECT * FROM {relation} VERSION AS OF {snapshot_id:d}")  # noqa: S608


def _listed(
    table: IcebergTable,
    view: str,
    snapshot_id: int,
    columns: tuple[str, ...],
    key: str,
    wanted: pa.Array | None,
) -> pa.Table:
    with explained(str(table.name)):
        found = _as_of(table, f"{table.name}.{view}", snapshot_id).select(*columns)
        if wanted is not None:
            found = _restricted(found, key, wanted)
        return found.toArrow()


def _restricted(found: DataFrame, key: str, wanted: pa.Array) -> DataFrame:
    if len(wanted) <= _FEW:
        return found.where(F.col(key).isin(wanted.to_pylist()))
    names = found.sparkSession.createDataFrame(pa.table({key: wanted.cast(pa.string())}))
    return found.join(F.broadcast(names), key, "left_semi")
