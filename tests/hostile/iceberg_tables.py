"""Iceberg tables whose metadata somebody hostile has written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import delvec
from delvec.iceberg.client.catalog import catalog_of, load_table, table_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.hostile.attack import Ground

__all__ = ["NAME", "Metadata", "edit", "forged", "made", "opened", "registered"]

NAME: Final = "sqlite.hostile.t"
"""The hostile table, which each attack makes anew."""

Metadata = dict[str, Any]
_SEED: Final = "sqlite.hostile.seed"
_DAYS_AGO: Final = 1_600_000_000


def opened(ground: Ground) -> delvec.IcebergTable:
    return delvec.IcebergTable.for_name(ground.spark, NAME)


def forged(change: Callable[[Metadata, Ground], object]) -> Callable[[Ground], None]:
    """Return what puts a table whose metadata are changed: two snapshots of one file each.

    Its files are those of an honest table, which is made once; only the metadata file is its own.
    """

    def put(ground: Ground) -> None:
        metadata = _seed(ground.spark)
        metadata["location"] = f"file:{ground.table}"
        metadata["table-uuid"] = str(uuid4())
        change(metadata, ground)
        registered(ground, metadata)

    return put


def made(
    ground: Ground, name: str = NAME, *, at: Path | None = None, version: int = 3
) -> delvec.IcebergTable:
    """Make an honest table of four rows in two files at a place, by default that of the attack."""
    spark = ground.spark
    _dropped(spark, name)
    spark.sql(
        f"CREATE TABLE {name} (id bigint, s string) USING iceberg LOCATION '{at or ground.table}'"
        f" TBLPROPERTIES ('format-version' = '{version}', 'write.delete.mode' = 'merge-on-read')"
    )
    for values in ("(1, 'a'), (2, 'b')", "(3, 'c'), (4, 'd')"):
        spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")
    return delvec.IcebergTable.for_name(spark, name)


def edit(ground: Ground, change: Callable[[Metadata], object], name: str = NAME) -> None:
    """Change the newest metadata file of a table in its place."""
    path = _metadata_file(ground.spark, name)
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    catalog, identifier = catalog_of(ground.spark, table_name(ground.spark, name))
    catalog.dropTable(identifier, False)
    catalog.registerTable(identifier, str(path))


def registered(ground: Ground, metadata: Metadata | str, at: Path | None = None) -> Path:
    """Write a metadata file, and give its table the name of the hostile one."""
    folder = at or ground.table / "metadata"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"00002-{uuid4()}.metadata.json"
    path.write_text(metadata if isinstance(metadata, str) else json.dumps(metadata))
    _dropped(ground.spark, NAME)
    catalog, identifier = catalog_of(ground.spark, table_name(ground.spark, NAME))
    catalog.registerTable(identifier, str(path))
    return path


def _seed(spark: SparkSession) -> Metadata:
    """Return the metadata of an honest table, which is made once."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS sqlite.hostile")
    catalog, identifier = catalog_of(spark, table_name(spark, _SEED))
    if not catalog.tableExists(identifier):
        spark.sql(
            f"CREATE TABLE {_SEED} (id bigint, s string) USING iceberg"
            " TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
        )
        for values in ("(1, 'a'), (2, 'b')", "(3, 'c'), (4, 'd')"):
            spark.sql(f"INSERT INTO {_SEED} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")
    found: Metadata = json.loads(_metadata_file(spark, _SEED).read_text())
    return found


def _metadata_file(spark: SparkSession, name: str) -> Path:
    table = load_table(spark, table_name(spark, name))
    return Path(str(table.current.metadataFileLocation()).removeprefix("file:"))


def _dropped(spark: SparkSession, name: str) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS sqlite.hostile")
    catalog, identifier = catalog_of(spark, table_name(spark, name))
    catalog.dropTable(identifier, False)
