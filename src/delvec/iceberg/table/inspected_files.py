"""The files of a snapshot in columns, for the figures of an Iceberg table.

One row of Arrow columns for each file; no Python object is made for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from delvec.documents import whole_number
from delvec.iceberg.client.failures import explained
from delvec.iceberg.table.files_listing import list_files
from delvec.inspection.columns import FileColumns
from delvec.inspection.figures import Rewritten, SmallFiles

if TYPE_CHECKING:
    from pyspark.sql import Column

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata

__all__ = [
    "file_columns",
    "partition_keys",
    "property_number",
    "read_files",
    "rewritten",
    "small_files",
]

_TARGET: Final = ("write.target-file-size-bytes", 512 << 20)
_SMALL: Final = 0.75  # of the target size; the default of Iceberg's rewrite
_LEAST_TOGETHER: Final = 5  # files of a partition; the default of Iceberg's rewrite


def read_files(table: LoadedTable, snapshot: IcebergSnapshot | None) -> pa.Table:
    """Return the files of the snapshot; the values of partitions are one string each."""
    found = list_files(table, None if snapshot is None else snapshot.id)
    with explained(str(table.name)):
        return found.select(
            "content",
            "path",
            "rows",
            "bytes",
            "sequence_number",
            "equality_columns",
            "referenced_data_file",
            F.concat_ws(", ", F.transform(F.map_entries("partition"), _pair)).alias("partition"),
        ).toArrow()


def _pair(entry: Column) -> Column:
    """Return a field of a partition with its value; see `partition_word`."""
    value = entry["value"]
    alike = F.lower(value).isin("null", "")
    quoted = F.when(alike, F.concat(F.lit("'"), value, F.lit("'"))).otherwise(value)
    return F.concat(entry["key"], F.lit("="), F.coalesce(quoted, F.lit("NULL")))


def file_columns(data: pa.Table, deletes: pa.Table) -> FileColumns:
    """Return the data files, with the rows that deletes of each file alone delete.

    Args:
        data: The data files.
        deletes: Vectors, and position delete files; those of several data files say nothing here.
    """
    paths = _one(data, "path")
    deleted = np.zeros(len(paths), dtype=np.int64)
    places = pc.index_in(_one(deletes, "referenced_data_file"), paths, skip_nulls=True)
    known = places.is_valid()
    counts = _one(deletes, "rows").filter(known).to_numpy()
    np.add.at(deleted, places.drop_null().to_numpy(), counts)
    return FileColumns(paths, _one(data, "rows"), deleted, _one(data, "bytes").to_numpy())


def _one(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def partition_keys(data: pa.Table) -> dict[str, Any]:
    """Return the partition of each file, in words; nothing if there are no partitions."""
    labels = _one(data, "partition")
    if not len(labels) or not pc.any(pc.not_equal(labels, "")).as_py():
        return {}
    return {"": labels}


def small_files(metadata: TableMetadata, data: pa.Table, columns: FileColumns) -> SmallFiles:
    """Return what Iceberg's rewrite would put together, by its defaults."""
    target = property_number(metadata, *_TARGET)
    below = int(_SMALL * target)
    small = columns.bytes < below
    chosen = pa.table({"partition": data.column("partition"), "bytes": columns.bytes}).filter(small)
    groups = chosen.group_by("partition").aggregate([("bytes", "sum"), ("bytes", "count")])
    sizes, counts = (groups.column(f"bytes_{name}").to_numpy() for name in ("sum", "count"))
    together = counts >= _LEAST_TOGETHER
    after = np.maximum(1, -(-sizes[together] // target))
    return SmallFiles(int(small.sum()), below, int(counts[together].sum()), int(after.sum()))


def rewritten(columns: FileColumns) -> Rewritten:
    """Return what a rewrite of all files with known deletes would replace and write."""
    chosen = columns.deleted > 0
    rows, sizes = columns.rows.to_numpy()[chosen], columns.bytes[chosen]
    deleted = np.minimum(columns.deleted[chosen], rows)
    share = np.divide(rows - deleted, rows, out=np.zeros(len(rows)), where=rows > 0)
    return Rewritten(len(rows), int(sizes.sum()), int((sizes * share).sum()))


def property_number(metadata: TableMetadata, key: str, default: int) -> int:
    """Return a property that is a number above 0; the default if it is none."""
    return whole_number(metadata.properties.get(key)) or default
