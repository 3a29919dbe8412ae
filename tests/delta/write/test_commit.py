"""Commits made by hand: races, lost replies, rules that no commit may break; no JVM."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from delvec import DeltaTable
from delvec.delta.log.file_set import FileEntry
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.change_feed import change_feed
from delvec.delta.skipping.predicate import Always
from delvec.delta.skipping.statistics import record_count, tight_bounds, widen_bounds
from delvec.delta.write.change import (
    AppTransaction,
    Base,
    Change,
    Operation,
    ReadSet,
    SourceRead,
    assign_row_ids,
    high_water_mark,
    materialized_columns,
)
from delvec.delta.write.commit import commit
from delvec.delta.write.commit_actions import remove_body, require_valid
from delvec.delta.write.conflicts import validate_source_read
from delvec.delta.write.report import WriteReport
from delvec.errors import ConflictError, FormatError, PlanError, StorageError, TableNotFoundError
from delvec.storage import Storage
from delvec.storage.uncommitted import UncommittedFiles
from tests.delta.builder import INLINE_TWO, TableBuilder, removed, small_table, table_with
from tests.delta.log_files import commits, newest_version
from tests.delta.write.write_checks import (
    deletion,
    files_below,
    ids,
    live,
    opened,
    put,
    put_next,
    unnamed_files,
)

ID = StructType([StructField("id", LongType())])
FIRST, SECOND = "part-0.parquet", "part-1.parquet"
Logged = pytest.LogCaptureFixture
START = [*range(1, 9), 10, 11, 12, *range(15, 20)]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Version 2: ids 1 to 8 at rows 1 to 8 of a file, 10 to 12 and 15 to 19 in another."""
    return small_table(tmp_path / "t")[0].root


def last(path: Path, kind: str) -> list[dict[str, Any]]:
    return [action[kind] for action in commits(path)[-1] if kind in action]


@pytest.fixture
def late(table: Path) -> Snapshot:
    """Version 2, before what others commit."""
    return opened(table)


def test_a_delete_by_vectors_is_one_commit(table: Path, late: Snapshot) -> None:
    done = put(late, deletion(late, {FIRST: [1], SECOND: [0]}))
    assert (done.version, done.attempts, done.reconciled) == (3, 1, 0)
    assert ids(table) == [each for each in START if each not in (1, 10)]
    for kind, cardinality in (("add", 3), ("remove", 2)):
        found = {body["deletionVector"]["cardinality"] for body in last(table, kind)}
        assert found == {cardinality}
    [info] = last(table, "commitInfo")
    assert (info["readVersion"], info["isBlindAppend"]) == (2, False)


def other_deletes(table: Path, rows: Mapping[str, Iterable[int]]) -> None:
    put_next(table, lambda snapshot: deletion(snapshot, rows))


def test_vectors_of_a_winner_and_ours_are_united(table: Path, late: Snapshot) -> None:
    other_deletes(table, {FIRST: [1, 2]})
    other_deletes(table, {FIRST: [3], SECOND: [9]})
    done = put(late, deletion(late, {FIRST: [4]}))
    assert (done.version, done.attempts, done.reconciled) == (5, 2, 2)
    assert ids(table) == [each for each in START if each not in (1, 2, 3, 4, 19)]
    assert not unnamed_files(table), "the vector of the first attempt is gone"
    assert last(table, "commitInfo")[0]["readVersion"] == 2


def test_a_file_that_two_writers_empty_together_is_removed(table: Path, late: Snapshot) -> None:
    other_deletes(table, {FIRST: range(1, 5)})
    done = put(late, deletion(late, {FIRST: range(5, 9)}))
    assert (done.reconciled, ids(table), last(table, "add")) == (1, START[8:], [])
    assert [body["path"] for body in last(table, "remove")] == [FIRST]


