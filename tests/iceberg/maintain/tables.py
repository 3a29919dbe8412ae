"""Iceberg tables with many deletes, and how they are looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import delvec
from delvec.iceberg.client.catalog import load_table
from delvec.iceberg.client.delete_files import equality_deletes
from delvec.iceberg.commits.refs import create_branch
from delvec.identifiers import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from delvec import IcebergTable
    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.delete_files import EqualityDeleteFile

__all__ = ["deletes", "insert", "loaded", "new_table", "own", "staging_table", "stock"]

ENABLED = {"write.delete.equality-vector.enabled": "true"}
DATABASE = "lake.maintain"


def new_table(
    spark: SparkSession,
    columns: str = "id bigint, s string",
    rest: str = "",
    version: int = 3,
    properties: dict[str, str] | None = None,
) -> IcebergTable:
    """Create an empty table."""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {DATABASE}")
    name = f"{DATABASE}.t_{uuid4().hex[:8]}"
    given = {"format-version": version, "write.delete.mode": "merge-on-read", **(properties or {})}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg {rest} TBLPROPERTIES ({listed})")
    return delvec.IcebergTable.for_name(spark, name)


def staging_table(spark: SparkSession, values: str) -> IcebergTable:
    """Create a table with rows, and a staging branch `stage` that may hold vectors alone."""
    table = new_table(spark, properties=ENABLED)
    insert(table, values)
    create_branch(loaded(table), "stage", staging=True)
    return table


def insert(table: IcebergTable, values: str, branch: str = "main") -> None:
    """Insert rows as one data file, for each partition."""
    to = table.name if branch == "main" else f"{table.name}.{quote('branch_' + branch)}"
    table.spark.sql(f"INSERT INTO {to} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")


def loaded(table: IcebergTable) -> LoadedTable:
    return load_table(table.spark, table.identifier)


def stock(table: IcebergTable, branch: str = "main") -> list[tuple[Any, ...]]:
    """Read rows by stock Iceberg, in order."""
    table.spark.catalog.refreshTable(table.name)
    rows = table.spark.sql(f"SELECT * FROM {table.name} VERSION AS OF '{branch}'")
    return sorted(map(tuple, rows.collect()), key=repr)


def own(table: IcebergTable, branch: str = "main") -> list[tuple[Any, ...]]:
    """Read rows by delvec, in order."""
    return sorted(map(tuple, table.to_df(branch).collect()), key=repr)


def deletes(table: IcebergTable, branch: str = "main") -> Sequence[EqualityDeleteFile]:
    """Return the equality deletes of a branch, in the order of their sequence numbers."""
    now = loaded(table)
    head = now.metadata.head(branch)
    assert head is not None
    return sorted(equality_deletes(now, head.id), key=lambda each: each.sequence_number)
