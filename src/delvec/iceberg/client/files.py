"""The live files of a snapshot as columns, and its rows as a DataFrame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from delvec.iceberg.client.failures import explained
from delvec.spark import sql_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

    from delvec.iceberg.client.catalog import LoadedTable

__all__ = ["SnapshotFiles", "snapshot_files", "snapshot_rows", "snapshot_table"]

_MOST_IN_CONDITION: Final = 500  # paths in one IN condition; more are joined
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
_DATA: Final = 0  # the `content` of a data file


@dataclass(frozen=True, eq=False)
class SnapshotFiles:
    """The live files of a snapshot, in columns.

    Attributes:
        data: Path, physical row count (`record_count`) and size of each data file.
        deletes: Each delete file: its data file, where its vector is, and how many rows it deletes
            (`record_count`).
    """

    data: pa.Table
    deletes: pa.Table


def snapshot_files(
    table: LoadedTable,
    snapshot_id: int,
    paths: pa.Array | None = None,
    compared_by: Callable[[Column], Column] | None = None,
) -> SnapshotFiles:
    """Return the data files and delete files of a snapshot, by one Spark query.

    Args:
        table: The table.
        snapshot_id: A snapshot of any branch.
        paths: Return only data files of these paths, and delete files that reference one of them.
            Spark reads all manifests in any case, in the JVM; memory in Python grows with what is
            found.
        compared_by: What `paths` are of the paths of data files; these themselves if not given.
    """
    with explained(str(table.name)):
        found = _as_of(table, f"{table.name}.files", snapshot_id).select(*_COLUMNS)
        if paths is not None:
            found = _restricted(found, paths, compared_by)
        files = found.toArrow()
    is_data = pc.equal(files.column("content"), _DATA)
    return SnapshotFiles(files.filter(is_data), files.filter(pc.invert(is_data)))


def snapshot_rows(table: LoadedTable, snapshot_id: int) -> DataFrame:
    """Return the rows of a snapshot of any branch, in the schema of that snapshot."""
    with explained(str(table.name)):
        return _as_of(table, str(table.name), snapshot_id)


def snapshot_table(table: LoadedTable, kind: str, snapshot_id: int) -> DataFrame:
    """Return a metadata table of a snapshot, such as `files` or `entries`; lazy."""
    with explained(str(table.name)):
        return _as_of(table, f"{table.name}.{kind}", snapshot_id)


def _as_of(table: LoadedTable, relation: str, snapshot_id: int) -> DataFrame:
    table.spark.catalog.refreshTable(str(table.name))
    query = f"SELECT * FROM {relation} VERSION AS OF {snapshot_id:d}"  # noqa: S608
    return sql_text.run(table.spark, query)


def _restricted(
    found: DataFrame, wanted: pa.Array, compared_by: Callable[[Column], Column] | None
) -> DataFrame:
    # The data file that an entry is about; null for a delete file of several data files.
    data_path = F.when(F.col("content") == _DATA, F.col("file_path")).otherwise(
        F.col("referenced_data_file")
    )
    if compared_by is not None:
        data_path = compared_by(data_path)
    if len(wanted) <= _MOST_IN_CONDITION:
        return found.where(data_path.isin(wanted.to_pylist()))
    names = found.sparkSession.createDataFrame(pa.table({"name": wanted.cast(pa.string())}))
    return found.join(F.broadcast(names), data_path == F.col("name"), "left_semi")
