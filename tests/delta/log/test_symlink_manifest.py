"""Manifests: which there are, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from delvec import DeltaTable
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.write.after_commit import write_manifests
from delvec.errors import UnsupportedFeatureError
from delvec.storage import Storage
from tests.delta.builder import TableBuilder, removed, small_table


def manifests(root: Path) -> dict[str, list[str]]:
    folder = root / "_symlink_format_manifest"
    files = (file for file in folder.rglob("*") if file.is_file() and file.name[0] != ".")
    return {str(file.relative_to(folder)): sorted(file.read_text().split("\n")) for file in files}


def write(root: Path) -> None:
    write_manifests(open_snapshot(Storage.open(root)))


def test_a_table_without_partitions_has_one(tmp_path: Path) -> None:
    table = TableBuilder.made(tmp_path)
    write(tmp_path)
    assert manifests(tmp_path) == {"manifest": [""]}
    table.add(table.write_file("a", {"id": [1]}) | {"path": "a%20b"})
    assert DeltaTable.for_path(None, tmp_path).generate_manifest() == 1
    assert manifests(tmp_path) == {"manifest": ["", f"file:{tmp_path}/a b"]}


def test_partitions_that_are_empty_now_lose_theirs(tmp_path: Path) -> None:
    table = TableBuilder.made(
        tmp_path, fields={"id": "long", "p": "string"}, partition_columns=["p"]
    )
    adds = [table.write_file(f"f{p}", {"id": [1]}, {"p": p}) for p in ("a", "b:c", None)]
    table.add(*adds)
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
    assert "purge()" in str(e.value.hint)
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
