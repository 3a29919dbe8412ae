"""Changes that others come before: rewritten files, and sources that read the table; no JVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from delvec import DeltaTable
from delvec.delta.log.file_set import FileEntry
from delvec.delta.skipping.predicate import Comparison
from delvec.delta.write.change import Change, Operation, ReadSet, Rewrite, SourceRead
from delvec.delta.write.commit import Committed
from delvec.delta.write.conflicts import validate_source_read
from delvec.errors import ConflictError, PlanError
from delvec.storage import Storage
from delvec.vector import Bitmap
from tests.delta.builder import TableBuilder, removed, small_table
from tests.delta.log_files import commits
from tests.delta.write.write_checks import (
    deletion,
    ids,
    live,
    opened,
    positions,
    put,
    unnamed_files,
)


@dataclass(frozen=True)
class Places:
    """Where rows went, by file: the position of each row in the new one."""

    known: Mapping[str, Mapping[int, int]]

    def moved(self, path: str, positions: Bitmap) -> Bitmap | None:
        places = self.known.get(path)
        rows = positions.to_numpy().tolist()
        return None if places is None else Bitmap(sorted({places[row] for row in rows}))


@pytest.fixture
def builder(tmp_path: Path) -> TableBuilder:
    """Two files of four rows: 0 to 3 and 10 to 13."""
    made = TableBuilder.made(tmp_path / "t")
    for name, start in (("a", 0), ("b", 10)):
        made.append(name, {"id": range(start, start + 4)})
    return made


def rewritten(
    builder: TableBuilder,
    groups: Mapping[str, tuple[str, ...]],
    known: Mapping[str, Mapping[int, int]] | None = None,
) -> Change:
    """Move the rows of files to new ones, in order; `known` overrides where they went."""
    files, rewrites = live(opened(builder.root)), []
    starts = {"a": 0, "b": 10}
    for name, group in groups.items():
        rows = [starts[each] + n for each in group for n in range(4)]
        body = builder.write_file(name, {"id": rows})
        places = {each: {n: 4 * at + n for n in range(4)} for at, each in enumerate(group)}
        entry = FileEntry(name, {**body, "dataChange": False})
        chosen = tuple(files[each] for each in group)
        rewrites.append(Rewrite(chosen, entry, len(rows), Places(known or places)))
    return Change(Operation("OPTIMIZE"), rewrites=tuple(rewrites), data_change=False)


def delete(path: Path, *wanted: int) -> None:
    snapshot = opened(path)
    put(snapshot, deletion(snapshot, positions(path, wanted)))


def committed(builder: TableBuilder, change: Change, *winners: Callable[[], Any]) -> Committed:
    """Commit on the version before the winners."""
    base = opened(builder.root)
    for winner in winners:
        winner()
    return put(base, change)


BOTH = {"new": ("a", "b")}
APART = {"new-a": ("a",), "new-b": ("b",)}


def test_deleted_rows_are_deleted_in_the_new_file(builder: TableBuilder) -> None:
    path, change = builder.root, rewritten(builder, BOTH)
    done = committed(builder, change, lambda: delete(path, 1, 12), lambda: delete(path, 2))
    assert (ids(path), list(live(opened(path)))) == ([0, 3, 10, 11, 13], ["new"])
    assert done.reconciled == 3
    assert not unnamed_files(path)


def test_a_delete_that_wins_again(builder: TableBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    path, change = builder.root, rewritten(builder, BOTH)
    waiting = [3, 13]
    write = Storage.write_if_absent

    def beaten(storage: Storage, key: str, data: bytes) -> None:
        if waiting and b"OPTIMIZE" in data:
            delete(path, waiting.pop())
        write(storage, key, data)

    monkeypatch.setattr(Storage, "write_if_absent", beaten)
    done = committed(builder, change, lambda: delete(path, 0))
    assert (done.attempts, ids(path)) == (3, [1, 2, 10, 11, 12])
    # Vectors of attempts that were beaten are gone.
    assert not unnamed_files(path)


def test_without_rows_there_is_no_new_file(builder: TableBuilder) -> None:
    path = builder.root
    delete(path, 0, 1)
    base = opened(path)
    file, new = live(base)["a"], FileEntry("new", builder.write_file("new", {"id": [2, 3]}))
    rewrite = Rewrite((file,), new, 2, Places({"a": {2: 0, 3: 1}}))
    change = Change(Operation("OPTIMIZE"), rewrites=(rewrite,), data_change=False)
    # By hand: delvec would remove a file without live rows, and the rewrite would be given up.
    [vector] = builder.write_vectors([0, 1, 2, 3])
    builder.version = base.version
    gone = {"remove": removed(dict(file.add))}
    builder.commit({"add": {**file.add, "deletionVector": vector}}, gone)
    put(base, change)
    assert ids(path) == [10, 11, 12, 13]
    assert not unnamed_files(path)


Known = Mapping[str, Mapping[int, int]]
ONE_PLACE = dict.fromkeys(range(4), 0)


@pytest.mark.parametrize(
    ("known", "gone", "error", "message"),
    [
        ({"b": {n: 4 + n for n in range(4)}}, (1, 12), ConflictError, "changed all files"),
        ({"a": ONE_PLACE, "b": ONE_PLACE}, (1, 12), ConflictError, "changed all files"),
        ({"a": ONE_PLACE, "b": {n: 4 + n for n in range(4)}}, (1, 2), PlanError, "live rows"),
    ],
    ids=["unknown", "the same place", "rows would be lost"],
)
def test_what_is_not_known_for_sure_is_given_up(
    builder: TableBuilder, known: Known, gone: tuple[int, int], error: type[Exception], message: str
) -> None:
    path = builder.root
    with pytest.raises(error, match=message):
        committed(builder, rewritten(builder, BOTH, known), lambda: delete(path, *gone))
    assert ids(path) == [row for row in (*range(4), *range(10, 14)) if row not in gone]
    assert error is PlanError or not unnamed_files(path)


def test_files_that_somebody_removed_are_left_to_them(builder: TableBuilder) -> None:
    path, change = builder.root, rewritten(builder, APART)
    removal = Change(Operation("DELETE"), removed=(live(opened(path))["a"],))
    done = committed(builder, change, lambda: committed(builder, removal))
    assert len(done.change.rewrites) == 1
    assert (ids(path), list(live(opened(path)))) == ([10, 11, 12, 13], ["new-b"])
    assert not unnamed_files(path)


def test_a_cleaned_log_conflicts(builder: TableBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    path, change, base = builder.root, rewritten(builder, BOTH), opened(builder.root)
    delete(path, 1)
    delete(path, 2)
    builder.handle.checkpoint()
    gone = builder.commit_path(base.version + 1)
    write = Storage.write_if_absent

    def beaten(storage: Storage, key: str, data: bytes) -> None:
        try:
            write(storage, key, data)
        finally:
            gone.unlink(missing_ok=True)

    monkeypatch.setattr(Storage, "write_if_absent", beaten)
    with pytest.raises(ConflictError, match="cleaned up"):
        put(base, change)


FIRST = "part-0.parquet"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return small_table(tmp_path / "t")[0].root


def append(*sources: SourceRead, name: str = "new.parquet") -> Change:
    stats = '{"numRecords": 1, "minValues": {"id": 50}, "maxValues": {"id": 50}}'
    entry: dict[str, Any] = {"path": name, "partitionValues": {}, "size": 1, "modificationTime": 0}
    entry |= {"dataChange": True, "stats": stats}
    return Change(Operation("WRITE", reads=ReadSet(sources=sources)), added=(entry,))


def test_an_append_of_rows_of_the_table_conflicts_with_every_change_of_rows(table: Path) -> None:
    late = opened(table)
    put(opened(table), deletion(opened(table), {FIRST: [1]}))
    newest = opened(table)
    for is_fixed in (True, False):
        with pytest.raises(ConflictError, match=r"version 3 .* had read version 2") as caught:
            put(late, append(SourceRead(2, is_fixed=is_fixed)))
        assert caught.value.retryable is not is_fixed, "whoever reads again may try again"
    with pytest.raises(ConflictError, match="the log does not tell") as caught:
        validate_source_read(newest, SourceRead(99))
    assert not caught.value.retryable
    assert put(late, append()).version == 4
    assert commits(table)[-1][0]["commitInfo"]["isBlindAppend"]
    (table / "_delta_log" / f"{3:020}.json").rename(table / "gone")
    with pytest.raises(ConflictError, match="the log does not tell"):
        validate_source_read(newest, SourceRead(1))


@pytest.mark.parametrize(("value", "conflict"), [(50, True), (1, False)])
def test_only_rows_of_a_source_are_compared(table: Path, value: int, *, conflict: bool) -> None:
    late = opened(table)
    put(opened(table), append(name="other.parquet"))
    read = SourceRead(2, late.files, lambda: Comparison(("id",), "=", value))
    for check in (
        lambda: put(late, append(read)),
        lambda: validate_source_read(opened(table), read),
    ):
        with pytest.raises(ConflictError) if conflict else nullcontext():
            check()


def test_blind_appends_come_after_a_source_unless_the_operation_has_seen_them(table: Path) -> None:
    DeltaTable.for_path(None, table).set_properties({"delta.isolationLevel": "WriteSerializable"})
    late = opened(table)
    read = SourceRead(late.version, late.files)
    put(late, append())
    with pytest.raises(ConflictError):  # it may have read them
        put(late, append(SourceRead(late.version), name="newer.parquet"))
    assert put(late, append(read, name="newer.parquet")).version == late.version + 2
    with pytest.raises(ConflictError) as caught:
        validate_source_read(opened(table), read)
    assert not caught.value.retryable
