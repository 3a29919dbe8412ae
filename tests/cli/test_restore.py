"""`delvec restore`: what people and programs get, without a JVM."""

from __future__ import annotations

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
    assert "dry run" in run(table.storage.root, "--version", "1", "--dry-run").output
    assert table.version == 2
    result = run(table.storage.root, "--version", "1", "--commit-metadata", "oops", code=0)
    assert result.output.startswith(f"RESTORE on {table.storage.root}: version 3")
    assert "version 1 has 1 file" in result.output
    assert table.count() == 3
    assert table.arrow_history(1).to_pylist()[0]["userMetadata"] == "oops"


def test_a_time_is_taken_as_utc(table: DeltaTable) -> None:
    result = run(table.storage.root, "--timestamp", "1999-01-31 10:00", code=ExitCode.USAGE)
    assert "1999-01-31 10:00:00" in result.output


def test_a_gone_vector_is_not_found_and_named(table: DeltaTable, tmp_path: Path) -> None:
    table.restore(1)
    [vector] = (tmp_path / "t").glob("deletion_vector_*.bin")
    vector.unlink()
    result = run(table.storage.root, "--version", "2", code=ExitCode.NOT_FOUND)
    assert vector.name in result.output
    assert table.version == 3
