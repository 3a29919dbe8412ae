"""RESTORE without Spark: files and vectors of a version come back, or the command refuses."""

from __future__ import annotations

import json
import os
import re
import time
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
from tests.delta import log_files
from tests.delta.builder import (
    INLINE_TWO,
    MAPPED,
    Action,
    TableBuilder,
    field_of,
    legacy,
    protocol_of,
    removed,
    table_with,
)
from tests.delta.vacuum.aging import tombstone

LATER = 1_900_000_000_000


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


def actions(table: DeltaTable, kind: str) -> list[Action]:
    newest = log_files.commits(Path(table.storage.root))[-1]
    return [action[kind] for action in newest if kind in action]


def featured(root: Path, *writers: str, **options: Any) -> TableBuilder:  # noqa: ANN401
    """Begin a table with features that writers have to know."""
    protocol = protocol_of("deletionVectors", writers=writers)
    return TableBuilder(root / "t", protocol=protocol, **options)


def restored(made: TableBuilder, version: int) -> DeltaTable:
    made.handle.restore(version)
    return made.handle


@pytest.fixture
def builder(tmp_path: Path) -> TableBuilder:
    """Five versions: two files; a vector for one; a larger one; the other file is gone.

    1: 0 to 19. 2: without 0 and 9. 3: without 3 too. 4: 1, 2 and 4 to 8 alone.
    """
    made = TableBuilder.made(tmp_path / "t")
    first = made.write_file("part-0.parquet", {"id": range(10)}) | {"tags": {"origin": "here"}}
    second = made.write_file("part-1.parquet", {"id": range(10, 20)})
    made.add(first, second)
    [small], [large] = made.write_vectors([0, 9]), made.write_vectors([0, 3, 9])
    made.commit({"remove": gone(first)}, {"add": with_vector(first, small)})
    made.commit({"remove": gone(with_vector(first, small))}, {"add": with_vector(first, large)})
    made.commit({"remove": gone(second)})
    return made


@pytest.fixture
def table(builder: TableBuilder) -> DeltaTable:
    return builder.handle


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_rows_are_those_of_the_wanted_version(table: DeltaTable, version: int) -> None:
    before = {each: ids(table, each) for each in range(5)}
    assert (table.restore(version).version, ids(table)) == (5, before[version])
    assert {each: ids(table, each) for each in range(5)} == before
    # Vectors grow again, and go again.
    for again in (3, 1):
        table.restore(again)
        assert ids(table) == before[again]


def test_entries_come_back_whole_and_as_changes_of_rows(table: DeltaTable) -> None:
    table.restore(2)
    [marked, second] = sorted(actions(table, "add"), key=lambda add: str(add["path"]))
    assert (marked["tags"], marked["dataChange"]) == ({"origin": "here"}, True)
    assert json.loads(marked["stats"]) == {"numRecords": 10, "tightBounds": False}
    [old] = actions(table, "remove")
    assert (second["path"], old["path"]) == ("part-1.parquet", "part-0.parquet")
    assert [each["deletionVector"]["cardinality"] for each in (marked, old)] == [2, 3]
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
    assert re.search("version 2 has 2 files.*18 rows$", report.notes[0])


@pytest.mark.parametrize("version", [4, 2])
def test_the_newest_version_is_nothing_to_do(table: DeltaTable, version: int) -> None:
    if version == 2:
        table.restore(2)  # the same files, and the same metadata
    report = table.restore(version)
    assert report.version is None
    assert report.notes


def test_a_time_is_a_version(builder: TableBuilder, table: DeltaTable) -> None:
    for number in range(5):
        os.utime(builder.commit_path(number), (1e9 + number * 60, 1e9 + number * 60))
    table.restore(timestamp=datetime.fromtimestamp(1e9 + 150, timezone.utc).isoformat())
    assert len(ids(table)) == 18
    [(name, _)] = table.arrow_history().to_pylist()[0]["operationParameters"]
    assert name == "timestamp"


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


def vector_of(table: DeltaTable, version: int) -> str:
    descriptors = [file.descriptor for file in table.snapshot(version).files.data_files()]
    [path] = [str(each.file_path) for each in descriptors if each is not None]
    return path


@pytest.mark.parametrize("many", [False, True])
def test_a_gone_vector_is_named(table: DeltaTable, *, many: bool) -> None:
    vector = vector_of(table, 2)
    table.storage.delete([vector])
    match = f"(?s)version 2.*{vector}.*part-0.parquet.*Hint: nothing was changed"
    singly = patch.object(available_files, "_SINGLY", 0 if many else 1000)
    with singly, pytest.raises(ObjectNotFoundError, match=match):
        table.restore(2)
    assert table.version == 4
    table.restore(3)  # needs the other vector alone
    assert len(ids(table)) == 17


