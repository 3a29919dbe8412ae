"""Sources that read the table itself, against commits since; no JVM."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from delvec import DeltaTable
from delvec.delta.skipping.predicate import Comparison
from delvec.delta.write.change import Change, Operation, ReadSet, SourceRead
from delvec.delta.write.conflicts import validate_source_read
from delvec.errors import ConflictError
from tests.delta.builder import small_table
from tests.delta.log_files import commits
from tests.delta.write.write_checks import deletion, opened, put

FIRST = "part-0.parquet"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return small_table(tmp_path / "t")[0].root


def append(*sources: SourceRead, name: str = "new.parquet") -> Change:
    entry: dict[str, Any] = {
        "path": name,
        "partitionValues": {},
        "size": 1,
        "modificationTime": 0,
        "dataChange": True,
        "stats": '{"numRecords": 1, "minValues": {"id": 50}, "maxValues": {"id": 50}}',
    }
    return Change(Operation("WRITE", reads=ReadSet(sources=sources)), added=(entry,))


def test_an_append_of_rows_of_the_table_conflicts_with_every_change_of_rows(table: Path) -> None:
    late = opened(table)
    put(opened(table), deletion(opened(table), {FIRST: [1]}))
    for is_fixed in (True, False):
        with pytest.raises(ConflictError, match=r"version 3 .* had read version 2") as caught:
            put(late, append(SourceRead(2, is_fixed=is_fixed)))
        assert caught.value.retryable is not is_fixed, "whoever reads again may try again"
    assert put(late, append()).version == 4
    assert commits(table)[-1][0]["commitInfo"]["isBlindAppend"]


@pytest.mark.parametrize(("value", "conflict"), [(50, True), (1, False)])
def test_only_rows_that_a_source_uses_are_compared(
    table: Path, value: int, *, conflict: bool
) -> None:
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


def test_commits_that_are_gone_are_a_conflict(table: Path) -> None:
    put(opened(table), deletion(opened(table), {FIRST: [1]}))
    snapshot = opened(table)
    with pytest.raises(ConflictError, match="the log does not tell") as caught:
        validate_source_read(snapshot, SourceRead(99))
    assert not caught.value.retryable
    (table / "_delta_log" / f"{3:020}.json").rename(table / "gone")
    with pytest.raises(ConflictError, match="the log does not tell"):
        validate_source_read(snapshot, SourceRead(1))