def test_rows_that_a_winner_deleted_too_are_a_conflict(table: Path, late: Snapshot) -> None:
    other_deletes(table, {FIRST: [1, 2]})
    before = files_below(table)
    with pytest.raises(ConflictError, match=r"version 3 .*deletes too: part-0\.parquet") as caught:
        put(late, deletion(late, {FIRST: [2, 3]}))
    error = caught.value
    assert (error.version, error.files, error.attempts) == (3, (FIRST,), 1)
    assert error.hint
    assert files_below(table) == before


def test_a_winner_that_has_lost_its_bytes_is_refused(table: Path, late: Snapshot) -> None:
    other_deletes(table, {FIRST: [1]})
    DeltaTable.for_path(None, table).checkpoint()
    newest = opened(table)
    (table / "_delta_log" / f"{3:020}.json").write_bytes(b"\n")
    before = files_below(table)
    for act in (
        lambda: put(late, deletion(late, {FIRST: [2]})),
        lambda: validate_source_read(newest, SourceRead(2)),
        lambda: change_feed(newest.storage, 2),
    ):
        with pytest.raises(FormatError, match=r"a file of the log is empty in .*3\.json"):
            act()
    assert files_below(table) == before


@pytest.mark.parametrize("kind", ["metaData", "protocol"])
def test_a_winner_that_changed_the_table_conflicts(table: Path, late: Snapshot, kind: str) -> None:
    builder = TableBuilder(table, version=2)
    bodies = {"metaData": builder.metadata(), "protocol": builder.protocol}
    builder.commit({kind: bodies[kind]})
    before = files_below(table)
    with pytest.raises(ConflictError, match=r"changed the (metadata|protocol) of the table"):
        put(late, deletion(late, {FIRST: [1]}))
    assert files_below(table) == before


def test_a_winner_that_brought_rows_back_is_a_conflict(table: Path, late: Snapshot) -> None:
    add = dict(live(late)[FIRST].add)
    plain = {key: value for key, value in add.items() if key != "deletionVector"}
    TableBuilder(table, version=2).commit({"add": plain}, {"remove": removed(add)})
    with pytest.raises(ConflictError, match="restored deleted rows"):
        put(late, deletion(late, {FIRST: [1]}))
    with pytest.raises(ConflictError, match="added rows that this change might be about"):
        put(late, deletion(late, {SECOND: [0]}, Operation("DELETE", reads=ReadSet(Always()))))
    assert put(late, deletion(late, {SECOND: [0]})).version == 4


@pytest.mark.parametrize("level", ["Serializable", "WriteSerializable"])
@pytest.mark.parametrize("alters", [True, False])
def test_rows_that_were_added_blindly(tmp_path: Path, level: str, *, alters: bool) -> None:
    builder = TableBuilder.made(tmp_path / "t", properties={"delta.isolationLevel": level})
    late = opened(builder.root)
    put(late, Change(Operation("WRITE"), added=(added(builder.root, "a", 3),)))
    update = Operation("UPDATE", reads=ReadSet(Always()))
    change = Change(update, metadata=late.metadata if alters else None)
    if level == "WriteSerializable" and not alters:
        assert put(late, change).version == 2
    else:
        with pytest.raises(ConflictError, match="added rows that this change might be about: a"):
            put(late, change)


def test_a_change_that_depends_on_whole_files_can_conflict(table: Path, late: Snapshot) -> None:
    other_deletes(table, {SECOND: [0]})
    row_wise = Operation("DELETE", reads=ReadSet(Always(), frozenset({SECOND})))
    whole = replace(row_wise, reads=replace(row_wise.reads, row_wise=False))
    with pytest.raises(ConflictError, match="whose rows this change depends on"):
        put(late, deletion(late, {FIRST: [1]}, whole))
    assert put(late, deletion(late, {FIRST: [1]}, row_wise)).version == 4


