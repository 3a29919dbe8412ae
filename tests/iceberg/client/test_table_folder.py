"""Tables in stores that only their FileIO can open: what is in a folder, before it is cleaned."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

import delvec
from delvec import IcebergTable
from delvec.errors import PlanError
from delvec.iceberg.client import own_location
from delvec.iceberg.client.own_location import TableFolder, in_full, require_own_folder, sorted_out
from tests.conversion.targets import ids

pytestmark = [pytest.mark.spark, pytest.mark.more]

_OTHER = {"format-version": 2, "table-uuid": str(uuid4()), "last-updated-ms": 1}
_OVERLOADED = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
_WAREHOUSES = {
    # As HDFS behind a federation: a scheme that delvec's own storage does not know.
    "views": "viewfs://cluster/lake",
    # Without a host, which Hadoop then omits from some paths and not from others.
    "hostless": "viewfs:///lake",
    # A store that delvec knows, and that the catalog's settings alone lead to.
    "vended": "s3://bucket/lake",
    # Without a scheme: the default file system of Hadoop, which is not the local disk.
    "bare": "/lake",
}


@pytest.fixture(params=_WAREHOUSES)
def catalog(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> str:
    """A catalog of Hadoop's whose warehouse is `tmp_path` by another name."""
    return made_catalog(spark, request.param, tmp_path)


def made_catalog(spark: SparkSession, kind: str, folder: Path) -> str:
    name = f"{kind}_{uuid4().hex[:8]}"  # Hadoop and Spark remember what is configured once
    cluster = f"of-{name}".replace("_", "-")
    warehouse = _WAREHOUSES[kind].replace("cluster", cluster).replace("bucket", cluster)
    settings = {
        "fs.viewfs.impl.disable.cache": "true",
        "fs.s3.impl": _OVERLOADED,
        "fs.s3.impl.disable.cache": "true",
        "fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
        f"fs.viewfs.mounttable.{cluster}.link./lake": f"file://{folder}",
        "fs.viewfs.mounttable.default.link./lake": f"file://{folder}",
    }
    if kind == "bare":
        settings["fs.defaultFS"] = f"viewfs://{cluster}"
    hadoop = {f"hadoop.{key}": value for key, value in settings.items()}
    configure(spark, name, {"type": "hadoop", "warehouse": warehouse, **hadoop})
    return name


def configure(spark: SparkSession, catalog: str, settings: Mapping[str, str]) -> None:
    prefix = f"spark.sql.catalog.{catalog}"
    spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
    for key, value in settings.items():
        spark.conf.set(f"{prefix}.{key}", value)


@pytest.fixture
def table(spark: SparkSession, catalog: str) -> IcebergTable:
    return made(spark, f"{catalog}.db.t")


def made(spark: SparkSession, name: str) -> IcebergTable:
    spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg")
    for value in (1, 2):
        spark.sql(f"INSERT OVERWRITE {name} VALUES ({value})")
    return delvec.IcebergTable.for_name(spark, name)


def data_files(folder: Path) -> int:
    return len(list(folder.glob("data/*.parquet")))


