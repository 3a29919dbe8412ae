"""Small Iceberg tables, and how stock engines read them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from pyiceberg.table import StaticTable

from delvec.iceberg.client.catalog import load_table, table_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from delvec.iceberg.client.catalog import LoadedTable

__all__ = ["by_pyiceberg", "by_spark", "deletes_of", "loaded", "new_table"]


def new_table(
    spark: SparkSession,
    columns: str = "id bigint, n int, s string",
    rest: str = "",
    version: int = 3,
    properties: Mapping[str, str] | None = None,
    catalog: str = "lake",
) -> str:
    """Create an empty table; return its name."""
    name = f"{catalog}.deletes.t_{uuid4().hex[:8]}"
    shown: dict[str, object] = {"format-version": version, "write.delete.mode": "merge-on-read"}
    shown |= properties or {}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in shown.items())
    spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg {rest} TBLPROPERTIES ({listed})")
    return name


def loaded(spark: SparkSession, name: str) -> LoadedTable:
    return load_table(spark, table_name(spark, name))


def by_spark(spark: SparkSession, name: str, column: str = "id", at: str = "") -> list[object]:
    """Read a column by Iceberg's own reader, in order."""
    spark.catalog.refreshTable(name)
    found = spark.sql(f"SELECT {column} FROM {name} {at and f'VERSION AS OF {at}'}").collect()
    return sorted((row[0] for row in found), key=lambda each: (each is not None, each))


def by_pyiceberg(spark: SparkSession, name: str, column: str = "id") -> list[object]:
    """Read a column by PyIceberg, in order."""
    location = loaded(spark, name).current.metadataFileLocation()
    rows = StaticTable.from_metadata(location).scan(selected_fields=(column,)).to_arrow()
    found: list[object] = rows[column].to_pylist()
    return sorted(found, key=lambda each: (each is not None, each))


def deletes_of(spark: SparkSession, name: str) -> list[tuple[int, str, int]]:
    """Return content, format and rows of each delete file."""
    spark.catalog.refreshTable(name)
    found = spark.sql(f"SELECT content, file_format, record_count FROM {name}.delete_files")
    return sorted((row[0], row[1], row[2]) for row in found.collect())
