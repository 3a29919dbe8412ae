"""Commands that change what a table is: columns, constraints, features; no JVM is started."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from delvec.cli import main
from delvec.cli.exits import ExitCode
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.delta.table import DeltaTable
from tests.cli.runner import separate
from tests.delta.builder import small_table

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

MAPPED = {"delta.columnMapping.mode": "name"}


def run(*arguments: str | Path) -> Result:
    environment = {"COLUMNS": "300", "NO_COLOR": "1"}
    return separate().invoke(main, list(map(str, arguments)), env=environment)


def document(*arguments: str | Path) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    fields = [Field("id", PrimitiveType("long")), Field("note", PrimitiveType("string"))]
    return DeltaTable.create(None, tmp_path / "t", StructType(tuple(fields)), (), MAPPED)


def test_a_column_is_renamed_and_dropped(table: DeltaTable) -> None:
    root = table.storage.root
    tried = document("column", "rename", root, "note", "remark", "--dry-run")
    assert (tried["dry_run"], tried["version"]) == (True, None)
    told = run("column", "rename", root, "note", "remark")
    assert "note: renamed to remark" in told.stdout
    assert [each.name for each in table.schema.fields] == ["id", "remark"]
    assert document("column", "drop", root, "remark", "--commit-metadata", "x")["version"] == 2
    assert [each.name for each in table.schema.fields] == ["id"]


def test_a_feature_is_added_and_vectors_are_enabled(tmp_path: Path) -> None:
    fields = StructType((Field("id", PrimitiveType("long")),))
    without = {"delta.enableDeletionVectors": "false"}
    DeltaTable.create(None, tmp_path / "t", fields, (), without)
    refused = run("properties", tmp_path / "t", "--set", "delta.enableDeletionVectors=true")
    assert refused.exit_code == ExitCode.USAGE
    assert "Hint: `delvec feature enable-vectors` adds it" in refused.stderr
    document("feature", "enable-vectors", tmp_path / "t")
    document("feature", "add", tmp_path / "t", "vacuumProtocolCheck")
    found = DeltaTable.for_path(None, tmp_path / "t")
    assert found.properties["delta.enableDeletionVectors"] == "true"
    assert "vacuumProtocolCheck" in found.protocol.writer_features


def test_a_constraint_that_is_not_there_is_not_dropped(table: DeltaTable) -> None:
    root = table.storage.root
    assert run("constraint", "drop", root, "positive").exit_code == ExitCode.USAGE
    assert document("constraint", "drop", root, "positive", "--if-exists")["version"] is None


def test_a_column_without_mapping_is_not_dropped_and_the_hint_is_a_command(tmp_path: Path) -> None:
    small_table(tmp_path / "t")
    result = run("column", "drop", tmp_path / "t", "id")
    assert result.exit_code != 0
    assert "Hint: `delvec feature add TABLE columnMapping`, then set" in result.stderr


def test_what_is_set_is_told(table: DeltaTable) -> None:
    root = table.storage.root
    tried = run("properties", root, "--set", "delta.appendOnly=true", "--dry-run")
    assert "delta.appendOnly: would be set to true" in tried.stdout
    done = document("properties", root, "--set", "delta.appendOnly=true")
    assert done["properties"] == {"delta.appendOnly": {"from": None, "to": "true"}}
    undone = run("properties", root, "--unset", "delta.appendOnly")
    assert "delta.appendOnly: unset (it was true)" in undone.stdout
