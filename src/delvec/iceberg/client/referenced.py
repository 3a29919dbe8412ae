"""Which files a table's metadata refers to, in any of its snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from delvec.iceberg.client.catalog import iceberg_view
from delvec.iceberg.client.failures import explained
from delvec.spark import jvm

if TYPE_CHECKING:
    from delvec.iceberg.client.catalog import LoadedTable

__all__ = ["listed_paths", "referenced_names"]

# Metadata tables over all snapshots, and the column of paths of each.
_TABLES: Final = {"ALL_FILES": "file_path", "ALL_MANIFESTS": "path"}


def referenced_names(table: LoadedTable, names: pa.Array) -> pa.Array:
    """Return those of some file names that the table refers to in any snapshot, branch or tag.

    Names are compared without their folders: the same file may be spelt `s3://` or `s3a://`,
    `/lake` or `file:/lake`, and a live file must never seem unreferenced. Names of Iceberg's and
    delvec's files contain random ids, so hardly any other file has the same.

    Spark reads the manifest list of each snapshot and each manifest once, in its tasks; memory in
    Python grows with the names that are asked for.

    Args:
        table: The table; it need not be committed, see `commit.without`.
        names: File names without folders.
    """
    if not len(names):
        return names
    spark = table.spark
    metadata = pa.array(table.metadata.file_names, pa.string())
    with explained(str(table.name)):
        wanted = spark.createDataFrame(pa.table({"name": names}))
        files, manifests = (
            _metadata_table(table, kind).select(F.substring_index(path, "/", -1).alias("name"))
            for kind, path in _TABLES.items()
        )
        named = files.union(manifests)
        content = named.join(wanted, "name", "left_semi").distinct().toArrow()["name"]
    held = pa.concat_arrays([metadata, *(each.cast(pa.string()) for each in content.chunks)])
    return names.filter(pc.is_in(names, value_set=held))


def listed_paths(table: LoadedTable, kind: str) -> list[str]:
    """Return the paths of ALL_FILES or ALL_MANIFESTS that any snapshot names, each once."""
    named = _metadata_table(table, kind).select(F.col(_TABLES[kind]).alias("path")).distinct()
    return sorted(named.toArrow()["path"].to_pylist())


def _metadata_table(table: LoadedTable, kind: str) -> DataFrame:
    """Return a metadata table of exactly the metadata that was loaded, not of what came later."""
    spark, view = table.spark, iceberg_view(table.spark)
    operations = view.StaticTableOperations(table.current, table.handle.io())
    pinned = view.BaseTable(operations, str(table.name))
    session: Any = jvm.session_of(spark)
    which = getattr(view.MetadataTableType, kind)
    return DataFrame(view.spark.SparkTableUtil.loadMetadataTable(session, pinned, which), spark)
