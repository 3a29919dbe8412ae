"""Iceberg tables whose metadata somebody hostile has written by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import SparkSession

import delvec
from delvec.iceberg.client.catalog import catalog_of, iceberg_view, load_table, table_name
from tests.hostile.attack import Ground

NAME: Final = "sqlite.hostile.t"
"""The hostile table, which each attack makes again."""

Metadata = dict[str, Any]
_SEED: Final = "sqlite.hostile.seed"
_TEN_DAYS: Final = 10 * 86_400


def opened(ground: Ground) -> delvec.IcebergTable:
    return delvec.IcebergTable.for_name(ground.spark, NAME)


def forged(change: Callable[[Metadata, Ground], object]) -> Callable[[Ground], None]:
    """Return what puts a table whose metadata are changed: two snapshots of one file each.

    Its files are those of an honest table, which is made once; only the metadata file is its own.
    """

    def put(ground: Ground) -> None:
        metadata = _seed(ground)
        change(metadata, ground)
        registered(ground, metadata)

    return put


def damaged(change: Callable[[str], str]) -> Callable[[Ground], None]:
    """Return what puts a table in a catalog of folders whose metadata file is changed.

    The catalog of the others tries for a minute and a half to read a file that is damaged.
    """

    def put(ground: Ground) -> None:
        text = json.dumps(_seed(ground))
        warehouse = str(ground.spark.conf.get("spark.sql.catalog.lake.warehouse"))
        folder = Path(warehouse.removeprefix("file:"), "hostile/t/metadata")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "v1.metadata.json").write_text(change(text))
        (folder / "version-hint.text").write_text("1")

    return put


def made(ground: Ground, name: str = NAME, at: Path | None = None) -> delvec.IcebergTable:
    """Make an honest table of four rows in two files at a place, by default that of the attack."""
    spark = ground.spark
    _dropped(spark, name)
    spark.sql(
        f"CREATE TABLE {name} (id bigint, s string) USING iceberg LOCATION '{at or ground.table}'"
        " TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    for values in ("(1, 'a'), (2, 'b')", "(3, 'c'), (4, 'd')"):
        spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")
    return delvec.IcebergTable.for_name(spark, name)


def had(ground: Ground, path: str) -> None:
    """Make a table, and let it add a data file and remove it: expiry deletes it then."""
    made(ground)
    handle = load_table(ground.spark, table_name(ground.spark, NAME)).handle
    files = iceberg_view(ground.spark).DataFiles
    file = files.builder(handle.spec()).withPath(path).withFormat("parquet")
    file = file.withFileSizeInBytes(1000).withRecordCount(1).build()
    handle.newAppend().appendFile(file).commit()
    handle.newDelete().deleteFile(file).commit()
    ground.spark.catalog.refreshTable(NAME)


def with_vector(ground: Ground, change: Callable[[Any, Any], object]) -> delvec.IcebergTable:
    """Make a table, delete a row by a vector, and change what the manifest says of the vector.

    Args:
        ground: Where.
        change: Changes Iceberg's builder of the entry, which it is given with the entry.
    """
    table = made(ground)
    table.delete("id = 1")
    handle = load_table(ground.spark, table_name(ground.spark, NAME)).handle
    tasks = handle.newScan().planFiles().iterator()
    entry = None
    while tasks.hasNext():
        deletes = tasks.next().deletes()
        entry = deletes.get(0) if deletes.size() else entry
    builder = iceberg_view(ground.spark).FileMetadata.deleteFileBuilder(handle.spec()).copy(entry)
    change(builder, entry)
    delta = handle.newRowDelta().validateFromSnapshot(handle.currentSnapshot().snapshotId())
    delta.removeDeletes(entry).addDeletes(builder.build()).commit()
    ground.spark.catalog.refreshTable(NAME)
    return table


def registered(
    ground: Ground, metadata: Metadata, at: Path | None = None, name: str = NAME
) -> Path:
    """Write a metadata file, and give its table the name of the hostile one."""
    folder = at or ground.table / "metadata"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"00002-{uuid4()}.metadata.json"
    path.write_text(json.dumps(metadata))
    _dropped(ground.spark, name)
    catalog, identifier = catalog_of(ground.spark, table_name(ground.spark, name))
    catalog.registerTable(identifier, str(path))
    return path


def metadata_of(ground: Ground, name: str) -> tuple[Metadata, Path]:
    """Give the metadata of a table, and their file."""
    table = load_table(ground.spark, table_name(ground.spark, name))
    path = Path(str(table.current.metadataFileLocation()).removeprefix("file:"))
    return json.loads(path.read_text()), path


def aged(folder: Path) -> None:
    """Make all files below a folder so old that they may be orphans."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            moment = path.stat().st_mtime - _TEN_DAYS
            os.utime(path, (moment, moment))


def _seed(ground: Ground) -> Metadata:
    """Give the metadata of an honest table, which is made once, as those of another."""
    spark = ground.spark
    spark.sql("CREATE NAMESPACE IF NOT EXISTS sqlite.hostile")
    catalog, identifier = catalog_of(spark, table_name(spark, _SEED))
    if not catalog.tableExists(identifier):
        warehouse = str(spark.conf.get("spark.sql.catalog.sqlite.warehouse"))
        made(ground, _SEED, Path(warehouse, "seed"))
    metadata, _ = metadata_of(ground, _SEED)
    return {**metadata, "location": f"file:{ground.table}", "table-uuid": str(uuid4())}


def _dropped(spark: SparkSession, name: str) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS sqlite.hostile")
    catalog, identifier = catalog_of(spark, table_name(spark, name))
    catalog.dropTable(identifier, False)
