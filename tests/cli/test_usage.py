"""Wrong usages: each has a message of its own, a next step, and an exit code."""

from __future__ import annotations

import json
import re
import shlex
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from delvec.cli import main
from delvec.cli.exits import ExitCode
from tests.cli import runner
from tests.cli.runner import separate

run = partial(runner.run, columns=300, runner=runner.separate())

# `T` is a table.
DELTA = [
    *("changes T --start-version 0", "checkpoint T", "clean-log T", "clone T /tmp/target"),
    *("column add T 'id2 long'", "column drop T id"),
    *("constraint add T positive --check 'id > 0'", "feature add T vacuumProtocolCheck"),
    *("create T --schema 'id long'", "downgrade T", "generate-manifest T"),
    *("merge T --source x.csv --on a --upsert", "optimize T", "overwrite T --source x.csv --all"),
    *("purge T", "recompute-statistics T", "restore T --version 0", "traces T --where 'id = 1'"),
    *("update T --set a=1 --all", "vacuum T"),
]
ICEBERG = [
    *("branch create T audit", "branch rollback T --snapshot-id 1", "clean-target T"),
    *("compact T --rewrite-option rewrite-all=true", "consolidate T", "expire-snapshots T"),
    *("remove-orphan-files T", "unlock T", "index T --key id --branch main", "refs T"),
    *("resolve T", "tag drop T end-of-2026", "upsert T --source x.csv --key id"),
]
# Before Spark starts.
OPENED = [
    *("check T", "detail T", "files T", "history T", "properties T", "schema T", "vacuum T"),
    *("delete T --all", "update T --set a=1 --all", "append T --source x.csv"),
    *("merge T --source x.csv --on a --upsert", "changes T --start-version 0"),
    *("convert T lake.db.t", "convert T lake.db.t --dry-run", "convert T lake.db.t --follow"),
    "traces T --where 'id = 1'",
]


def run_on(table: str | Path, line: str, *more: str, code: int) -> Result:
    words = [str(table) if word == "T" else word for word in shlex.split(line)]
    return run(*words, *more, code=code)


@pytest.mark.parametrize(
    ("table", "line"),
    [("lake.db.orders", line) for line in DELTA] + [("./orders", line) for line in ICEBERG],
)
def test_a_table_of_the_other_format_by_its_name_or_path(table: str, line: str) -> None:
    told = {
        "lake.db.orders": "is the name of a table in a catalog; this command takes .*"
        "Hint: name its folder",
        "./orders": "is a path; this command takes an Iceberg table by its name.*"
        "Hint: name it as catalog.database.table",
    }
    result = run_on(table, line, code=ExitCode.USAGE)
    assert re.search(f"{re.escape(table)} {told[table]}", result.stderr, re.DOTALL)


@pytest.mark.parametrize("line", OPENED)
def test_a_missing_folder_and_a_folder_of_parquet(line: str, tmp_path: Path) -> None:
    missing = run_on(tmp_path / "nothing", line, code=ExitCode.NOT_FOUND)
    assert f"{tmp_path}/nothing is not a Delta table" in missing.stderr
    assert "Hint: " in missing.stderr
    assert "convert-to-delta" not in missing.stderr
    told = run_on(tmp_path / "nothing", line, "--json", code=ExitCode.NOT_FOUND).stdout
    assert json.loads(told)["error"]["type"] == "TableNotFoundError"
    (tmp_path / "plain").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "plain" / "part.parquet")
    plain = run_on(tmp_path / "plain", line, code=ExitCode.NOT_FOUND)
    assert "convert-to-delta" in plain.stderr