def test_a_transaction_of_the_same_application_is_a_conflict(table: Path, late: Snapshot) -> None:
    def delete(application: str, version: int) -> Change:
        transaction = AppTransaction(application, version)
        return deletion(late, {FIRST: [1]}, Operation("DELETE", transaction=transaction))

    put(late, Change(Operation("WRITE", transaction=AppTransaction("nightly", 3))))
    with pytest.raises(ConflictError, match="committed a transaction of nightly too"):
        put(late, delete("nightly", 7))
    assert put(late, delete("weekly", 1)).version == 4
    assert opened(table).transactions == {"nightly": 3, "weekly": 1}


def test_what_an_application_has_committed_is_not_done_again(table: Path) -> None:
    handle = DeltaTable.for_path(None, table)

    def set_as(application: str, version: int, **properties: str) -> WriteReport:
        named = {f"delta.{name}": value for name, value in properties.items()}
        return handle.set_properties(named, txn_app_id=application, txn_version=version)

    assert set_as("a", 4, appendOnly="false").version == 3
    for version in (4, 3):
        again = set_as("a", version, checkpointInterval="7")
        assert again.version is None
        assert "is in already (the table has 4)" in again.notes[0]
    assert "delta.checkpointInterval" not in handle.properties
    assert set_as("a", 5, checkpointInterval="7").version == 4
    nothing = set_as("b", 1, checkpointInterval="7")
    assert nothing.version == 5, "what is nothing to do is marked as done"
    assert handle.snapshot().transactions == {"a": 5, "b": 1}


@dataclass(frozen=True)
class Unlucky(Storage):
    """A network that loses replies of puts into the log; what became of the put is told."""

    outcome: str = "done"

    def write_if_absent(self, key: str, data: Any) -> None:  # noqa: ANN401
        inside = key.startswith("_delta_log")
        times = {"done": 1, "done and sent again": 2}.get(self.outcome, 0) if inside else 1
        for _ in range(times):
            super().write_if_absent(key, data)
        if inside:
            raise StorageError(f"{key}: connection reset", uri=key)


def through(snapshot: Snapshot, storage: Storage) -> Base:
    return replace(Base.of(snapshot), storage=storage)


@pytest.mark.parametrize("outcome", ["done", "done and sent again"])
def test_a_put_whose_reply_got_lost_is_known(table: Path, late: Snapshot, outcome: str) -> None:
    storage = Unlucky(str(table), outcome=outcome)
    with UncommittedFiles(storage) as uncommitted:
        done = commit(through(late, storage), deletion(late, {FIRST: [1]}), uncommitted)
    assert (done.version, done.attempts, ids(table)) == (3, 1, START[1:])
    assert not unnamed_files(table)


@dataclass(frozen=True)
class Remote(Unlucky):
    """A disk that goes by the name of an object store, where a lost put may still arrive."""

    root: str = ""
    folder: str = ""

    @property
    def _backend(self) -> Any:  # noqa: ANN401
        return Storage(self.folder)._backend


@pytest.mark.parametrize("root", ["", "s3://lake/t"], ids=["disk", "object store"])
def test_files_of_a_commit_of_unknown_fate_stay_in_a_store(table: Path, root: str) -> None:
    snapshot, before = opened(table), files_below(table)
    failing = Unlucky(str(table), outcome="failed")
    storage = Remote(root, outcome="unknown", folder=str(table)) if root else failing
    with pytest.raises(StorageError, match="reset"), UncommittedFiles(storage) as uncommitted:
        commit(through(snapshot, storage), deletion(snapshot, {FIRST: [1]}), uncommitted)
    assert (newest_version(table), ids(table)) == (2, START)
    kept = sorted(files_below(table).keys() - before.keys())
    assert [name.partition("_")[0] for name in kept] == (["deletion"] if root else [])


