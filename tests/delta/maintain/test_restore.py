"""RESTORE without Spark: files and vectors of a version come back, or the command refuses."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from delvec import DeltaTable
from delvec.delta.maintain import available_files
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.errors import InvalidArgumentError, ObjectNotFoundError, UnsupportedFeatureError
from delvec.storage import Storage
from tests.delta.builder import Action, TableBuilder, field_of, legacy, removed, table_with
from tests.delta.vacuum.aging import tombstone

LATER = 1_900_000_000_000
INLINE = {  # rows 0 and 5
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000315c8Xg000f5",
    "sizeInBytes": 36,
    "cardinality": 2,
}


def gone(add: Action, *, days_ago: float = 0) -> Action:
    """A remove of now, as engines write it."""
    when = int(time.time() * 1000 - days_ago * 86_400_000)
    return removed(add) | {"deletionTimestamp": when}


def with_vector(add: Action, vector: Action) -> Action:
    statistics = json.loads(add["stats"]) | {"tightBounds": False}
    return add | {"stats": json.dumps(statistics), "deletionVector": vector}


def ids(table: DeltaTable, version: int | None = None) -> list[int]:
    found: list[int] = sorted(table.to_arrow(version=version).column("id").to_pylist())
    return found


def last_commit(table: DeltaTable) -> list[Action]:
    path = f"{table.storage.root}/_delta_log/{table.version:020}.json"
    with open(path) as file:  # noqa: PTH123
        return [json.loads(line) for line in file]


def actions(table: DeltaTable, kind: str) -> list[Action]:
    return [action[kind] for action in last_commit(table) if kind in action]


@pytest.fixture
def builder(tmp_path: Path) -> TableBuilder:
    """Five versions: two files; a vector for one; a larger one; the other file is gone.

    1: 0 to 19. 2: without 0 and 9. 3: without 3 too. 4: 1, 2 and 4 to 8 alone.
    """
    made = TableBuilder.made(tmp_path / "t")
    first, second = (
        made.write_file(f"part-{number}.parquet", {"id": list(range(start, start + 10))})
        for number, start in ((0, 0), (1, 10))
    )
    first |= {"tags": {"origin": "here"}}
    made.commit({"add": first}, {"add": second})
    [small] = made.write_vectors([0, 9])
    marked = with_vector(first, small)
    made.commit({"remove": gone(first)}, {"add": marked})
    [large] = made.write_vectors([0, 3, 9])
    more = with_vector(first, large)
    made.commit({"remove": gone(marked)}, {"add": more})
    made.commit({"remove": gone(second)})
    return made


@pytest.fixture
def table(builder: TableBuilder) -> DeltaTable:
    return builder.handle


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_rows_are_those_of_the_wanted_version(table: DeltaTable, version: int) -> None:
    before = {each: ids(table, each) for each in range(5)}
    report = table.restore(version)
    assert (report.version, ids(table)) == (5, before[version])
    assert {each: ids(table, each) for each in range(5)} == before


def test_vectors_grow_again_after_a_restore_to_before_them(table: DeltaTable) -> None:
    wanted = ids(table, 3)
    table.restore(1)
    table.restore(3)
    assert ids(table) == wanted
    table.restore(5)
    assert ids(table) == list(range(20))


def test_entries_come_back_whole_and_as_changes_of_rows(table: DeltaTable) -> None:
    table.restore(2)
    [marked, second] = sorted(actions(table, "add"), key=lambda add: str(add["path"]))
    assert (marked["tags"], marked["deletionVector"]["cardinality"]) == ({"origin": "here"}, 2)
    assert json.loads(marked["stats"]) == {"numRecords": 10, "tightBounds": False}
    assert marked["dataChange"]
    assert second["path"] == "part-1.parquet"
    [old] = actions(table, "remove")
    assert (old["path"], old["deletionVector"]["cardinality"]) == ("part-0.parquet", 3)
    assert not actions(table, "cdc")


def test_the_history_has_the_metrics_of_delta_spark(table: DeltaTable) -> None:
    table.restore(2, commit_metadata="oops")
    entry = table.arrow_history().to_pylist()[0]
    sizes = [file.size for file in table.snapshot(2).files.data_files()]
    assert (entry["operation"], dict(entry["operationParameters"])) == ("RESTORE", {"version": "2"})
    assert dict(entry["operationMetrics"]) == {
        "tableSizeAfterRestore": str(sum(sizes)),
        "numOfFilesAfterRestore": "2",
        "numRemovedFiles": "1",
        "numRestoredFiles": "2",
        "removedFilesSize": str(sizes[0]),
        "restoredFilesSize": str(sum(sizes)),
    }
    assert entry["userMetadata"] == "oops"


def test_a_dry_run_writes_nothing(table: DeltaTable) -> None:
    report = table.restore(2, dry_run=True)
    assert (report.version, table.version) == (None, 4)
    assert (report.files_added, report.files_removed) == (2, 1)
    assert "version 2 has 2 files" in report.notes[0]
    assert report.notes[0].endswith("18 rows")


@pytest.mark.parametrize("version", [4, None])
def test_the_newest_version_is_nothing_to_do(table: DeltaTable, version: int | None) -> None:
    if version is None:
        table.restore(2)
        version = 2  # the same files, and the same metadata
    report = table.restore(version)
    assert report.version is None
    assert report.notes


def test_a_time_is_a_version(builder: TableBuilder, table: DeltaTable) -> None:
    table.restore(timestamp=_moment(builder, 2))
    assert len(ids(table)) == 18
    parameters = dict(table.arrow_history().to_pylist()[0]["operationParameters"])
    assert list(parameters) == ["timestamp"]


def _moment(builder: TableBuilder, version: int) -> str:
    for number in range(5):
        os.utime(builder.commit_path(number), (1e9 + number * 60, 1e9 + number * 60))
    return datetime.fromtimestamp(1e9 + version * 60 + 30, timezone.utc).isoformat()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "a version or a timestamp"),
        ({"version": 1, "timestamp": "2024-01-31"}, "a version or a timestamp"),
        ({"version": 99}, "99"),
    ],
)
def test_one_version_is_needed(table: DeltaTable, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        table.restore(**arguments)


@pytest.mark.parametrize("many", [False, True])
def test_a_gone_vector_is_named(builder: TableBuilder, table: DeltaTable, *, many: bool) -> None:
    [vector] = [
        file.descriptor.file_path
        for file in table.snapshot(2).files.data_files()
        if file.descriptor is not None
    ]
    (builder.root / str(vector)).unlink()
    with (
        patch.object(available_files, "_SINGLY", 0 if many else 1000),
        pytest.raises(ObjectNotFoundError) as raised,
    ):
        table.restore(2)
    message = str(raised.value)
    assert str(vector) in message
    assert "part-0.parquet" in message
    assert "version 2" in message
    assert "Hint: nothing was changed" in message
    assert table.version == 4
    table.restore(3)  # needs the other vector alone
    assert len(ids(table)) == 17


def test_a_gone_data_file_is_named(builder: TableBuilder, table: DeltaTable) -> None:
    (builder.root / "part-1.parquet").unlink()
    with pytest.raises(ObjectNotFoundError, match=r"part-1\.parquet \(a data file\)"):
        table.restore(1)
    assert table.version == 4


def test_a_damaged_newest_vector_does_no_harm(builder: TableBuilder, table: DeltaTable) -> None:
    [newest] = [file.descriptor for file in table.snapshot().files.data_files()]
    assert newest is not None
    (builder.root / str(newest.file_path)).unlink()
    table.restore(2)
    assert len(ids(table)) == 18


@pytest.mark.parametrize(
    ("days", "refused"),
    [(6.9, ""), (8, "part-0.parquet was removed at"), (None, "was removed longer ago")],
)
def test_expired_files_do_not_come_back(tmp_path: Path, days: float | None, refused: str) -> None:
    made, [add] = table_with(tmp_path / "t", {"id": [1, 2]})
    made.commit(tombstone(add, days))
    table = made.handle
    if refused:
        with pytest.raises(InvalidArgumentError, match=refused) as raised:
            table.restore(1)
        assert table.version == 2
    if days == 8:
        assert "'interval 10 days'" in str(raised.value)
        table.set_properties({"delta.deletedFileRetentionDuration": "interval 10 days"})
    if days is not None:
        table.restore(1)
        assert ids(table) == [1, 2]


def test_old_vectors_come_back_where_their_files_are_live(tmp_path: Path) -> None:
    """The tombstone has expired, but live entries keep the data file, or both files."""
    made = TableBuilder.made(tmp_path / "t")
    add = made.write_file("part-0.parquet", {"id": list(range(10))})
    other = made.write_file("part-1.parquet", {"id": list(range(10, 20))})
    made.commit({"add": add}, {"add": other})
    first, second, third = made.write_vectors([0], [0, 1], [5])
    one, two = with_vector(add, first), with_vector(add, second)
    kept = with_vector(other, third)
    made.commit({"remove": gone(add, days_ago=30)}, {"add": one})
    made.commit({"remove": gone(one, days_ago=30)}, {"add": two})
    made.commit({"remove": gone(other, days_ago=30)}, {"add": kept})
    table = made.handle
    for version in (1, 2, 3):
        wanted = ids(table, version)
        table.restore(version)
        assert ids(table) == wanted


def test_an_inline_vector_comes_back(tmp_path: Path) -> None:
    made, [add] = table_with(tmp_path / "t", {"id": list(range(10))})
    marked = with_vector(add, INLINE)
    made.commit({"remove": gone(add)}, {"add": marked})
    made.commit({"remove": gone(marked)})
    table = made.handle
    table.restore(2)
    assert ids(table) == [1, 2, 3, 4, 6, 7, 8, 9]
    assert actions(table, "add")[0]["deletionVector"] == INLINE


def test_an_absolute_vector_inside_and_outside_the_table_is_checked(tmp_path: Path) -> None:
    made = TableBuilder.made(tmp_path / "t")
    elsewhere = TableBuilder(tmp_path / "other")
    add = made.append("part-0.parquet", {"id": list(range(10))})
    [vector] = elsewhere.write_vectors([0, 9])
    path = elsewhere.vector_path()
    marked = with_vector(add, vector | {"storageType": "p", "pathOrInlineDv": f"file:{path}"})
    made.commit({"remove": gone(add)}, {"add": marked})
    made.commit({"remove": gone(marked)})
    table = made.handle
    table.restore(2)
    assert ids(table) == list(range(1, 9))
    table.restore(3)
    path.unlink()
    with pytest.raises(ObjectNotFoundError, match="deletion_vector"):
        table.restore(2)


def test_entries_come_back_from_a_checkpoint(builder: TableBuilder, table: DeltaTable) -> None:
    table.restore(2)
    table.checkpoint()
    live = ids(table)
    table.restore(1)
    for version in range(5):
        builder.commit_path(version).unlink()
    fresh = builder.handle
    fresh.restore(5)
    assert ids(fresh) == live
    [marked] = [add for add in actions(fresh, "add") if "deletionVector" in add]
    assert "maxRowIndex" not in marked["deletionVector"]
    assert marked["dataChange"]
    assert "stats_parsed" not in marked


def upgraded(tmp_path: Path) -> TableBuilder:
    """Version 1 is before deletion vectors, version 2 switches them on, version 3 has one."""
    made = TableBuilder.made(tmp_path / "t", protocol=legacy(1, 2), properties={})
    add = made.append("part-0.parquet", {"id": list(range(10))})
    made.protocol = TableBuilder(tmp_path).protocol
    made.properties = {"delta.enableDeletionVectors": "true"}
    made.commit({"protocol": made.protocol}, {"metaData": made.metadata()})
    [vector] = made.write_vectors([2])
    made.commit({"remove": gone(add)}, {"add": with_vector(add, vector)})
    return made


def test_the_protocol_stays_when_a_version_before_vectors_is_restored(tmp_path: Path) -> None:
    table = DeltaTable.for_path(None, upgraded(tmp_path).root)
    table.restore(1)
    assert ids(table) == list(range(10))
    assert table.protocol.has_vectors
    assert table.protocol.supported >= {"deletionVectors", "appendOnly", "invariants"}
    assert table.properties == {}
    table.restore(3)
    assert (len(ids(table)), table.properties) == (9, {"delta.enableDeletionVectors": "true"})
    assert table.protocol.has_vectors


def test_the_protocol_goes_up_when_a_version_with_vectors_is_restored(tmp_path: Path) -> None:
    """After a downgrade, versions that need vectors bring the feature back."""
    made = upgraded(tmp_path)
    table = made.handle
    [entry] = table.snapshot().files.entries()
    rest = made.write_file("part-1.parquet", {"id": [0, 1]})
    plain: Action = legacy(1, 2)
    made.properties = {}
    made.commit(
        {"protocol": plain},
        {"metaData": made.metadata()},
        {"remove": gone(dict(entry.add))},
        {"add": rest},
    )
    before = table.protocol
    table.restore(3)
    assert len(ids(table)) == 9
    assert (before.has_vectors, table.protocol.has_vectors) == (False, True)
    assert table.protocol.min_writer_version == 7


def test_unknown_features_of_a_version_are_refused_by_name(tmp_path: Path) -> None:
    made = TableBuilder(tmp_path / "t")
    made.protocol["writerFeatures"] = ["deletionVectors", "fancyWrites"]
    made.create()
    made.protocol["writerFeatures"] = ["deletionVectors"]
    made.commit({"protocol": made.protocol})
    with pytest.raises(UnsupportedFeatureError, match="fancyWrites"):
        made.handle.restore(0)


def test_append_only_tables_are_refused(tmp_path: Path) -> None:
    made = TableBuilder.made(tmp_path / "t")
    made.protocol["writerFeatures"] = ["deletionVectors", "appendOnly"]
    made.properties = {"delta.appendOnly": "true"}
    made.commit({"protocol": made.protocol}, {"metaData": made.metadata()})
    with pytest.raises(UnsupportedFeatureError, match="append-only"):
        made.handle.restore(0)


def test_columns_and_properties_are_those_of_the_wanted_version(tmp_path: Path) -> None:
    made = TableBuilder.made(
        tmp_path / "t", properties={"delta.logRetentionDuration": "interval 9 days"}
    )
    table = made.handle
    table.add_columns(_schema({"note": "string"}))
    table.set_properties({"delta.logRetentionDuration": "interval 3 days"})
    table.restore(0)
    assert table.schema.names == ("id",)
    assert table.properties == {"delta.logRetentionDuration": "interval 9 days"}


def _schema(columns: dict[str, str]) -> StructType:
    return StructType(tuple(Field(name, PrimitiveType(kind)) for name, kind in columns.items()))


def test_ids_of_columns_are_not_given_twice(tmp_path: Path) -> None:
    table = DeltaTable.create(
        None,
        tmp_path / "t",
        _schema({"id": "long"}),
        properties={"delta.columnMapping.mode": "name"},
    )
    table.add_columns(_schema({"a": "long", "b": "long"}))
    table.restore(0)
    table.add_columns(_schema({"c": "long"}))
    assert (table.schema.names, table.schema.field("c").field_id) == (("id", "c"), 4)
    assert table.properties["delta.columnMapping.maxColumnId"] == "4"


def test_a_version_before_column_mapping_comes_back(tmp_path: Path) -> None:
    made, _ = table_with(tmp_path / "t", {"id": [1, 2]})
    table = made.handle
    table.add_feature("columnMapping")
    table.set_properties({"delta.columnMapping.mode": "name"})
    table.rename_column("id", "key")
    table.restore(1)
    assert ids(table) == [1, 2]
    table.restore(4)
    assert table.to_arrow().column_names == ["key"]


def identity(mark: int | None, step: int = 2) -> dict[str, Any]:
    metadata = {"delta.identity.start": 1, "delta.identity.step": step}
    if mark is not None:
        metadata["delta.identity.highWaterMark"] = mark
    column = field_of("id", "long", **metadata)
    return {"type": "struct", "fields": [column]}


@pytest.mark.parametrize(
    ("step", "then", "now", "mark"),
    [(2, 5, 21, 21), (2, 21, 5, 21), (2, None, 7, 7), (2, 5, None, 5), (-2, -3, -9, -9)],
)
def test_identities_go_on(
    tmp_path: Path, step: int, then: int | None, now: int | None, mark: int
) -> None:
    made = TableBuilder(tmp_path / "t")
    made.protocol["writerFeatures"] = ["deletionVectors", "identityColumns"]
    first, second = (
        made.metadata() | {"schemaString": json.dumps(identity(each, step))} for each in (then, now)
    )
    made.commit({"protocol": made.protocol}, {"metaData": first})
    made.commit({"metaData": second})
    table = made.handle
    table.restore(0)
    found = table.schema.field("id").metadata
    assert found["delta.identity.highWaterMark"] == mark


def tracked(tmp_path: Path, **properties: str) -> TableBuilder:
    made = TableBuilder(tmp_path / "t")
    made.protocol["writerFeatures"] = ["deletionVectors", "rowTracking", "domainMetadata"]
    made.properties = {
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_ids",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_versions",
        **properties,
    }
    return made


def domain(name: str, text: str, *, is_removed: bool = False) -> Action:
    body = {"domain": name, "configuration": text, "removed": is_removed}
    return {"domainMetadata": body}


def mark_of(mark: int) -> Action:
    return domain("delta.rowTracking", json.dumps({"rowIdHighWaterMark": mark}))


def test_row_ids_come_back_and_the_mark_stays(tmp_path: Path) -> None:
    made = tracked(tmp_path)
    made.create()
    first = made.write_file("part-0.parquet", {"id": [1, 2]})
    first |= {"baseRowId": 0, "defaultRowCommitVersion": 1}
    made.commit({"add": first}, mark_of(1))
    second = made.write_file("part-1.parquet", {"id": [3, 4]})
    second |= {"baseRowId": 2, "defaultRowCommitVersion": 2}
    made.commit({"remove": gone(first)}, {"add": second}, mark_of(3))
    table = made.handle
    table.restore(1)
    [add] = actions(table, "add")
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (0, 1)
    assert table.snapshot().domains["delta.rowTracking"] == '{"rowIdHighWaterMark": 3}'


def test_files_from_before_row_tracking_get_ids(tmp_path: Path) -> None:
    made = tracked(tmp_path)
    plain, [old] = table_with(made.root, {"id": [1, 2]})
    plain.commit({"remove": gone(old)})
    made.version = plain.version
    made.commit({"protocol": made.protocol}, {"metaData": made.metadata()}, mark_of(6))
    table = made.handle
    table.restore(1)
    [add] = actions(table, "add")
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (7, 4)
    assert table.snapshot().domains["delta.rowTracking"] == '{"rowIdHighWaterMark":8}'
    # Row tracking is off again, and still supported.
    assert "rowTracking" in table.protocol.supported
    assert table.properties["delta.rowTracking.materializedRowIdColumnName"] == "_ids"


def test_dropped_row_tracking_comes_back_with_its_ids_and_mark(tmp_path: Path) -> None:
    made = tracked(tmp_path)
    made.create()
    kept, lost = (
        made.write_file(f"part-{number}.parquet", {"id": [number]})
        | {"baseRowId": number, "defaultRowCommitVersion": 1}
        for number in (0, 1)
    )
    made.commit({"add": kept}, {"add": lost}, mark_of(1))
    bare = {
        key: value
        for key, value in kept.items()
        if key not in ("baseRowId", "defaultRowCommitVersion")
    }
    made.protocol["writerFeatures"] = ["deletionVectors"]
    made.properties = {}
    made.commit(
        {"protocol": made.protocol},
        {"metaData": made.metadata()},
        domain("delta.rowTracking", "", is_removed=True),
        {"add": bare | {"dataChange": False}},
        {"remove": gone(lost)},
    )
    table = made.handle
    table.restore(1)
    entries = {entry.path: entry.add for entry in table.snapshot().files.entries()}
    assert {path: add["baseRowId"] for path, add in entries.items()} == {
        "part-0.parquet": 0,
        "part-1.parquet": 1,
    }
    assert not entries["part-0.parquet"]["dataChange"]
    assert table.snapshot().domains["delta.rowTracking"] == '{"rowIdHighWaterMark":1}'


CLUSTERED = '{"clusteringColumns":[["id"]],"domainName":"delta.clustering"}'


@pytest.mark.parametrize(
    ("then", "now", "after"),
    [
        (CLUSTERED, '{"clusteringColumns":[]}', CLUSTERED),
        (None, CLUSTERED, '{"clusteringColumns":[],"domainName":"delta.clustering"}'),
        (CLUSTERED, CLUSTERED, CLUSTERED),
        (CLUSTERED, None, CLUSTERED),
    ],
)
def test_clustering_comes_back(
    tmp_path: Path, then: str | None, now: str | None, after: str
) -> None:
    made = TableBuilder(tmp_path / "t")
    made.protocol["writerFeatures"] = ["deletionVectors", "clustering", "domainMetadata"]
    made.create()
    mine = domain("mine", "1")
    made.commit(*([] if then is None else [domain("delta.clustering", then)]), mine)
    drop = domain("delta.clustering", "", is_removed=True)
    made.commit(drop if now is None else domain("delta.clustering", now), domain("mine", "2"))
    made.commit({"metaData": made.metadata() | {"description": "changed"}})
    table = made.handle
    table.restore(1)
    assert table.snapshot().domains == {"delta.clustering": after, "mine": "2"}


def times(since: int | None) -> dict[str, str]:
    found = {"delta.enableInCommitTimestamps": "true"}
    if since is not None:
        found["delta.inCommitTimestampEnablementVersion"] = str(since)
        found["delta.inCommitTimestampEnablementTimestamp"] = str(LATER - 1000 + since)
    return found


@pytest.mark.parametrize(
    ("then", "now", "after"),
    [
        (times(1), times(3), times(3)),  # off in between
        (times(None), times(None), times(None)),
        ({}, times(3), {}),
    ],
)
def test_in_commit_timestamps_are_those_of_the_commits(
    tmp_path: Path, then: dict[str, str], now: dict[str, str], after: dict[str, str]
) -> None:
    made = TableBuilder(tmp_path / "t")
    made.protocol["writerFeatures"] = ["deletionVectors", "inCommitTimestamp"]
    made.properties = then
    made.create()
    made.properties = now
    made.commit({"metaData": made.metadata() | {"description": "changed"}})
    path = made.commit_path(made.version)
    text = path.read_text().replace('"operation"', f'"inCommitTimestamp": {LATER}, "operation"', 1)
    path.write_text(text)
    table = made.handle
    table.restore(0)
    assert table.properties == after
    [info] = actions(table, "commitInfo")
    assert info.get("inCommitTimestamp") == (LATER + 1 if after else None)


def test_a_version_that_switches_commit_timestamps_on_says_since_when(tmp_path: Path) -> None:
    made = TableBuilder(tmp_path / "t")
    made.protocol["writerFeatures"] = ["deletionVectors", "inCommitTimestamp"]
    made.properties = times(0)
    made.create()
    made.properties = {}
    made.commit({"metaData": made.metadata()})
    table = made.handle
    table.restore(0)
    assert table.properties["delta.inCommitTimestampEnablementVersion"] == "2"
    [info] = actions(table, "commitInfo")
    since = table.properties["delta.inCommitTimestampEnablementTimestamp"]
    assert since == str(info["inCommitTimestamp"])


def test_concurrent_appends_and_deletes_are_undone(
    builder: TableBuilder, table: DeltaTable
) -> None:
    """They may come before or after the restore, not in between: rows of version 1 alone remain."""
    assert raced(builder, table, [{"add": builder.write_file("new.parquet", {"id": [99]})}]) == 2
    assert ids(table) == list(range(20))
    table.restore(4)
    builder.version = table.version
    [live] = table.snapshot().files.entries()
    [vector] = builder.write_vectors([0, 1, 3, 9])
    winner = [{"remove": gone(dict(live.add))}, {"add": with_vector(dict(live.add), vector)}]
    assert (raced(builder, table, winner), ids(table)) == (2, list(range(20)))


def test_a_file_that_is_changed_meanwhile_conflicts(
    builder: TableBuilder, table: DeltaTable
) -> None:
    table.restore(3)
    builder.version = table.version
    other = next(e for e in table.snapshot().files.entries() if e.path == "part-1.parquet")
    [vector] = builder.write_vectors([5])
    winner = [{"remove": gone(dict(other.add))}, {"add": with_vector(dict(other.add), vector)}]
    assert (raced(builder, table, winner, version=2), ids(table)) == (2, ids(table, 2))


def raced(
    builder: TableBuilder, table: DeltaTable, winner: Sequence[Action], version: int = 1
) -> int:
    """Restore while another writer commits first; return the attempts."""
    check = available_files.require_files
    waiting = [list(winner)]

    def checked(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        check(*args, **kwargs)
        if waiting:
            builder.commit(*waiting.pop())

    with patch("delvec.delta.maintain.restore.require_files", checked):
        return table.restore(version).attempts


def test_the_report_names_removed_files_that_lie_outside_of_the_table(tmp_path: Path) -> None:
    builder = TableBuilder.made(tmp_path / "t")
    elsewhere = builder.write_file("../elsewhere/a.parquet", {"id": range(5)})
    builder.add(elsewhere | {"path": f"{tmp_path}/elsewhere/a.parquet"})
    builder.append("b.parquet", {"id": range(5)})
    report = builder.handle.restore(0)
    assert report.files_removed == 2
    [note] = [each for each in report.notes if "outside of the table's folder" in each]
    assert "1 file" in note
    assert f"{tmp_path}/elsewhere/a.parquet" in note


@pytest.mark.parametrize("singly", [0, 1000])
def test_files_behind_a_link_to_a_folder_are_there(tmp_path: Path, singly: int) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t").mkdir()
    (tmp_path / "t/linked").symlink_to(tmp_path / "elsewhere")
    for name in ("t/here.parquet", "t/linked/there.parquet"):
        (tmp_path / name).write_bytes(b"x")
    storage = Storage.open(tmp_path / "t")
    wanted = ["here.parquet", "linked/there.parquet", "gone.parquet"]
    with patch.object(available_files, "_SINGLY", singly):
        assert available_files.missing_files(storage, wanted) == ["gone.parquet"]