def test_a_gone_data_file_is_named(table: DeltaTable) -> None:
    table.storage.delete(["part-1.parquet"])
    with pytest.raises(ObjectNotFoundError, match=r"part-1\.parquet \(a data file\)"):
        table.restore(1)
    assert table.version == 4


def test_a_damaged_newest_vector_does_no_harm(table: DeltaTable) -> None:
    table.storage.delete([vector_of(table, 4)])
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
    made, [add, other] = table_with(tmp_path, {"id": range(10)}, {"id": range(10, 20)})
    first, second, third = made.write_vectors([0], [0, 1], [5])
    one, two, kept = with_vector(add, first), with_vector(add, second), with_vector(other, third)
    for old, new in ((add, one), (one, two), (other, kept)):
        made.commit({"remove": gone(old, days_ago=30)}, {"add": new})
    for version in (1, 2, 3):
        wanted = ids(made.handle, version)
        assert ids(restored(made, version)) == wanted


def test_inline_and_absolute_vectors_come_back(tmp_path: Path) -> None:
    made, [add] = table_with(tmp_path / "t", {"id": range(10)})
    elsewhere = TableBuilder(tmp_path / "other")
    [vector] = elsewhere.write_vectors([0, 9])
    path = elsewhere.vector_path()
    absolute = vector | {"storageType": "p", "pathOrInlineDv": f"file:{path}"}
    inline, outside = with_vector(add, INLINE_TWO), with_vector(add, absolute)
    made.commit({"remove": gone(add)}, {"add": inline})
    made.commit({"remove": gone(inline)}, {"add": outside})
    made.commit({"remove": gone(outside)})
    table = restored(made, 2)
    assert ids(table) == [1, 2, 3, 4, 6, 7, 8, 9]
    assert actions(table, "add")[0]["deletionVector"] == INLINE_TWO
    assert ids(restored(made, 3)) == list(range(1, 9))
    table.restore(4)
    path.unlink()
    with pytest.raises(ObjectNotFoundError, match="deletion_vector"):
        table.restore(3)


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
    add = made.append("part-0.parquet", {"id": range(10)})
    made.protocol = TableBuilder(tmp_path).protocol
    made.properties = {"delta.enableDeletionVectors": "true"}
    made.redefine()
    [vector] = made.write_vectors([2])
    made.commit({"remove": gone(add)}, {"add": with_vector(add, vector)})
    return made


def test_the_protocol_stays_when_a_version_before_vectors_is_restored(tmp_path: Path) -> None:
    made = upgraded(tmp_path)
    table = restored(made, 1)
    assert (ids(table), table.properties) == (list(range(10)), {})
    assert table.protocol.has_vectors
    assert table.protocol.supported >= {"deletionVectors", "appendOnly", "invariants"}
    table = restored(made, 3)
    assert (len(ids(table)), table.properties) == (9, {"delta.enableDeletionVectors": "true"})
    assert table.protocol.has_vectors


def test_the_protocol_goes_up_when_a_version_with_vectors_is_restored(tmp_path: Path) -> None:
    """After a downgrade, versions that need vectors bring the feature back."""
    made = upgraded(tmp_path)
    [entry] = made.handle.snapshot().files.entries()
    rest = made.write_file("part-1.parquet", {"id": [0, 1]})
    made.protocol, made.properties = legacy(1, 2), {}
    made.redefine({"remove": gone(dict(entry.add))}, {"add": rest})
    assert not made.handle.protocol.has_vectors
    table = restored(made, 3)
    assert len(ids(table)) == 9
    assert (table.protocol.has_vectors, table.protocol.min_writer_version) == (True, 7)


@pytest.mark.parametrize(
    ("then", "now", "properties", "message"),
    [
        (["fancyWrites"], [], {}, "fancyWrites"),
        ([], ["appendOnly"], {"delta.appendOnly": "true"}, "append-only"),
    ],
)
def test_features_of_either_version_may_refuse(
    tmp_path: Path, then: list[str], now: list[str], properties: dict[str, str], message: str
) -> None:
    made = featured(tmp_path, *then)
    made.create()
    made.protocol, made.properties = protocol_of("deletionVectors", writers=now), properties
    made.redefine()
    with pytest.raises(UnsupportedFeatureError, match=message):
        made.handle.restore(0)