def test_a_table_that_was_dropped_meanwhile_gets_no_new_log(table: Path) -> None:
    snapshot = opened(table)
    change = deletion(snapshot, {FIRST: [1]})
    shutil.rmtree(table)
    with pytest.raises(TableNotFoundError, match="was dropped while") as caught:
        put(snapshot, change)
    assert caught.value.hint
    assert not table.exists() or not files_below(table)


def test_a_commit_that_is_only_in_its_checkpoint_can_be_built_on(table: Path) -> None:
    snapshot = opened(table)
    DeltaTable.for_path(None, table).checkpoint()
    (table / "_delta_log" / f"{2:020}.json").unlink()
    assert (put(snapshot, deletion(snapshot, {FIRST: [1]})).version, ids(table)) == (3, START[1:])


def test_two_creators_of_a_table(tmp_path: Path) -> None:
    table = DeltaTable.create(None, tmp_path / "t", ID)
    snapshot = table.snapshot()
    creation = Operation("CREATE TABLE")
    change = Change(creation, metadata=snapshot.metadata, protocol=table.protocol)
    refused = pytest.raises(ConflictError, match="has just created")
    with refused, UncommittedFiles(table.storage) as left:
        commit(replace(Base.of(snapshot), version=-1), change, left)


def tracked(root: Path) -> Path:
    names = ("delta.enableRowTracking", "delta.enableInCommitTimestamps")
    DeltaTable.create(None, root, ID, properties=dict.fromkeys(names, "true"))
    return root


def added(root: Path, name: str, rows: int) -> dict[str, Any]:
    return TableBuilder(root).write_file(name, {"id": list(range(rows))})


def test_row_ids_go_on_behind_those_of_a_winner(tmp_path: Path) -> None:
    root = tracked(tmp_path / "t")
    late = opened(root)
    put(opened(root), Change(Operation("WRITE"), added=(added(root, "a", 10), added(root, "b", 5))))
    assert [body["baseRowId"] for body in last(root, "add")] == [0, 10]
    done = put(late, Change(Operation("WRITE"), added=(added(root, "c", 3),)))
    assert (done.version, done.attempts) == (2, 2)
    [add], [mark] = last(root, "add"), last(root, "domainMetadata")
    assert (add["baseRowId"], add["defaultRowCommitVersion"]) == (15, 2)
    assert json.loads(mark["configuration"]) == {"rowIdHighWaterMark": 17}
    assert last(root, "commitInfo")[0]["tags"] == {"delta.rowTracking.preserved": "true"}


def test_times_rise_if_the_clock_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tracked(tmp_path / "t")
    late = opened(root)
    monkeypatch.setattr(time, "time", lambda: 1_000.0)
    for _ in range(2):
        put(opened(root), Change(Operation("WRITE")))
    assert put(late, Change(Operation("WRITE"))).attempts == 2, "behind winners too"
    infos = [action["commitInfo"] for actions in commits(root) for action in actions[:1]]
    times = [info["inCommitTimestamp"] for info in infos]
    assert (times, times[1:]) == (sorted(set(times)), [times[0] + 1, times[0] + 2, times[0] + 3])
    assert infos[-1]["timestamp"] == 1_000_000


def test_ids_need_counts_and_marks_that_are_numbers_and_named_columns(table: Path) -> None:
    metadata = opened(table).metadata
    assert materialized_columns(metadata) is None
    on = replace(metadata, configuration={"delta.enableRowTracking": "true"})
    with pytest.raises(FormatError, match="does not name its materialized columns"):
        materialized_columns(on)
    with pytest.raises(PlanError, match="a has no numRecords"):
        assign_row_ids([{"path": "a"}], -1, 0)
    for text in ("{}", "[]", "x", '{"rowIdHighWaterMark":"4"}', '{"rowIdHighWaterMark":-2}'):
        with pytest.raises(FormatError, match="does not hold a high-water mark"):
            high_water_mark(text)
    assert high_water_mark(None) == -1


# Rules that no commit may break.
Body = dict[str, Any]
STATS = '{"numRecords":10,"tightBounds":false}'