def put(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_the_file_io_expires_snapshots(
    spark: SparkSession, table: IcebergTable, tmp_path: Path
) -> None:
    assert data_files(tmp_path / "db/t") == 2
    report = table.expire_snapshots(timedelta(0), retain_last=1)
    assert (report.snapshots, report.data_files, report.refused) == (1, 1, ())
    assert (data_files(tmp_path / "db/t"), ids(spark, table.name)) == (1, [2])


@pytest.mark.parametrize("place", ["metadata/v9.metadata.json", "_delta_log/0.json"])
def test_metadata_of_others_are_seen_there(table: IcebergTable, tmp_path: Path, place: str) -> None:
    put(tmp_path / "db/t" / place, _OTHER)
    for act in (table.expire_snapshots, table.remove_orphan_files):
        with pytest.raises(PlanError, match=f"not {table.name}'s alone: .*{place[:9]}") as refused:
            act(location=table.location)
        assert refused.value.hint
    assert data_files(tmp_path / "db/t") == 2


@pytest.mark.parametrize("most", [1000, 0])
def test_files_of_a_table_further_inside_are_refused(
    table: IcebergTable, tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_location, "_MOST_FOLDERS", most)
    put(tmp_path / "db/t/data/inner/metadata/v1.metadata.json", _OTHER)
    put(tmp_path / "db/t/data/delta/_delta_log/0.json", {})
    put(tmp_path / "db/t/data/metadata", "a file, and no folder")
    loaded = table._load()
    folder = require_own_folder(loaded)
    root = table.location
    own = [f"{root}/data/x.parquet", f"{root}/data/y/x.parquet"]
    others = [
        f"{root}/data/inner/x.parquet",
        f"{root}/data/delta/deep/x.parquet",
        f"{root}/data//inner/x.parquet",
        f"{root}//data/inner/x.parquet",
        f"{root}/../u/x.parquet",
        f"{root}2/x.parquet",
        f"s3a://elsewhere{root}/x.parquet",
    ]
    found = sorted_out(loaded, folder, [*own, *others])
    assert (sorted(found.own), sorted(found.refused)) == (sorted(own), sorted(others))
    assert found.inner == (f"{root}/data/delta/", f"{root}/data/inner/")


def test_a_folder_that_is_given_is_the_data_of_no_other_table(
    spark: SparkSession, table: IcebergTable, tmp_path: Path
) -> None:
    other = made(spark, f"{table.name.split('.')[0]}.db.other")
    with pytest.raises(PlanError, match=f"not {table.name}'s alone"):
        table.expire_snapshots(timedelta(0), retain_last=1, location=f"{other.location}/data")
    assert data_files(tmp_path / "db/other") == 2


def test_orphans_are_removed_by_the_file_io(spark: SparkSession, tmp_path: Path) -> None:
    # Iceberg's procedure lists by the settings of the session.
    for key in ("impl.disable.cache", "mounttable.orphans.link./lake"):
        value = "true" if key.startswith("impl") else f"file://{tmp_path}"
        spark.conf.set(f"fs.viewfs.{key}", value)
    configure(spark, "orphaned", {"type": "hadoop", "warehouse": "viewfs://orphans/lake"})
    table = made(spark, "orphaned.db.t")
    orphan = tmp_path / "db/t/data/old.parquet"
    orphan.write_bytes(b"x")
    days_ago = time.time() - 5 * 86400
    os.utime(orphan, (days_ago, days_ago))
    inner = tmp_path / "db/t/data/metadata/v1.metadata.json"
    put(inner, _OTHER)
    with pytest.raises(PlanError, match="other tables inside"):
        table.remove_orphan_files()
    inner.unlink()
    assert table.remove_orphan_files().files == (f"{table.location}/data/old.parquet",)
    assert not orphan.exists()
    assert ids(spark, table.name) == [2]


def test_a_file_io_that_cannot_list_is_refused(spark: SparkSession) -> None:
    implementation = "org.apache.iceberg.inmemory.InMemoryCatalog"
    configure(spark, "memory", {"catalog-impl": implementation, "warehouse": "memory://lake"})
    spark.sql("CREATE NAMESPACE memory.db")
    table = made(spark, "memory.db.t")
    for act in (table.expire_snapshots, table.remove_orphan_files):
        with pytest.raises(
            PlanError, match=r"memory\.db\.t .*cannot list memory://.*InMemory"
        ) as no:
            act()
        assert "CALL memory.system" in str(no.value.hint)
    assert table.history().count() == 2


def test_a_listing_that_fails_is_not_an_empty_one(spark: SparkSession, tmp_path: Path) -> None:
    table = made(spark, f"{made_catalog(spark, 'views', tmp_path)}.db.t")
    folder = TableFolder.opened(table._load(), table.location)
    assert folder.metadata_files(["nowhere/metadata"]) == []
    assert len(folder.metadata_files(["metadata"])) == len(folder.metadata_files([""])) == 3
    with pytest.raises(delvec.DelvecError):
        TableFolder(folder.table, "unknown://host/t", None).metadata_files(["metadata"])


def test_names_are_compared_as_hadoop_reads_them() -> None:
    home = "hdfs://node:8020"
    assert in_full("/t/x", home) == in_full("hdfs:/t/x", home) == in_full("hdfs:///t/x", home)
    assert in_full("hdfs://other/t", home) == "hdfs://other/t"
    assert (in_full("viewfs:/t", home), in_full("FILE:/t", home)) == ("viewfs:///t", "file:/t")
    assert in_full("relative", home) == "relative"
