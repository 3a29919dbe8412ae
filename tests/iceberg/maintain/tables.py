"""Iceberg tables with many deletes, and how they are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from delvec import IcebergTable
from delvec.iceberg.client.catalog import LoadedTable, load_table
from delvec.iceberg.client.files import EqualityDeleteFile, equality_deletes
from delvec.iceberg.commit.refs import create_branch
from delvec.identifiers import quote
from tests.iceberg.deletes.tables import open_new

ENABLED = {"write.delete.equality-vector.enabled": "true"}


def staging_table(spark: SparkSession, values: str) -> IcebergTable:
    """Create a table with rows, and a staging branch `stage` that may hold vectors alone."""
    table = open_new(spark, properties=ENABLED)
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
