"""Commands on Delta tables: what they tell, what they change, and how they end."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec.cli.commands.check import plain_comparisons
from delvec.cli.exits import ExitCode
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.delta.table import DeltaTable
from delvec.errors import StorageError
from delvec.storage.disk import Disk
from tests.cli import runner
from tests.cli.runner import run_json
from tests.delta.builder import TableBuilder, removed, small_table
from tests.delta.check.checks import INLINE, table_with
from tests.delta.vacuum.aging import age, files_of, tombstone

run = partial(runner.run, columns=300)

# Check.


def test_a_damaged_table_has_an_exit_code_and_findings(tmp_path: Path) -> None:
    table, _ = small_table(tmp_path)
    assert run_json("check", tmp_path, "--sample", "1")["sampled_files"] == 1
    (tmp_path / "part-1.parquet").unlink()
    result = run("check", tmp_path, code=ExitCode.DAMAGED)
    assert "error: the data file is gone (part-1.parquet)" in result.output
    found = json.loads(run("check", tmp_path, "--json").output)
    [finding] = found["findings"]
    assert (found["ok"], found["errors"]) == (False, 1)
    assert (finding["kind"], finding["path"]) == ("missing-file", "part-1.parquet")
    assert finding["hint"]
    table.commit_path(2).write_text("{")
    assert table.commit_path(2).name in run("check", tmp_path, code=ExitCode.DAMAGED).output


def test_repairs_are_told_before_they_are_made(tmp_path: Path) -> None:
    table_with(tmp_path, INLINE)
    for arguments in ((), ("--dry-run",), ("--repair", "--dry-run")):
        planned = run("check", tmp_path, *arguments, code=ExitCode.OK)
        assert "can be repaired: a deletion vector has a form" in planned.output
        assert "nothing was changed" in planned.output
    assert len(list((tmp_path / "_delta_log").iterdir())) == 3
    done = run("check", tmp_path, "--repair", code=ExitCode.OK)
    assert "Version 3 was committed" in done.output
    assert "nothing is wrong" in done.output
    found = run_json("check", tmp_path, "--repair")
    assert (found["version"], found["repairs"], found["is_repaired"]) == (3, [], False)


# Columns, constraints, features and properties.


def schema(*names: str) -> StructType:
    return StructType(tuple(Field(name, PrimitiveType("long")) for name in names))


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    mapped = {"delta.columnMapping.mode": "name"}
    return DeltaTable.create(None, tmp_path / "t", schema("id", "note"), (), mapped)


def test_a_column_is_renamed_and_dropped(table: DeltaTable) -> None:
    root = table.storage.root
    tried = run_json("column", "rename", root, "note", "remark", "--dry-run")
    assert (tried["dry_run"], tried["version"]) == (True, None)
    assert "note: renamed to remark" in run("column", "rename", root, "note", "remark").output
    assert [each.name for each in table.schema.fields] == ["id", "remark"]
    assert run_json("column", "drop", root, "remark", "--commit-metadata", "x")["version"] == 2
    assert [each.name for each in table.schema.fields] == ["id"]
    run("constraint", "drop", root, "positive", code=ExitCode.USAGE)
    assert run_json("constraint", "drop", root, "positive", "--if-exists")["version"] is None


def test_a_feature_is_added_and_vectors_are_enabled(tmp_path: Path) -> None:
    without = {"delta.enableDeletionVectors": "false"}
    table = DeltaTable.create(None, tmp_path / "t", schema("id"), (), without)
    given = ("--set", "delta.enableDeletionVectors=true")
    refused = run("properties", tmp_path / "t", *given, code=ExitCode.USAGE)
    assert "Hint: `delvec feature enable-vectors` adds it" in refused.output
    run_json("feature", "enable-vectors", tmp_path / "t")
    run_json("feature", "add", tmp_path / "t", "vacuumProtocolCheck")
    assert table.properties["delta.enableDeletionVectors"] == "true"
    assert "vacuumProtocolCheck" in table.protocol.writer_features


def test_hints_are_commands_that_run(table: DeltaTable, tmp_path: Path) -> None:
    root = tmp_path / "my t"
    small_table(root)
    (tmp_path / "full").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "full" / "part.parquet")
    for arguments, told in (
        (("column", "drop", root, "idd"), "there is no column 'idd'"),
        (("properties", root, "--unset", "nope"), f"Hint: `delvec properties '{root}'` shows"),
        (
            ("properties", root, "--unset", "delta.constraints.x"),
            f"Hint: use `delvec constraint drop '{root}' x`",
        ),
        (
            ("clone", table.storage.root, tmp_path / "full"),
            f"`delvec convert-to-delta {tmp_path}/full`",
        ),
        (("convert-to-delta", tmp_path), "copy the rows to a new table by `delvec append`"),
    ):
        assert told in run(*arguments).output
    command = re.search(r"`delvec (.*)`", run("column", "drop", root, "id").output)
    assert command is not None
    DeltaTable.for_path(None, root).add_feature("columnMapping")  # as the hint once said
    run(*shlex.split(command[1]), code=0)
    again = run("column", "drop", root, "id")
    assert "id cannot be dropped: it is the only one" in again.output


# Vacuum.


@pytest.fixture
def aged(tmp_path: Path) -> TableBuilder:
    """A table whose first file was removed a day ago, with an orphan; all files are old."""
    table, live = small_table(tmp_path / "orders")
    table.commit(tombstone(live[0], 1))
    (table.root / "orphan.txt").write_bytes(b"x" * 2048)
    age(table.root, 30, log=True)
    return table


def test_a_vacuum_lists_and_deletes_by_a_listing_or_from_the_log_alone(aged: TableBuilder) -> None:
    forced = ("vacuum", aged.root, "--force")
    shown = run(*forced, "--dry-run", "--retention-hours", "0", "--limit", "1", code=0).output
    assert "2 files" in shown
    assert "… and 1 more; --limit 0 shows all" in shown
    lite = run_json(*forced, "--lite", "--retention-hours", "2", "--dry-run")
    assert [file["path"] for file in lite["files"]] == ["part-0.parquet"]
    assert (aged.root / "orphan.txt").exists()
    found = run_json("vacuum", aged.root)
    assert found["files"][0]["path"] == "orphan.txt"
    assert (found["files_deleted"], found["bytes_deleted"], found["version"]) == (1, 2048, 5)
    assert "version 7, 0 files (0 B) deleted" in run("vacuum", aged.root).output
    short = run("vacuum", aged.root, "--retention-hours", "2", code=ExitCode.USAGE)
    assert "keeps removed files for 168 hours" in short.output
    assert run_json(*forced, "--retention-hours", "2")["files_deleted"] == 1
    assert files_of(aged.root) == {"part-1.parquet", aged.vector_path().name}


def test_a_failed_delete_has_an_exit_code(
    aged: TableBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: Disk, keys: Sequence[str]) -> None:
        raise StorageError(f"{keys[0]}: no")

    monkeypatch.setattr(Disk, "delete", failing)
    result = run("vacuum", aged.root, code=ExitCode.FAILED)
    assert "1 NOT deleted" in result.output
    assert "not deleted: orphan.txt: no" in result.output


# Restore, traces and downgrade.


@pytest.fixture
def people(tmp_path: Path) -> TableBuilder:
    """A table with a row that a vector deletes in version 2."""
    table = TableBuilder(tmp_path / "p", fields={"id": "long", "name": "string"})
    table.create()
    add = table.write_file("a.parquet", {"id": [1, 2], "name": ["Anna", "Bob"]})
    table.commit({"add": add})
    [vector] = table.write_vectors([0])
    stats = '{"numRecords": 2, "tightBounds": false}'
    gone = removed(add) | {"deletionTimestamp": int(time.time() * 1000)}
    table.commit({"remove": gone}, {"add": add | {"deletionVector": vector, "stats": stats}})
    return table


def test_a_version_is_restored_and_reported(people: TableBuilder) -> None:
    root, table = people.root, DeltaTable.for_path(None, people.root)
    assert "dry run" in run("restore", root, "--version", "1", "--dry-run").output
    early = run("restore", root, "--timestamp", "1999-01-31 10:00", code=ExitCode.USAGE)
    assert "1999-01-31 10:00:00" in early.output  # as UTC
    assert table.version == 2
    result = run("restore", root, "--version", "1", "--commit-metadata", "oops", code=0)
    assert result.output.startswith(f"RESTORE on {root}: version 3")
    assert "version 1 has 1 file" in result.output
    assert (table.count(), table.arrow_history(1).to_pylist()[0]["userMetadata"]) == (2, "oops")
    vector = people.vector_path()
    vector.unlink()
    result = run("restore", root, "--version", "2", code=ExitCode.NOT_FOUND)
    assert vector.name in result.output
    assert table.version == 3


def test_traces_end_with_a_code_of_their_own_while_something_is_left(people: TableBuilder) -> None:
    result = run("traces", people.root, "--where", "name = 'Anna'", code=ExitCode.TRACES)
    assert "1 row in 1 file" in result.output
    assert "run `delvec purge`, then `delvec vacuum` after 20" in result.output
    told = json.loads(run("traces", people.root, "--where", "id = 1", "--json").output)
    [place] = told["places"]
    assert (place["kind"], place["path"], place["rows"]) == ("deleted", "a.parquet", 1)
    assert [step["action"] for step in place["steps"]] == ["delvec purge", "delvec vacuum"]
    assert told["gone_at"] == place["steps"][1]["not_before"]
    nothing = run("traces", people.root, "--where", "name = 'Carl' AND id = 5", code=ExitCode.OK)
    assert "nothing is left" in nothing.output


def test_a_record_holds_digests_in_place_of_values(people: TableBuilder) -> None:
    redacted = ("traces", people.root, "--where", "name = 'Anna'", "--redact", "--json")
    result = run(*redacted, code=ExitCode.TRACES)
    assert "Anna" not in result.output
    told = json.loads(result.output)
    assert "'name', '=', 'sha256:" in told["condition"]
    assert {"time", "delvec", "host", "table_id", "version"} <= told.keys()


@pytest.mark.parametrize(
    ("where", "comparisons"),
    [
        ("a = 1", [("a", "=", 1)]),
        (" `a b` == 'x' and\nb=-5 ", [("a b", "=", "x"), ("b", "=", -5)]),
        ("a = 'x AND y = 1'", [("a", "=", "x AND y = 1")]),
        *((text, None) for text in ("a = 'it''s'", r"a = 'x\n'", "a = 1.5", "a = 1 OR b = 2")),
        *((text, None) for text in ("a.b = 1", "lower(a) = 'x'", "a = 1 AND", "a = 1L")),
        ("not a = 1", None),
    ],
)
def test_only_plain_comparisons_are_evaluated_without_spark(
    where: str, comparisons: list[tuple[str, str, object]] | None
) -> None:
    assert plain_comparisons(where) == comparisons


def test_a_downgrade_of_a_table_without_vectors_starts_no_spark(tmp_path: Path) -> None:
    TableBuilder(tmp_path).create()
    planned = run_json("downgrade", tmp_path, "--dry-run")
    assert planned["after"] == "reader 1, writer 7 with checkpointProtection"
    assert DeltaTable.for_path(None, tmp_path).version == 0
    result = run("downgrade", tmp_path, code=ExitCode.OK)
    assert "version 5, reader 1, writer 7 with checkpointProtection" in result.output
    young = run("downgrade", tmp_path, "--truncate-history", code=ExitCode.UNSUPPORTED)
    assert "run it again after 20" in young.output
    age(tmp_path, days=2, log=True)
    run("downgrade", tmp_path, "--truncate-history", code=ExitCode.OK)
    assert "nothing to do" in run("downgrade", tmp_path).output


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_spark_evaluates_other_conditions_and_rewrites_files(
    people: TableBuilder, tmp_path: Path
) -> None:
    traces = ("traces", people.root, "--where")
    result = run(*traces, "upper(name) = 'ANNA'", "--json", code=ExitCode.TRACES)
    assert json.loads(result.output)["places"][0]["kind"] == "deleted"
    redacted = run(*traces, "upper(`name`) = 'ANNA'", "--redact")
    assert "TRACES of upper(`name`) = sha256:" in redacted.output
    run(*traces, "nam = 'Anna'", code=ExitCode.USAGE)
    small_table(tmp_path / "v")
    assert run_json("downgrade", tmp_path / "v")["files_with_vectors"] == 2
    assert "deletionVectors" not in DeltaTable.for_path(None, tmp_path / "v").protocol.features
