"""Manifests, held against those of delta-spark."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.log.symlink_manifest import write_manifests
from delvec.errors import UnsupportedFeatureError
from delvec.storage import Storage
from tests.delta.builder import TableBuilder, removed, small_table
from tests.spark.delta import spark_tables

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def manifests(root: Path) -> dict[str, list[str]]:
    folder = root / "_symlink_format_manifest"
    files = (file for file in folder.rglob("*") if file.is_file() and file.name[0] != ".")
    return {str(file.relative_to(folder)): sorted(file.read_text().split("\n")) for file in files}


def write(root: Path) -> None:
    write_manifests(open_snapshot(Storage.open(root)))


def test_a_table_without_partitions_has_one(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path)
    table.create()
    write(tmp_path)
    assert manifests(tmp_path) == {"manifest": [""]}
    table.commit({"add": table.write_file("a", {"id": [1]}) | {"path": "a%20b"}})
    write(tmp_path)
    assert manifests(tmp_path) == {"manifest": ["", f"file:{tmp_path}/a b"]}


def test_partitions_that_are_empty_now_lose_theirs(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path, fields={"id": "long", "p": "string"}, partition_columns=["p"])
    table.create()
    adds = [table.write_file(f"f{p}", {"id": [1]}, {"p": p}) for p in ("a", "b:c", None)]
    table.commit(*({"add": add} for add in adds))
    write(tmp_path)
    null = "p=__HIVE_DEFAULT_PARTITION__/manifest"
    assert set(manifests(tmp_path)) == {"p=a/manifest", "p=b%3Ac/manifest", null}
    table.commit({"remove": removed(adds[0])})
    write(tmp_path)
    assert set(manifests(tmp_path)) == {"p=b%3Ac/manifest", null}


def test_vectors_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    table, _ = small_table(tmp_path)
    with pytest.raises(UnsupportedFeatureError, match=r"2 files of .* have deletion vectors") as e:
        write(table.root)
    assert "PURGE" in str(e.value.hint)
    assert manifests(table.root) == {}


def test_mapped_columns_are_refused(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path, properties={"delta.columnMapping.mode": "name"})
    metadata = table.metadata()
    schema = json.loads(metadata["schemaString"])
    schema["fields"][0]["metadata"] = {
        "delta.columnMapping.physicalName": "col-1",
        "delta.columnMapping.id": 1,
    }
    metadata["schemaString"] = json.dumps(schema)
    table.commit({"protocol": table.protocol}, {"metaData": metadata})
    with pytest.raises(UnsupportedFeatureError, match="other names"):
        write(tmp_path)


@pytest.mark.spark
def test_they_are_those_of_delta_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    columns = "id BIGINT, p STRING, day DATE, at TIMESTAMP"
    spark_tables.create(
        spark,
        path,
        columns,
        partitioned_by=["p", "day", "at"],
        properties={"delta.enableDeletionVectors": "false"},
    )
    values = ["'a b'", "'c/d:e%f=g'", "NULL", "'ü[]{}^\"'", "'x?*#'"]
    rows = ", ".join(
        f"({number}, {p}, DATE'2024-01-0{number + 1}', TIMESTAMP'2024-01-31 10:00:00.5')"
        for number, p in enumerate(values)
    )
    spark_tables.sql(
        spark,
        path,
        f"INSERT INTO {{T}} VALUES {rows}",
        "DELETE FROM {T} WHERE id = 1",
        "GENERATE symlink_format_manifest FOR TABLE {T}",
    )
    expected = manifests(path)
    assert len(expected) == len(values) - 1
    shutil.rmtree(path / "_symlink_format_manifest")
    write(path)
    assert manifests(path) == expected
