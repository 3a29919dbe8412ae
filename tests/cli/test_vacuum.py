"""`delvec vacuum`, without Spark: what it prints, what it deletes, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from delvec.cli.exits import ExitCode
from delvec.errors import StorageError
from delvec.storage.disk import Disk
from tests.cli import runner
from tests.cli.runner import run_json
from tests.delta.builder import TableBuilder, small_table
from tests.delta.vacuum.aging import age, files_of, tombstone

run = partial(runner.run, "vacuum")
document = partial(run_json, "vacuum")


@pytest.fixture
def table(tmp_path: Path) -> TableBuilder:
    """A table whose first file was removed a day ago, with an orphan; all files are old."""
    table, live = small_table(tmp_path / "orders")
    table.commit(tombstone(live[0], 1))
    (table.root / "orphan.txt").write_bytes(b"x" * 2048)
    age(table.root, 30, log=True)
    return table


def test_a_dry_run_lists_the_files(table: TableBuilder) -> None:
    result = run(table.root, "--dry-run", code=0)
    assert f"VACUUM of {table.root}: dry run, 1 file (2.0 KiB) would be deleted" in result.output
    assert "other file" in result.output
    assert "orphan.txt" in result.output
    assert (table.root / "orphan.txt").exists()
    shorter = run(table.root, "--dry-run", "--force", "--retention-hours", "0", "--limit", "1")
    assert "2 files" in shorter.output
    assert "… and 1 more; --limit 0 shows all" in shorter.output


def test_files_are_deleted_by_a_listing_or_from_the_log_alone(table: TableBuilder) -> None:
    lite = document(table.root, "--lite", "--force", "--retention-hours", "2", "--dry-run")
    assert [file["path"] for file in lite["files"]] == ["part-0.parquet"]
    found = document(table.root)
    assert found["files"][0]["path"] == "orphan.txt"
    assert (found["files_deleted"], found["bytes_deleted"], found["version"]) == (1, 2048, 5)
    assert "version 7, 0 files (0 B) deleted" in run(table.root).output


def test_a_short_retention_is_wrong_usage_unless_forced(table: TableBuilder) -> None:
    result = run(table.root, "--retention-hours", "2", code=ExitCode.USAGE)
    assert "keeps removed files for 168 hours" in result.output
    assert document(table.root, "--retention-hours", "2", "--force")["files_deleted"] == 2
    assert files_of(table.root) == {"part-1.parquet", table.vector_path().name}


def test_a_failed_delete_has_an_exit_code(
    table: TableBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: Disk, keys: Sequence[str]) -> None:
        raise StorageError(f"{keys[0]}: no")

    monkeypatch.setattr(Disk, "delete", failing)
    result = run(table.root, code=ExitCode.FAILED)
    assert "1 NOT deleted" in result.output
    assert "not deleted: orphan.txt: no" in result.output
