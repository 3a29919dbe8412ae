"""Commands that change what a table is: columns, constraints, features; no JVM is started."""

from __future__ import annotations

import re
import shlex
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec.cli.exits import ExitCode
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.delta.table import DeltaTable
from tests.cli import runner
from tests.cli.runner import run_json
from tests.delta.builder import small_table

run = partial(runner.run, columns=300, runner=runner.separate())

MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    fields = [Field("id", PrimitiveType("long")), Field("note", PrimitiveType("string"))]
    return DeltaTable.create(None, tmp_path / "t", StructType(tuple(fields)), (), MAPPED)


def test_a_column_is_renamed_and_dropped(table: DeltaTable) -> None:
    root = table.storage.root
    tried = run_json("column", "rename", root, "note", "remark", "--dry-run")
    assert (tried["dry_run"], tried["version"]) == (True, None)
    told = run("column", "rename", root, "note", "remark")
    assert "note: renamed to remark" in told.stdout
    assert [each.name for each in table.schema.fields] == ["id", "remark"]
    assert run_json("column", "drop", root, "remark", "--commit-metadata", "x")["version"] == 2
    assert [each.name for each in table.schema.fields] == ["id"]


def test_a_feature_is_added_and_vectors_are_enabled(tmp_path: Path) -> None:
    fields = StructType((Field("id", PrimitiveType("long")),))
    without = {"delta.enableDeletionVectors": "false"}
    DeltaTable.create(None, tmp_path / "t", fields, (), without)
    refused = run("properties", tmp_path / "t", "--set", "delta.enableDeletionVectors=true")
    assert refused.exit_code == ExitCode.USAGE
    assert "Hint: `delvec feature enable-vectors` adds it" in refused.stderr
    run_json("feature", "enable-vectors", tmp_path / "t")
    run_json("feature", "add", tmp_path / "t", "vacuumProtocolCheck")
    found = DeltaTable.for_path(None, tmp_path / "t")
    assert found.properties["delta.enableDeletionVectors"] == "true"
    assert "vacuumProtocolCheck" in found.protocol.writer_features


def test_a_constraint_that_is_not_there_is_not_dropped(table: DeltaTable) -> None:
    root = table.storage.root
    run("constraint", "drop", root, "positive", code=ExitCode.USAGE)
    assert run_json("constraint", "drop", root, "positive", "--if-exists")["version"] is None


def test_a_column_without_mapping_is_not_dropped_and_the_hint_is_a_command(tmp_path: Path) -> None:
    small_table(tmp_path / "t")
    assert "there is no column 'idd'" in run("column", "drop", tmp_path / "t", "idd").stderr
    result = run("column", "drop", tmp_path / "t", "id")
    assert result.exit_code != 0
    command = re.search(r"`delvec (.*)`", result.stderr)
    assert command is not None
    DeltaTable.for_path(None, tmp_path / "t").add_feature("columnMapping")  # as the hint once said
    run(*shlex.split(command[1]), code=0)
    again = run("column", "drop", tmp_path / "t", "id")
    assert "id cannot be dropped: it is the only one" in again.stderr


def test_hints_of_properties_are_commands(tmp_path: Path) -> None:
    small_table(tmp_path / "my t")
    absent = run("properties", tmp_path / "my t", "--unset", "nope")
    assert f"Hint: `delvec properties '{tmp_path}/my t'` shows those that are" in absent.stderr
    constraint = run("properties", tmp_path / "my t", "--unset", "delta.constraints.x")
    assert f"Hint: use `delvec constraint drop '{tmp_path}/my t' x`" in constraint.stderr


def test_a_folder_of_parquet_files_is_not_cloned_over_and_the_hint_converts_it(
    table: DeltaTable, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "full" / "part.parquet")
    result = run("clone", table.storage.root, tmp_path / "full")
    assert f"`delvec convert-to-delta {tmp_path}/full`" in result.stderr
    above = run("convert-to-delta", tmp_path)
    assert "copy the rows to a new table by `delvec append`" in above.stderr