def vector(rows: int = 2, *, offset: int | None = 1, letter: str = "a") -> dict[str, Any]:
    body: dict[str, Any] = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k" + letter,
        "sizeInBytes": 36,
        "cardinality": rows,
    }
    return body if offset is None else body | {"offset": offset}


PLAIN = {"path": "f%20g", "stats": '{"numRecords":10}'}
OLD = PLAIN | {"deletionVector": vector(2)}
NEW = {"path": "f%20g", "stats": STATS, "deletionVector": vector(3, letter="b")}


@pytest.mark.parametrize(
    ("adds", "removes", "says"),
    [
        ([NEW, NEW], [OLD], "is added twice"),
        ([NEW, NEW | {"path": "f g"}], [OLD], "is added twice"),
        ([], [OLD, OLD | {"path": "f g"}], "is removed twice"),
        ([], [{"path": "other"}], "is removed but was not in the version"),
        ([NEW], [PLAIN], "is removed with the vector None, but it had"),
        ([NEW], [], "is added again without a remove"),
        ([NEW | {"stats": "{}"}], [OLD], "has a vector but no numRecords"),
        ([NEW | {"stats": PLAIN["stats"]}], [OLD], "has a vector but tight bounds"),
        ([NEW | {"deletionVector": vector(3, offset=None)}], [OLD], "without an offset"),
        ([NEW | {"deletionVector": INLINE_TWO}], [OLD], "without an offset"),
        ([NEW | {"deletionVector": vector(10, letter="b")}], [OLD], "deletes 10 of 10 rows"),
        ([NEW | {"deletionVector": vector(11, letter="b")}], [OLD], "deletes 11 of 10 rows"),
        ([OLD | {"stats": STATS}], [OLD], "with the same vector"),
        ([NEW | {"deletionVector": vector(1, letter="b")}], [OLD], "2 were deleted, now 1"),
        ([PLAIN], [OLD], "2 were deleted, now 0"),
    ],
)
def test_rows_are_not_brought_back(adds: list[Body], removes: list[Body], says: str) -> None:
    with pytest.raises(PlanError, match=says) as caught:
        require_valid("/lake/t", adds, removes, {"f g": OLD})
    assert "a commit to /lake/t was stopped: " in caught.value.message
    assert "f g " in caught.value.message or "other " in caught.value.message
    assert caught.value.hint


def test_what_keeps_the_rules_passes() -> None:
    require_valid("/t", [NEW], [OLD], {"f g": OLD})
    require_valid("/t", [], [OLD], {"f g": OLD})
    require_valid("/t", [{"path": "new", "stats": None}], [], {})
    require_valid("/t", [PLAIN], [OLD], {"f g": OLD}, restores=True)


def test_a_commit_that_breaks_a_rule_leaves_nothing(table: Path) -> None:
    snapshot, before = opened(table), files_below(table)
    change = deletion(snapshot, {FIRST: [1]})
    with pytest.raises(PlanError, match=r"part-0\.parquet .*is removed twice"):
        put(snapshot, replace(change, removed=(live(snapshot)[FIRST],)))
    assert files_below(table) == before


# Statistics and lines.
def test_widened_statistics_keep_every_digit() -> None:
    digits = "1234567890123456789012345678901234567.8"
    text = (
        '{"numRecords":3,"minValues":{"d":-DIGITS,"e":1.50,"f":1E-7,"s":"\\u00fc\\"","n":9007199254740993},'
        '"maxValues":{"d":DIGITS,"deep":{"x":0.10}},"nullCount":{"d":0}}'
    ).replace("DIGITS", digits)
    found = widen_bounds(text, 3, 0)
    assert f'"d":-{digits},"e":1.50,"f":1E-7,"s":"ü\\"","n":9007199254740993' in found
    assert f'"maxValues":{{"d":{digits},"deep":{{"x":0.10}}}}' in found
    assert found.endswith('"nullCount":{"d":0},"tightBounds":false}')
    assert (record_count(found), tight_bounds(found)) == (3, False)