def test_columns_and_properties_are_those_of_the_wanted_version(tmp_path: Path) -> None:
    before = {"delta.logRetentionDuration": "interval 9 days"}
    made = TableBuilder.made(tmp_path / "t", properties=before)
    made.handle.add_columns(_schema({"note": "string"}))
    made.handle.set_properties({"delta.logRetentionDuration": "interval 3 days"})
    table = restored(made, 0)
    assert (table.schema.names, table.properties) == (("id",), before)


def _schema(columns: dict[str, str]) -> StructType:
    return StructType(tuple(Field(name, PrimitiveType(kind)) for name, kind in columns.items()))


def test_ids_of_columns_are_not_given_twice(tmp_path: Path) -> None:
    table = DeltaTable.create(None, tmp_path, _schema({"id": "long"}), properties=MAPPED)
    table.add_columns(_schema({"a": "long", "b": "long"}))
    table.restore(0)
    table.add_columns(_schema({"c": "long"}))
    assert (table.schema.names, table.schema.field("c").field_id) == (("id", "c"), 4)
    assert table.properties["delta.columnMapping.maxColumnId"] == "4"


def test_a_version_before_column_mapping_comes_back(tmp_path: Path) -> None:
    made, _ = table_with(tmp_path, {"id": [1, 2]})
    table = made.handle
    table.add_feature("columnMapping")
    table.set_properties(MAPPED)
    table.rename_column("id", "key")
    assert (ids(restored(made, 1)), restored(made, 4).to_arrow().column_names) == ([1, 2], ["key"])


def identity(mark: int | None, step: int = 2) -> list[Action]:
    metadata = {"start": 1, "step": step} | ({} if mark is None else {"highWaterMark": mark})
    named = {f"delta.identity.{name}": value for name, value in metadata.items()}
    return [field_of("id", "long", **named)]


@pytest.mark.parametrize(
    ("step", "then", "now", "mark"),
    [(2, 5, 21, 21), (2, 21, 5, 21), (2, None, 7, 7), (2, 5, None, 5), (-2, -3, -9, -9)],
)
def test_identity_grows(
    tmp_path: Path, step: int, then: int | None, now: int | None, mark: int
) -> None:
    made = featured(tmp_path, "identityColumns", fields=identity(then, step))
    made.create()
    made.fields = identity(now, step)
    made.redefine()
    assert restored(made, 0).schema.field("id").metadata["delta.identity.highWaterMark"] == mark


def tracked(tmp_path: Path) -> TableBuilder:
    made = featured(tmp_path, "rowTracking", "domainMetadata")
    names = {"RowId": "_ids", "RowCommitVersion": "_versions"}
    columns = {f"delta.rowTracking.materialized{k}ColumnName": v for k, v in names.items()}
    made.properties = {"delta.enableRowTracking": "true", **columns}
    return made


def with_ids(add: Action, base: int, version: int = 1) -> Action:
    return add | {"baseRowId": base, "defaultRowCommitVersion": version}


def domain(name: str, text: str, *, is_removed: bool = False) -> Action:
    body = {"domain": name, "configuration": text, "removed": is_removed}
    return {"domainMetadata": body}


def mark_of(mark: int) -> Action:
    return domain("delta.rowTracking", json.dumps({"rowIdHighWaterMark": mark}))


def test_row_ids_come_back_and_the_mark_stays(tmp_path: Path) -> None:
    made = tracked(tmp_path)
    made.create()
    first = with_ids(made.write_file("part-0.parquet", {"id": [1, 2]}), 0)
    made.commit({"add": first}, mark_of(1))
    second = with_ids(made.write_file("part-1.parquet", {"id": [3, 4]}), 2, 2)
    made.commit({"remove": gone(first)}, {"add": second}, mark_of(3))
    table = restored(made, 1)
    [add] = actions(table, "add")
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (0, 1)
    assert table.snapshot().domains["delta.rowTracking"] == '{"rowIdHighWaterMark": 3}'


def test_files_from_before_row_tracking_get_ids(tmp_path: Path) -> None:
    made = tracked(tmp_path)
    plain, [old] = table_with(made.root, {"id": [1, 2]})
    plain.commit({"remove": gone(old)})
    made.version = plain.version
    made.redefine(mark_of(6))
    table = restored(made, 1)
    [add] = actions(table, "add")
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (7, 4)
    assert table.snapshot().domains["delta.rowTracking"] == '{"rowIdHighWaterMark":8}'
    # Row tracking is off again, and still supported.
    assert "rowTracking" in table.protocol.supported
    assert table.properties["delta.rowTracking.materializedRowIdColumnName"] == "_ids"


