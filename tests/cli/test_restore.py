"""`delvec restore`: what people and programs get, without a JVM."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pytest

from delvec import DeltaTable
from delvec.cli.exits import ExitCode
from tests.cli import runner
from tests.delta.builder import TableBuilder, removed

run = partial(runner.run, "restore")


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """Version 1 has three rows, version 2 deletes one by a vector."""
    builder = TableBuilder(tmp_path / "t")
    builder.create()
    add = builder.write_file("part-0.parquet", {"id": [1, 2, 3]})
    builder.commit({"add": add})
    [vector] = builder.write_vectors([0])
    stats = '{"numRecords": 3, "tightBounds": false}'
    gone = removed(add) | {"deletionTimestamp": int(time.time() * 1000)}
    builder.commit({"remove": gone}, {"add": add | {"deletionVector": vector, "stats": stats}})
    return DeltaTable.for_path(None, builder.root)


def test_a_version_is_restored_and_reported(table: DeltaTable) -> None:
    result = run(table.storage.root, "--version", "1")
    assert result.exit_code == 0, result.output
    assert result.output.startswith(f"RESTORE on {table.storage.root}: version 3")
    assert "version 1 has 1 file" in result.output
    assert table.count() == 3


def test_programs_get_a_document(table: DeltaTable) -> None:
    result = run(table.storage.root, "--version", "1", "--json", "--commit-metadata", "oops")
    found = json.loads(result.output)
    assert (found["operation"], found["version"], found["files_added"]) == ("RESTORE", 3, 1)
    assert table.arrow_history(1).to_pylist()[0]["userMetadata"] == "oops"


def test_a_dry_run_changes_nothing(table: DeltaTable) -> None:
    result = run(table.storage.root, "--version", "1", "--dry-run")
    assert "dry run" in result.output
    assert table.version == 2


def test_a_time_is_taken_as_utc(table: DeltaTable) -> None:
    result = run(table.storage.root, "--timestamp", "1999-01-31 10:00")
    assert result.exit_code == ExitCode.USAGE
    assert "1999-01-31 10:00:00" in result.output


@pytest.mark.parametrize(
    "arguments", [[], ["--version", "1", "--timestamp", "2024-01-31"], ["--version", "-1"]]
)
def test_one_of_version_and_time_is_needed(table: DeltaTable, arguments: list[str]) -> None:
    assert run(table.storage.root, *arguments).exit_code == ExitCode.USAGE


def test_a_gone_vector_is_not_found_and_named(table: DeltaTable, tmp_path: Path) -> None:
    table.restore(1)
    [vector] = (tmp_path / "t").glob("deletion_vector_*.bin")
    vector.unlink()
    result = run(table.storage.root, "--version", "2", "--json")
    assert result.exit_code == ExitCode.NOT_FOUND
    assert vector.name in result.output
    assert table.version == 3