def test_counts_of_nulls_are_of_physical_rows_once_bounds_are_wide() -> None:
    tight = '{"numRecords":10,"tightBounds":true,"nullCount":{"a":6,"b":0,"c":{"d":6,"e":5}}}'
    counts = json.loads(widen_bounds(tight, 10, 4))["nullCount"]
    assert counts == {"a": 10, "b": 0, "c": {"d": 10, "e": 5}}
    wide = tight.replace("true", "false")
    assert json.loads(widen_bounds(wide, 10, 4))["nullCount"]["a"] == 6
    assert json.loads(widen_bounds(tight, 10, 0))["nullCount"]["a"] == 6


@pytest.mark.parametrize("text", [None, "", "x", "[1]", '{"numRecords":-1}', '{"numRecords":true}'])
def test_statistics_that_say_nothing(text: str | None) -> None:
    assert record_count(text) is None
    assert json.loads(widen_bounds(text, 7, 0)) == {"numRecords": 7, "tightBounds": False}


def test_a_remove_names_the_vector_and_all_that_identifies_the_file() -> None:
    kept = {"partitionValues": {"p": None}, "size": 9, "tags": {"a": "b"}, "baseRowId": 0}
    body = remove_body(FileEntry("f g", OLD | kept | {"defaultRowCommitVersion": 3}), 17)
    assert body == kept | {
        "path": "f%20g",
        "deletionTimestamp": 17,
        "dataChange": True,
        "extendedFileMetadata": True,
        "defaultRowCommitVersion": 3,
        "deletionVector": vector(2),
        "stats": '{"numRecords": 10}',
    }


# Files that an operation leaves behind.
def test_uncommitted_files_go_or_are_kept(tmp_path: Path, caplog: Logged) -> None:
    storage = Storage.open(tmp_path)
    for key in ("a", "b", "c/d", "c/.e"):
        storage.write(key, b"")
    with UncommittedFiles(storage) as left:
        left.add("a", "b", "never written")
        left.add_folder("c")
        left.keep()
    assert len(files_below(tmp_path)) == 4
    with UncommittedFiles(storage) as left:
        left.add("a", "b")
        left.drop({"b"})
        assert left.keys == ["a"]
        left.keep()
        left.discard()
        left.add_folder("c")
    assert not files_below(tmp_path)
    assert not caplog.records


def test_files_that_cannot_be_removed_do_not_hide_the_failure(
    tmp_path: Path, caplog: Logged
) -> None:
    storage = Storage.open(tmp_path)
    (tmp_path / "folder").mkdir()

    def fail() -> None:
        with UncommittedFiles(storage) as left:
            left.add("folder")
            raise PlanError("the failure")

    with pytest.raises(PlanError, match="the failure"):
        fail()
    assert "are left in" in caplog.text
    left = UncommittedFiles(storage)
    left.add("folder")
    left.drop({"folder"})
    assert len(caplog.records) == 2


def test_many_vectors_are_packed_into_few_files(tmp_path: Path) -> None:
    properties = {"delta.randomizeFilePrefixes": "true"}
    files = [{"id": range(4)}] * 40
    builder, adds = table_with(tmp_path / "t", *files, properties=properties)
    snapshot = opened(builder.root)
    rows = {add["path"]: [number % 4] for number, add in enumerate(adds)}
    done = put(snapshot, deletion(snapshot, rows))
    [[path, size]] = done.change.vector_files.items()
    assert (builder.root / path).stat().st_size == size
    assert len(path.split("/")[0]) == 2, "the random prefix that the table asks for"
    vectors = [each.descriptor for each in done.change.vector_updates]
    assert {each.file_path for each in vectors if each} == {path}
    assert len(ids(builder.root)) == 120
