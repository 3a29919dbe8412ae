"""Shallow clones without Spark: the same rows from the same files, through the same vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from delvec import DeltaTable
from delvec.errors import InvalidArgumentError, ObjectNotFoundError, UnsupportedFeatureError
from tests.delta import log_files
from tests.delta.builder import INLINE_TWO, Action, TableBuilder, protocol_of, removed, small_table

LIVE = [*range(1, 9), 10, 11, 12, *range(15, 20)]


def ids(table: DeltaTable, version: int | None = None) -> list[int]:
    found: list[int] = sorted(table.to_arrow(version=version).column("id").to_pylist())
    return found


def adds_of(root: Path) -> list[Action]:
    return [action["add"] for action in log_files.commits(root)[0] if "add" in action]


def cloned(source: DeltaTable, root: Path, **options: Any) -> DeltaTable:  # noqa: ANN401
    source.clone(root, **options)
    return DeltaTable.for_path(None, root)


@pytest.fixture
def small(tmp_path: Path) -> TableBuilder:
    return small_table(tmp_path / "a" / "t")[0]


@pytest.fixture
def source(small: TableBuilder) -> DeltaTable:
    return small.handle


def test_a_clone_has_the_same_rows_and_no_files(tmp_path: Path, source: DeltaTable) -> None:
    report = source.clone(tmp_path / "clone")
    table = DeltaTable.for_path(None, tmp_path / "clone")
    assert (report.version, report.files_added, report.vectors_added) == (0, 2, 2)
    assert ids(table) == LIVE == ids(source)
    assert [path.name for path in (tmp_path / "clone").iterdir()] == ["_delta_log"]
    assert (table.protocol, table.properties) == (source.protocol, source.properties)
    assert table.detail().id != source.detail().id
    assert source.version == 2
    # A clone of a clone refers to the first source.
    assert ids(cloned(table, tmp_path / "two")) == LIVE
    assert adds_of(tmp_path / "two") == adds_of(tmp_path / "clone")


def test_a_clone_replaces_a_table_without_rows(tmp_path: Path, source: DeltaTable) -> None:
    clustered = {"delta.enableRowTracking": "true"}
    made = DeltaTable.create(None, tmp_path / "t", source.schema, (), clustered, cluster_by=["id"])
    was = made.detail()
    with pytest.raises(InvalidArgumentError, match="already"):
        source.clone(tmp_path / "t")
    report = source.clone(tmp_path / "t", replace=True)
    assert (report.version, report.files_added) == (1, 2)
    assert ids(made) == LIVE
    assert (made.detail().id, made.properties) == (was.id, source.properties)
    assert set(was.features) | set(source.detail().features) == set(made.detail().features)
    empty = '{"clusteringColumns":[],"domainName":"delta.clustering"}'
    assert made.snapshot().domains["delta.clustering"] == empty
    assert ids(made, 0) == []
    with pytest.raises(InvalidArgumentError, match="has 2 files"):
        source.clone(tmp_path / "t", replace=True)
    with pytest.raises(InvalidArgumentError, match="without rows only"):
        source.clone(source.storage.root, replace=True)
    assert source.clone(tmp_path / "new", replace=True).version == 0


def test_entries_have_absolute_percent_encoded_paths(tmp_path: Path) -> None:
    builder = TableBuilder.made(tmp_path / "ein Täble 100%")
    add = builder.write_file("day=a%20b/pärt 0.parquet", {"id": [1, 2, 3]})
    add |= {"path": "day=a%2520b/p%C3%A4rt%200.parquet", "tags": {"a": "b"}}
    [vector] = builder.write_vectors([1], prefix="ab")
    stats = '{"numRecords": 3, "tightBounds": false}'
    builder.add(add | {"deletionVector": vector, "stats": stats})
    table = cloned(builder.handle, tmp_path / "clone")
    [entry] = adds_of(tmp_path / "clone")
    assert entry["path"].startswith("file:/")
    assert " " not in entry["path"]
    assert unquote(entry["path"]) == f"file:{builder.root}/day=a%20b/pärt 0.parquet"
    descriptor = entry["deletionVector"]
    assert (descriptor["storageType"], descriptor["offset"]) == ("p", 1)
    assert unquote(descriptor["pathOrInlineDv"]) == f"file:{builder.vector_path()}"
    assert (entry["tags"], entry["dataChange"], ids(table)) == ({"a": "b"}, True, [1, 3])


def test_inline_and_absolute_vectors_stay_as_they_are(tmp_path: Path) -> None:
    builder, elsewhere = TableBuilder.made(tmp_path / "t"), TableBuilder(tmp_path / "other")
    [vector] = elsewhere.write_vectors([3])
    absolute = vector | {"storageType": "p", "pathOrInlineDv": f"file:{elsewhere.vector_path()}"}
    for number, each in enumerate((INLINE_TWO, absolute)):
        add = builder.write_file(f"part-{number}.parquet", {"id": range(10)})
        stats = '{"numRecords": 10, "tightBounds": false}'
        builder.add(add | {"deletionVector": each, "stats": stats})
    table = cloned(builder.handle, tmp_path / "clone")
    found = [entry["deletionVector"] for entry in adds_of(tmp_path / "clone")]
    assert sorted(found, key=str) == sorted([INLINE_TWO, absolute], key=str)
    assert ids(table) == ids(builder.handle)


def test_the_history_tells_of_the_source(tmp_path: Path, source: DeltaTable) -> None:
    table = cloned(source, tmp_path / "clone", version=1, commit_metadata="copy")
    [entry] = table.arrow_history().to_pylist()
    assert (entry["operation"], entry["userMetadata"]) == ("CLONE", "copy")
    parameters = dict(entry["operationParameters"])
    assert parameters == {"source": f"delta.`file:{tmp_path}/a/t`", "sourceVersion": "1"}
    none = ("numRemovedFiles", "numCopiedFiles", "removedFilesSize", "copiedFilesSize")
    figures = {"sourceTableSize": source.detail().bytes, "sourceNumOfFiles": 2}
    metrics = {name: int(value) for name, value in entry["operationMetrics"]}
    assert metrics == figures | dict.fromkeys(none, 0)


def test_an_old_version_is_cloned_if_its_files_exist(tmp_path: Path, source: DeltaTable) -> None:
    assert ids(cloned(source, tmp_path / "clone", version=1)) == list(range(20))
    (tmp_path / "a/t/part-1.parquet").unlink()
    with pytest.raises(ObjectNotFoundError, match=r"version 1 .* cannot be cloned: part-1.parquet"):
        source.clone(tmp_path / "other", version=1)
    assert not (tmp_path / "other").exists()


def test_a_dry_run_writes_nothing(tmp_path: Path, source: DeltaTable) -> None:
    report = source.clone(tmp_path / "clone", dry_run=True)
    assert (report.version, report.files_added) == (None, 2)
    assert not (tmp_path / "clone").exists()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("{root}/taken", "there is a table at"),
        ("{root}/full", r"would delete: notes\.txt"),
        *((f"{{root}}/a/{each}", "one folder with its source") for each in ("t", "t/inside", "")),
        ("s3://lake/t", "the same kind of store"),
    ],
)
def test_targets_are_refused(tmp_path: Path, source: DeltaTable, target: str, message: str) -> None:
    small_table(tmp_path / "taken")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    options = {"region": "eu-west-1"} if target.startswith("s3:") else None
    with pytest.raises(InvalidArgumentError, match=message):
        source.clone(target.format(root=tmp_path), storage_options=options)


def tracked(root: Path) -> TableBuilder:
    features = ["rowTracking", "domainMetadata", "clustering", "inCommitTimestamp"]
    protocol = protocol_of("deletionVectors", writers=features)
    properties = {
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_ids",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_versions",
        "delta.inCommitTimestampEnablementVersion": "7",
        "delta.inCommitTimestampEnablementTimestamp": "1900000000000",
        "delta.userProperty": "kept",
    }
    return TableBuilder.made(root, protocol=protocol, properties=properties)


def domain(name: str, text: str) -> dict[str, Any]:
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": False}}


def test_row_ids_are_the_clones_own_and_clustering_is_copied(tmp_path: Path) -> None:
    builder = tracked(tmp_path / "t")
    adds = [
        builder.write_file(f"part-{number}.parquet", {"id": [number, 5]})
        | {"baseRowId": 70 + number, "defaultRowCommitVersion": 1}
        for number in range(2)
    ]
    clustering = '{"clusteringColumns":[["id"]],"domainName":"delta.clustering"}'
    builder.commit(
        *({"add": add} for add in adds),
        domain("delta.rowTracking", '{"rowIdHighWaterMark": 80}'),
        domain("delta.clustering", clustering),
        domain("mine", "1"),
    )
    table = cloned(builder.handle, tmp_path / "clone")
    entries = adds_of(tmp_path / "clone")
    kept = [(add["baseRowId"], add["defaultRowCommitVersion"]) for add in entries]
    assert kept == [(0, 0), (2, 0)]
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


def test_both_tables_change_on_their_own(
    tmp_path: Path, small: TableBuilder, source: DeltaTable
) -> None:
    table = cloned(source, tmp_path / "clone")
    first, _ = source.snapshot().files.entries()
    small.commit({"remove": removed(dict(first.add))})
    late = [number for number in LIVE if number >= 10]
    assert (ids(table), ids(source)) == (LIVE, late)
    first, _ = table.snapshot().files.entries()
    TableBuilder(tmp_path / "clone", version=0).commit({"remove": removed(dict(first.add))})
    assert ids(table) == late
    table.recompute_statistics()
    assert ids(table) == late
