"""Shallow clones without Spark: the same rows from the same files, through the same vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from delvec import DeltaTable
from delvec.errors import InvalidArgumentError, ObjectNotFoundError, UnsupportedFeatureError
from tests.delta.builder import TableBuilder, removed, small_table

INLINE = {  # rows 0 and 5
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000315c8Xg000f5",
    "sizeInBytes": 36,
    "cardinality": 2,
}
LIVE = [*range(1, 9), 10, 11, 12, *range(15, 20)]


def ids(table: DeltaTable, version: int | None = None) -> list[int]:
    found: list[int] = sorted(table.to_arrow(version=version).column("id").to_pylist())
    return found


def commit_of(root: Path, version: int = 0) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in (root / f"_delta_log/{version:020}.json").read_text().splitlines():
        for kind, body in json.loads(line).items():
            found.setdefault(kind, []).append(body)
    return found


def test_a_clone_has_the_same_rows_and_no_files(tmp_path: Path) -> None:
    small_table(tmp_path / "t")
    source = DeltaTable.for_path(None, tmp_path / "t")
    report = source.clone(tmp_path / "clone")
    table = DeltaTable.for_path(None, tmp_path / "clone")
    assert (report.version, report.files_added, report.vectors_added) == (0, 2, 2)
    assert ids(table) == LIVE == ids(source)
    assert [path.name for path in (tmp_path / "clone").iterdir()] == ["_delta_log"]
    assert (table.protocol, table.properties) == (source.protocol, source.properties)
    assert table.detail().id != source.detail().id
    assert source.version == 2


def test_entries_have_absolute_percent_encoded_paths(tmp_path: Path) -> None:
    root = tmp_path / "ein Täble 100%"
    builder = TableBuilder.made(root)
    add = builder.write_file("day=a%20b/pärt 0.parquet", {"id": [1, 2, 3]})
    add["path"] = "day=a%2520b/p%C3%A4rt%200.parquet"
    [vector] = builder.write_vectors([1], prefix="ab")
    stats = '{"numRecords": 3, "tightBounds": false}'
    builder.add(add | {"deletionVector": vector, "stats": stats, "tags": {"a": "b"}})
    DeltaTable.for_path(None, root).clone(tmp_path / "clone")
    [entry] = commit_of(tmp_path / "clone")["add"]
    assert entry["path"].startswith("file:/")
    assert " " not in entry["path"]
    assert unquote(entry["path"]) == f"file:{root}/day=a%20b/pärt 0.parquet"
    assert entry["deletionVector"]["storageType"] == "p"
    assert unquote(entry["deletionVector"]["pathOrInlineDv"]) == f"file:{builder.vector_path()}"
    assert (entry["deletionVector"]["offset"], entry["tags"]) == (1, {"a": "b"})
    assert entry["dataChange"]
    table = DeltaTable.for_path(None, tmp_path / "clone")
    assert ids(table) == [1, 3]


def test_inline_and_absolute_vectors_stay_as_they_are(tmp_path: Path) -> None:
    builder, elsewhere = TableBuilder(tmp_path / "t"), TableBuilder(tmp_path / "other")
    builder.create()
    adds = [builder.write_file(f"part-{n}.parquet", {"id": list(range(10))}) for n in range(2)]
    [vector] = elsewhere.write_vectors([3])
    absolute = vector | {"storageType": "p", "pathOrInlineDv": f"file:{elsewhere.vector_path()}"}
    for add, each in zip(adds, (INLINE, absolute), strict=True):
        stats = '{"numRecords": 10, "tightBounds": false}'
        builder.add(add | {"deletionVector": each, "stats": stats})
    source = DeltaTable.for_path(None, tmp_path / "t")
    source.clone(tmp_path / "clone")
    found = [entry["deletionVector"] for entry in commit_of(tmp_path / "clone")["add"]]
    assert sorted(found, key=str) == sorted([INLINE, absolute], key=str)
    assert ids(DeltaTable.for_path(None, tmp_path / "clone")) == ids(source)


def test_a_clone_of_a_clone_refers_to_the_first_source(tmp_path: Path) -> None:
    small_table(tmp_path / "t")
    DeltaTable.for_path(None, tmp_path / "t").clone(tmp_path / "one")
    DeltaTable.for_path(None, tmp_path / "one").clone(tmp_path / "two")
    first, second = (commit_of(tmp_path / name)["add"] for name in ("one", "two"))
    assert (first, ids(DeltaTable.for_path(None, tmp_path / "two"))) == (second, LIVE)


def test_the_history_tells_of_the_source(tmp_path: Path) -> None:
    small_table(tmp_path / "t")
    source = DeltaTable.for_path(None, tmp_path / "t")
    source.clone(tmp_path / "clone", 1, commit_metadata="copy")
    [entry] = DeltaTable.for_path(None, tmp_path / "clone").arrow_history().to_pylist()
    assert entry["operation"] == "CLONE"
    parameters = dict(entry["operationParameters"])
    assert parameters == {"source": f"delta.`file:{tmp_path}/t`", "sourceVersion": "1"}
    metrics = {name: int(value) for name, value in entry["operationMetrics"]}
    assert metrics == {
        "sourceTableSize": source.detail().bytes,
        "sourceNumOfFiles": 2,
        "numRemovedFiles": 0,
        "numCopiedFiles": 0,
        "removedFilesSize": 0,
        "copiedFilesSize": 0,
    }
    assert entry["userMetadata"] == "copy"


def test_an_old_version_is_cloned_if_its_files_exist(tmp_path: Path) -> None:
    small_table(tmp_path / "t")
    source = DeltaTable.for_path(None, tmp_path / "t")
    source.clone(tmp_path / "clone", version=1)
    assert ids(DeltaTable.for_path(None, tmp_path / "clone")) == list(range(20))
    (tmp_path / "t" / "part-1.parquet").unlink()
    with pytest.raises(ObjectNotFoundError, match=r"version 1 .* cannot be cloned: part-1.parquet"):
        source.clone(tmp_path / "other", version=1)
    assert not (tmp_path / "other").exists()


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    small_table(tmp_path / "t")
    report = DeltaTable.for_path(None, tmp_path / "t").clone(tmp_path / "clone", dry_run=True)
    assert (report.version, report.files_added) == (None, 2)
    assert not (tmp_path / "clone").exists()


def test_a_taken_target_is_refused(tmp_path: Path) -> None:
    small_table(tmp_path / "t")
    small_table(tmp_path / "taken")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    source = DeltaTable.for_path(None, tmp_path / "t")
    with pytest.raises(InvalidArgumentError, match="there is a table at"):
        source.clone(tmp_path / "taken")
    with pytest.raises(InvalidArgumentError, match=r"would delete: notes\.txt"):
        source.clone(tmp_path / "full")


@pytest.mark.parametrize("place", ["", "inside", ".."])
def test_a_target_around_or_inside_the_source_is_refused(tmp_path: Path, place: str) -> None:
    small_table(tmp_path / "a" / "t")
    source = DeltaTable.for_path(None, tmp_path / "a" / "t")
    with pytest.raises(InvalidArgumentError, match="one folder with its source"):
        source.clone(tmp_path / "a" / "t" / place)


def test_another_kind_of_store_is_refused(tmp_path: Path) -> None:
    small_table(tmp_path / "t")
    source = DeltaTable.for_path(None, tmp_path / "t")
    with pytest.raises(InvalidArgumentError, match="the same kind of store"):
        source.clone("s3://lake/t", storage_options={"region": "eu-west-1"})


def tracked(root: Path) -> TableBuilder:
    builder = TableBuilder(root)
    builder.protocol["writerFeatures"] = [
        *("deletionVectors", "rowTracking", "domainMetadata", "clustering", "inCommitTimestamp")
    ]
    builder.properties = {
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_ids",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_versions",
        "delta.inCommitTimestampEnablementVersion": "7",
        "delta.inCommitTimestampEnablementTimestamp": "1900000000000",
        "delta.userProperty": "kept",
    }
    builder.create()
    return builder


def domain(name: str, text: str) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": False}}


def test_row_ids_are_the_clones_own_and_clustering_is_copied(tmp_path: Path) -> None:
    builder = tracked(tmp_path / "t")
    adds = [
        builder.write_file(f"part-{number}.parquet", {"id": [number, 5]})
        | {"baseRowId": 70 + number, "defaultRowCommitVersion": 1}
        for number in range(2)
    ]
    clustering = '{"clusteringColumns":[["id"]]}'
    builder.commit(
        *({"add": add} for add in adds),
        domain("delta.rowTracking", '{"rowIdHighWaterMark": 80}'),
        domain("delta.clustering", clustering),
        domain("mine", "1"),
    )
    DeltaTable.for_path(None, tmp_path / "t").clone(tmp_path / "clone")
    table = DeltaTable.for_path(None, tmp_path / "clone")
    entries = commit_of(tmp_path / "clone")["add"]
    assert [(add["baseRowId"], add["defaultRowCommitVersion"]) for add in entries] == [
        (0, 0),
        (2, 0),
    ]
    assert table.snapshot().domains == {
        "delta.rowTracking": '{"rowIdHighWaterMark":3}',
        "delta.clustering": clustering,
    }
    names = {name: value for name, value in table.properties.items() if "materialized" in name}
    assert len(names) == 2
    assert not {"_ids", "_versions"} & set(names.values())
    assert not any("inCommitTimestampEnablement" in name for name in table.properties)
    assert table.properties["delta.userProperty"] == "kept"


def test_row_tracking_needs_the_row_counts(tmp_path: Path) -> None:
    builder = tracked(tmp_path / "t")
    add = builder.write_file("part-0.parquet", {"id": [1]}) | {"baseRowId": 0}
    del add["stats"]
    builder.add(add)
    with pytest.raises(UnsupportedFeatureError, match=r"recompute_statistics\(\)"):
        DeltaTable.for_path(None, tmp_path / "t").clone(tmp_path / "clone")


def test_both_tables_change_independently(tmp_path: Path) -> None:
    builder, live = small_table(tmp_path / "t")
    source = DeltaTable.for_path(None, tmp_path / "t")
    source.clone(tmp_path / "clone")
    builder.commit({"remove": removed(live[0])})
    table = DeltaTable.for_path(None, tmp_path / "clone")
    assert (ids(table), ids(source)) == (LIVE, [number for number in LIVE if number >= 10])
    [first, _] = table.snapshot().files.entries()
    clone = TableBuilder(tmp_path / "clone", version=0)
    clone.commit({"remove": removed(dict(first.add))})
    assert ids(table) == [number for number in LIVE if number >= 10]
    table.recompute_statistics()
    assert ids(table) == [number for number in LIVE if number >= 10]
