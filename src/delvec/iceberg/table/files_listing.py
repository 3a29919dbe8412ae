"""The live files of a snapshot as a DataFrame: data files and every form of deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import MapType, StringType, StructType

from delvec.iceberg.client.failures import explained
from delvec.iceberg.deletes.read_schema import key_paths
from delvec.spark import sql_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import TableMetadata

__all__ = ["CONTENTS", "list_files"]

CONTENTS: Final = (
    "data",
    "deletion-vector",
    "position-deletes",
    "equality-deletes",
    "equality-delete-vector",
)
"""The values of the column `content`."""

_DATA: Final = 0
_POSITIONS: Final = 1
_FILE_PATH: Final = 2147483546  # the field id of the column of position delete files
_DELETED: Final = 2  # the status of an entry of a file that its snapshot removed
_VECTOR: Final = "-edv.puffin"
_PARTITION: Final = MapType(StringType(), StringType())


def list_files(table: LoadedTable, snapshot_id: int | None) -> DataFrame:
    """Return the files of a snapshot; Spark reads its manifests when the DataFrame is evaluated.

    Args:
        table: The table.
        snapshot_id: The snapshot; None for a table without any, which has no files.
    """
    spark, name = table.spark, table.name
    with explained(str(name)):
        spark.catalog.refreshTable(str(name))
        at = "" if snapshot_id is None else f" VERSION AS OF {snapshot_id:d}"
        entries = sql_text.run(spark, f"SELECT * FROM {name}.entries{at}")  # noqa: S608
        if snapshot_id is None:
            entries = entries.where("false")
        file = F.col("data_file")
        return entries.where(F.col("status") != _DELETED).select(
            _content().alias("content"),
            file.file_path.alias("path"),
            F.lower(file.file_format).alias("format"),
            file.spec_id.alias("spec_id"),
            _partition(entries.schema, table.metadata).alias("partition"),
            file.record_count.alias("rows"),
            # A Puffin file may hold the vectors of many data files.
            F.coalesce(file.content_size_in_bytes, file.file_size_in_bytes).alias("bytes"),
            F.col("sequence_number"),
            _equality_columns(table.metadata).alias("equality_columns"),
            _referenced().alias("referenced_data_file"),
        )


def _content() -> Column:
    file = F.col("data_file")
    is_puffin = F.upper(file.file_format) == "PUFFIN"
    data, vector, positions, equality, equality_vector = CONTENTS
    return (
        F.when(file.content == _DATA, data)
        .when((file.content == _POSITIONS) & is_puffin, vector)
        .when(file.content == _POSITIONS, positions)
        .when(file.file_path.endswith(_VECTOR), equality_vector)
        .otherwise(equality)
    )


def _referenced() -> Column:
    """Return the data file that a delete is of alone, if there is one.

    Position delete files of format 2 need not name it: as Iceberg's readers do, it is taken from
    the bounds of their column `file_path` where both are the same.
    """
    file = F.col("data_file")
    lowest, highest = (bounds[_FILE_PATH] for bounds in (file.lower_bounds, file.upper_bounds))
    is_one = (file.content == _POSITIONS) & (lowest == highest)
    return F.coalesce(file.referenced_data_file, F.when(is_one, lowest.cast("string")))


def _partition(entries: StructType, metadata: TableMetadata) -> Column:
    """Return the partition values by name, as strings; only those that a file's own spec has."""
    known = _children(_children(entries, "data_file"), "partition").names
    found = F.create_map().cast(_PARTITION)
    for spec_id, spec in metadata.specs.items():
        names = [each["name"] for each in spec["fields"] if each["name"] in known]
        pairs = [
            each
            for name in names
            for each in (F.lit(name), F.col("data_file.partition")[name].cast("string"))
        ]
        if pairs:
            found = F.when(F.col("data_file.spec_id") == spec_id, F.create_map(*pairs)).otherwise(
                found
            )
    return found


def _children(schema: StructType, name: str) -> StructType:
    """Return the fields of a struct; none if there is no such column: no spec has fields then."""
    kind = schema[name].dataType if name in schema.names else None
    return kind if isinstance(kind, StructType) else StructType()


def _equality_columns(metadata: TableMetadata) -> Column:
    """Return the names of the columns of equality deletes; null for other files."""
    names = column_names(metadata)
    if not names:
        return F.lit(None).cast("array<string>")
    by_id = F.create_map(*(F.lit(each) for pair in names.items() for each in pair))
    ids = F.col("data_file.equality_ids")
    return F.transform(ids, lambda each: F.coalesce(by_id[each], each.cast("string")))


def column_names(metadata: TableMetadata) -> Mapping[int, str]:
    """Return the names of columns by field id: the current ones, else the last of dropped ones."""
    schemas = [*(metadata.schemas[key] for key in sorted(metadata.schemas)), metadata.schema]
    return {
        field_id: ".".join(path)
        for schema in schemas
        for field_id, path in key_paths(schema).items()
    }