def test_dropped_row_tracking_comes_back_with_its_ids_and_mark(tmp_path: Path) -> None:
    made = tracked(tmp_path)
    made.create()
    bare, lost = (made.write_file(f"part-{n}.parquet", {"id": [n]}) for n in (0, 1))
    lost = with_ids(lost, 1)
    made.commit({"add": with_ids(bare, 0)}, {"add": lost}, mark_of(1))
    made.protocol, made.properties = TableBuilder(tmp_path).protocol, {}
    made.redefine(
        domain("delta.rowTracking", "", is_removed=True),
        {"add": bare | {"dataChange": False}},
        {"remove": gone(lost)},
    )
    snapshot = restored(made, 1).snapshot()
    entries = {entry.path: entry.add for entry in snapshot.files.entries()}
    rows = {path: add["baseRowId"] for path, add in entries.items()}
    assert rows == {"part-0.parquet": 0, "part-1.parquet": 1}
    assert not entries["part-0.parquet"]["dataChange"]
    assert snapshot.domains["delta.rowTracking"] == '{"rowIdHighWaterMark":1}'


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
def test_clustering_returns(tmp_path: Path, then: str | None, now: str | None, after: str) -> None:
    made = featured(tmp_path, "clustering", "domainMetadata")
    made.create()
    made.commit(*([] if then is None else [domain("delta.clustering", then)]), domain("mine", "1"))
    drop = domain("delta.clustering", "", is_removed=True)
    made.commit(drop if now is None else domain("delta.clustering", now), domain("mine", "2"))
    made.redefine(description="changed")
    assert restored(made, 1).snapshot().domains == {"delta.clustering": after, "mine": "2"}


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
    made = featured(tmp_path, "inCommitTimestamp", properties=then)
    made.create()
    made.properties = now
    made.redefine(description="changed")
    path = made.commit_path(made.version)
    text = path.read_text().replace('"operation"', f'"inCommitTimestamp": {LATER}, "operation"', 1)
    path.write_text(text)
    table = restored(made, 0)
    assert table.properties == after
    [info] = actions(table, "commitInfo")
    assert info.get("inCommitTimestamp") == (LATER + 1 if after else None)


def test_a_version_that_switches_commit_timestamps_on_says_since_when(tmp_path: Path) -> None:
    made = featured(tmp_path, "inCommitTimestamp", properties=times(0))
    made.create()
    made.properties = {}
    made.redefine()
    table = restored(made, 0)
    [info] = actions(table, "commitInfo")
    assert table.properties["delta.inCommitTimestampEnablementVersion"] == "2"
    since = table.properties["delta.inCommitTimestampEnablementTimestamp"]
    assert since == str(info["inCommitTimestamp"])


def delete_of(builder: TableBuilder, table: DeltaTable, path: str, rows: list[int]) -> list[Action]:
    """The next commit of another writer, which deletes rows of a live file."""
    builder.version = table.version
    [live] = [dict(e.add) for e in table.snapshot().files.entries() if e.path == path]
    [vector] = builder.write_vectors(rows)
    return [{"remove": gone(live)}, {"add": with_vector(live, vector)}]


def test_what_others_commit_meanwhile_is_undone_by_the_second_attempt(
    builder: TableBuilder, table: DeltaTable
) -> None:
    """They may come before or after the restore, not in between: rows of one version remain."""
    new = builder.write_file("new.parquet", {"id": [99]})
    assert (raced(builder, table, [{"add": new}]), ids(table)) == (2, list(range(20)))
    table.restore(4)
    winner = delete_of(builder, table, "part-0.parquet", [0, 1, 3, 9])
    assert (raced(builder, table, winner), ids(table)) == (2, list(range(20)))
    # A file that stays, and is changed meanwhile.
    table.restore(3)
    winner = delete_of(builder, table, "part-1.parquet", [5])
    assert (raced(builder, table, winner, version=2), ids(table)) == (2, ids(table, 2))


def raced(builder: TableBuilder, table: DeltaTable, winner: Any, version: int = 1) -> int:  # noqa: ANN401
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
    path = f"{tmp_path}/elsewhere/a.parquet"
    builder.add(builder.write_file("../elsewhere/a.parquet", {"id": range(5)}) | {"path": path})
    builder.append("b.parquet", {"id": range(5)})
    report = builder.handle.restore(0)
    assert report.files_removed == 2
    [note] = [each for each in report.notes if "outside of the table's folder" in each]
    assert "1 file" in note
    assert path in note


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
