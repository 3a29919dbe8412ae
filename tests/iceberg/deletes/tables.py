"""Small Iceberg tables, and how stock engines read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from delvec import IcebergTable
from delvec.iceberg.client.catalog import LoadedTable, load_table, table_name


def new_table(
    spark: SparkSession,
    columns: str = "id bigint, n int, s string",
    rest: str = "",
    version: int = 3,
    properties: Mapping[str, str] | None = None,
    catalog: str = "lake",
) -> str:
    """Create an empty table; return its name."""
    name = f"{catalog}.db.t_{uuid4().hex[:8]}"
    shown: dict[str, object] = {"format-version": version, "write.delete.mode": "merge-on-read"}
    shown |= properties or {}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in shown.items())
    spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg {rest} TBLPROPERTIES ({listed})")
    return name


def open_new(
    spark: SparkSession,
    columns: str = "id bigint, s string",
    rest: str = "",
    version: int = 3,
    properties: Mapping[str, str] | None = None,
) -> IcebergTable:
    """Create an empty table, and open it."""
    return IcebergTable.for_name(spark, new_table(spark, columns, rest, version, properties))


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


def content_file(path: str, size: int, rows: int, content: str = "data") -> dict[str, Any]:
    """The entry of a Parquet file of a table without partitions, in Iceberg's JSON form."""
    return {
        "spec-id": 0,
        "content": content,
        "file-path": path,
        "file-format": "parquet",
        "partition": [],
        "file-size-in-bytes": size,
        "record-count": rows,
    }


def rewrite_data_files(spark: SparkSession, name: str, where: str = "", *options: str) -> None:
    """Rewrite all data files of a table by Iceberg's procedure, or those of a condition."""
    catalog, _, rest = name.partition(".")
    asked = ", ".join(f"'{each}', 'true'" for each in ("rewrite-all", *options))
    spark.catalog.refreshTable(name)
    spark.sql(
        f"CALL {catalog}.system.rewrite_data_files(table => '{rest}',"
        f"{where and f' where => {where!r},'} options => map({asked}))"
    )


def deletes_of(spark: SparkSession, name: str) -> list[tuple[int, str, int]]:
    """Return content, format and rows of each delete file."""
    spark.catalog.refreshTable(name)
    found = spark.sql(f"SELECT content, file_format, record_count FROM {name}.delete_files")
    return sorted((row[0], row[1], row[2]) for row in found.collect())


LOST = "An error occurred: org.apache.iceberg.exceptions.CommitStateUnknownException: no answer"


def lost(call: Any) -> Any:  # noqa: ANN401
    """Let a commit happen, and the answer be lost."""
    call()
    raise RuntimeError(LOST)


def never(call: Any) -> Any:  # noqa: ANN401, ARG001
    raise RuntimeError(LOST)
