"""Entries that are no files do not stop the work on the rest of a table."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from delvec import DeltaTable
from delvec.errors import FormatError
from tests.delta.builder import small_table

KINDS: dict[str, Callable[[Path], None]] = {
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a pipe": os.mkfifo,
    "a folder": lambda path: path.mkdir(),
}
UNUSED = [f"{2:020d}.checkpoint.parquet", f"{2:020d}.crc", "_last_checkpoint", "_sidecars"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return KINDS[request.param]


def test_check_inspect_traces_and_vacuum_go_on(
    tmp_path: Path, kind: Callable[[Path], None]
) -> None:
    builder, _ = small_table(tmp_path / "t")
    partition = builder.root / "part=1"
    partition.mkdir()
    for folder in (builder.root, builder.log, partition):
        kind(folder / "odd.parquet")
    for name in UNUSED:
        kind(builder.log / name)
    orphan = partition / "orphan.parquet"
    orphan.write_bytes(b"x")
    table = DeltaTable.for_path(None, builder.root)
    report = table.check()
    assert [each.severity for each in report.findings].count("error") == 0, report
    assert report.vectors == 2
    assert table.inspect().live_rows == 16
    assert table.traces([("id", "=", 5)]).places
    assert table.vacuum(retention_hours=0, force=True).files_deleted == 1
    assert not orphan.exists()
    assert table.count() == 16


def test_a_data_file_or_vector_of_that_kind_is_a_finding(
    tmp_path: Path, kind: Callable[[Path], None]
) -> None:
    for name in ("part-0.parquet", "the file of vectors"):
        builder, _ = small_table(tmp_path / name)
        path = builder.vector_path() if "vectors" in name else builder.root / name
        path.unlink()
        kind(path)
        table = DeltaTable.for_path(None, builder.root)
        errors = [each for each in table.check().findings if each.severity == "error"]
        assert any(path.name in f"{each}" for each in errors), errors
        table.inspect()
        table.traces([("id", "=", 5)])
        table.vacuum(retention_hours=0, force=True)


def test_a_commit_of_that_kind_is_named(tmp_path: Path, kind: Callable[[Path], None]) -> None:
    builder, _ = small_table(tmp_path)
    path = builder.commit_path(1)
    path.unlink()
    kind(path)
    with pytest.raises(FormatError, match=path.name):
        DeltaTable.for_path(None, tmp_path)


def test_a_folder_as_the_mark_of_a_vacuum_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    builder, _ = small_table(tmp_path)
    orphan = tmp_path / "orphan.parquet"
    orphan.write_bytes(b"x")
    (builder.log / "_last_vacuum_info").mkdir()
    report = DeltaTable.for_path(None, tmp_path).vacuum(retention_hours=0, force=True)
    assert report.files_deleted == 1
    assert not orphan.exists()
    assert "_last_vacuum_info" in caplog.text