WRONG = [
    ("histroy t", "no such command 'histroy': did you mean history?"),
    ("delete_keys t", "no such command 'delete_keys': did you mean delete-keys"),
    ("xyzzy", "no such command 'xyzzy': delvec --help lists all."),
    ("--dry-run vacuum t", "options come after it, as in delvec history TABLE --json"),
    ("files t --limt 3", "No such option '--limt'. Did you mean '--limit'?"),
    ("files t --where x", "No such option '--where'."),
    ("files t --limit many", "'many' is not a valid integer"),
    ("files t --limit -1", "-1 is not in the range x>=0"),
    ("history t --limit 0", "0 is not in the range x>=1"),
    ("files", "Missing argument 'TABLE'"),
    ("convert t", "Missing argument 'TARGET'"),
    ("files a b", "unexpected extra argument"),
    ("files t --storage-option no-sign", "'no-sign' is not of the form KEY=VALUE"),
    ("files t --version 1 --timestamp 2026-01-01", "not both"),
    ("completion tcsh", "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    # Writes.
    ("delete t", "give --where CONDITION, or --all"),
    ("delete t --all --where a", "not both"),
    ("delete t --all --rewrite-ratio 2", "0<x<=1"),
    ("delete t --where a --conf x", "'x' is not of the form KEY=VALUE"),
    ("update t --set a=1", "give --where CONDITION, or --all"),
    ("update t --all", "--set"),
    ("update t --all --set 1", "expected ="),
    ("update t --all --set a=1 --set a=2", "a is set twice"),
    ("merge t --source s --on a", "give --upsert, or one --when"),
    ("merge t --source s --on a --when then", "expected NOT MATCHED"),
    ("create t", "--schema"),
    ("create t --schema 'a int' --property k", "KEY=VALUE"),
    ("append t", "--source"),
    ("delete-keys lake.db.t --values 1", "Missing option '--key'"),
    ("delete-keys lake.db.t --key id", "give --values or --source, one of them"),
    ("delete-keys lake.db.t --key id --values 1 --source x.csv", "give --values or --source, one"),
    ("delete-keys lake.db.t --key a --key b --values 1", "--values is for one column"),
    ("delete-keys lake.db.t --key id --values 1,,2", "a value is empty"),
    ("delete-keys lake.db.t --key id --values 1 --partition x", "'x' is not of the form KEY=VALUE"),
    ("upsert lake.db.t --source x.csv", "Missing option '--key'"),
    ("upsert lake.db.t --key id", "Missing option '--source'"),
    ("upsert lake.db.t --source x --key id --txn-version 1", "--txn-version go together"),
    ("upsert lake.db.t --source x --key id --duplicates x", "'error', 'last'"),
    # What tables are and were.
    ("changes t", "give --start-version or --start-timestamp"),
    ("restore t", "give --version or --timestamp"),
    ("restore t --version 1 --timestamp 2024-01-31", "not both"),
    ("restore t --version -1", "x>=0"),
    ("branch rollback lake.db.t", "give --snapshot-id or --timestamp"),
    ("properties t --set a=1 --unset b", "give one of them"),
    ("properties t --set a", "'a' is not of the form KEY=VALUE"),
    ("convert-to-delta t --partition-by a=date --partition-by b", "or of none"),
    ("recompute-statistics t --where 'id < 3'", "comparisons of partition columns"),
    ("traces t", "--where"),
    ("vacuum t --retention-hours -1", "x>=0"),
    ("check ./t --sample -1", "--sample"),
    # Maintenance of Iceberg tables, and services.
    ("resolve lake.db.t --follow --dry-run", "--follow does not go with --dry-run"),
    ("resolve lake.db.t --interval 3s", "--interval needs --follow"),
    ("resolve lake.db.t --metrics-port 0", "--metrics-port needs --follow"),
    ("resolve lake.db.t --follow --metrics-host ::", "--metrics-host needs --metrics-port"),
    ("resolve lake.db.t --restart-staging", "--restart-staging needs --staging"),
    ("resolve lake.db.t --follow --interval -3s", "'-3s' is not a duration"),
    ("resolve lake.db.t --wait '3 weeks'", "'3 weeks' is not a duration"),
    ("resolve lake.db.t --index hash", "'auto', 'join', 'index'"),
    ("resolve lake.db.t --max-snapshots 0", "0 is not in the range"),
    ("compact lake.db.t --wait x", "'x' is not a duration"),
    ("compact lake.db.t --rewrite-option rewrite-all", "is not of the form KEY=VALUE"),
    ("compact lake.db.t -o rewrite-all=true", "No such option"),
    ("index lake.db.t", "give --key or --drop, one of them"),
    ("index lake.db.t --key id --drop", "give --key or --drop, one of them"),
    ("index lake.db.t --drop --branch x", "--branch goes with --key"),
    ("clean-target lake.db.t --older-than 'a week'", "neither an age such as 7d"),
    ("clean-target lake.db.t --older-than 99999999999d", "neither an age such as 7d"),
    ("clean-target lake.db.t --retain-last 0", "x>=1"),
    ("clean-target lake.db.t --orphan-age 2026-01-31", "not an age such as 7d"),
    ("clean-target lake.db.t --orphan-age 99999999999d", "not an age such as 7d"),
    ("clean-target lake.db.t --orphan-age 23h", "orphan_age is a timedelta of a day or more"),
    # Conversions.
    ("convert t lake.db.t --format-version 1", "2<=x<=3"),
    ("convert t lake.db.t --vectors copy", "'repack', 'reference'"),
    ("convert t lake.db.t --format-version 2 --vectors reference", "cannot refer"),
    ("convert t lake.db.t --start-version 0", "start_version needs history='per-version'"),
    ("convert t lake.db.t --follow --dry-run", "--follow goes with neither"),
    ("convert t lake.db.t --follow --version 1", "--follow goes with neither"),
    ("convert t lake.db.t --interval 1", "--interval needs --follow"),
    ("convert t lake.db.t --metrics-port 0", "--metrics-port needs --follow"),
    ("convert t lake.db.t --interval soon", "'soon' is not a duration"),
    ("convert t lake.db.t --folder ../x", "folder is a relative path"),
    # Options of the other format.
    ("append lake.db.t --source x --merge-schema", "--merge-schema is for a Delta table"),
    ("append lake.db.t --source x --max-retries 0", "--max-retries is for a Delta table"),
    ("check lake.db.t --dry-run", "--dry-run is for a Delta table"),
    ("check lake.db.t --repair", "--repair is for a Delta table"),
    ("check lake.db.t --sample 3", "--sample is for a Delta table"),
    ("check lake.db.t -o region=x", "--storage-option is for a Delta table"),
    ("delete lake.db.t --all --max-retries 3", "--max-retries is for a Delta table"),
    ("delete lake.db.t --all --rewrite-ratio 1", "--rewrite-ratio is for a Delta table"),
    ("files lake.db.t --storage-option a=b", "--storage-option is for a Delta table"),
    ("properties lake.db.t --commit-metadata main", "--commit-metadata is for a Delta table"),
    ("properties lake.db.t --dry-run", "--dry-run is for a Delta table"),
    ("schema lake.db.t --timestamp 2026-01-31", "--timestamp is for a Delta table"),
    ("schema lake.db.t --version 1", "--version is for a Delta table"),
    ("append ./t --source x.csv --branch b", "--branch is for an Iceberg table"),
    ("check s3://lake/t --snapshot-id 3", "--snapshot-id is for an Iceberg table"),
    ("check /lake/t --branch x", "--branch is for an Iceberg table"),
    ("delete ./t --all --key id", "--key is for an Iceberg table"),
    ("delete-keys ./t --key a --values 1 --branch b", "--branch is for an Iceberg table"),
    ("delete-keys ./t --key a --values 1 --partition a=b", "--partition is for an Iceberg table"),
    ("detail ./t --branch x", "--branch is for an Iceberg table"),
    ("files ./t --branch b", "--branch is for an Iceberg table"),
    ("history ./t --branch b", "--branch is for an Iceberg table"),
    ("inspect ./t --snapshot-id 3", "--snapshot-id is for an Iceberg table"),
]


@pytest.mark.parametrize(("line", "message"), WRONG)
def test_wrong_usage_is_told_before_anything_starts(line: str, message: str) -> None:
    result = run(*shlex.split(line), code=ExitCode.USAGE)
    assert message in " ".join(result.stderr.split())
    assert "'--help'?" not in result.stderr
    assert result.stdout == ""


def test_a_command_of_commands_alone_shows_them() -> None:
    result = run("branch")
    assert "branch [OPTIONS] COMMAND [ARGS]" in result.output  # of click 8.1 the exit code is 0


@pytest.mark.parametrize(
    ("line", "message", "command"),
    [
        ("files", "Missing argument 'TABLE'.", "delvec files"),
        ("files t --limmit 1", "No such option '--limmit'", "delvec files"),
        ("restore t", "give --version or --timestamp", "delvec restore"),
        ("histroy t", "did you mean history?", "delvec"),
        ("--bogus", "No such option '--bogus'", "delvec"),
    ],
)
def test_wrong_usage_is_told_in_json_where_that_is_asked_for(
    line: str, message: str, command: str
) -> None:
    result = separate().invoke(main, [*line.split(), "--json"], prog_name="delvec")
    assert (result.exit_code, result.stderr) == (ExitCode.USAGE, "")
    error = json.loads(result.stdout)["error"]
    assert error["type"] == "UsageError"
    assert message in error["message"]
    assert error["hint"] == f"{command} --help shows the options and examples"


def test_exit_codes_tell_a_missing_folder_from_another_file_and_from_damage(tmp_path: Path) -> None:
    text, vectors = tmp_path / "readme.txt", tmp_path / "deletion_vector.bin"
    for file in (text, vectors):
        file.write_text("hello")
    run("convert-to-delta", tmp_path / "nothing", code=ExitCode.NOT_FOUND)
    run("inspect", text, code=ExitCode.USAGE)
    run("inspect", vectors, code=ExitCode.DAMAGED)
    for name in ("files", "check", "history"):
        result = run(name, text, code=ExitCode.NOT_FOUND)
        assert "is not a Delta table: it is a file" in result.stderr


def test_paths_in_hints_are_quoted_for_the_shell_and_look_like_no_option(tmp_path: Path) -> None:
    folder = tmp_path / "a lake"
    folder.mkdir()
    assert f"delvec create '{folder}' --schema" in run("files", folder).stderr
    pq.write_table(pa.table({"id": [1]}), folder / "part.parquet")
    assert f"delvec convert-to-delta '{folder}';" in run("check", folder).stderr
    assert "delvec create ./-x --schema ..." in run("inspect", "--", "-x").stderr


def test_properties_of_iceberg_tables_are_refused_with_the_statement_that_sets_them() -> None:
    result = run("properties", "lake.db.t", "--set", "it's=secret", "--json")
    assert result.exit_code == ExitCode.UNSUPPORTED
    error = json.loads(result.stdout)["error"]
    statement = r"ALTER TABLE lake.db.t SET TBLPROPERTIES ('it\'s'='…')"
    assert error["hint"] == f"run in Spark SQL: {statement}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "give a statement, or --file with statements, not both"),
        (["SELECT 1", "--file", "JOB"], "give a statement, or --file with statements, not both"),
        (["--file", "JOB"], "there is no statement"),
        (["--", " ; -- nothing"], "there is no statement"),
    ],
)
def test_sql_wants_a_statement_or_a_file(given: list[str], told: str, tmp_path: Path) -> None:
    job = tmp_path / "job.sql"
    job.write_text("-- SELECT 1;\n;")
    words = [str(job) if each == "JOB" else each for each in given]
    assert told in run("sql", *words, code=ExitCode.USAGE).stderr
