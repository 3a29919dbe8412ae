"""Wrong usages: each has a message of its own, a next step, and an exit code."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec.cli import main
from delvec.cli.exits import ExitCode
from tests.cli import runner
from tests.cli.runner import separate
from tests.delta.builder import small_table

run = partial(runner.run, columns=300, runner=runner.separate())

DELTA = (
    ("changes", "--start-version", "0"),
    ("checkpoint",),
    ("clean-log",),
    ("clone", "/tmp/target"),  # noqa: S108 - never made
    ("column add", "id2 long"),
    ("column drop", "id"),
    ("constraint add", "positive", "--check", "id > 0"),
    ("feature add", "vacuumProtocolCheck"),
    ("create", "--schema", "id long"),
    ("downgrade",),
    ("generate-manifest",),
    ("merge", "--source", "x.csv", "--on", "a", "--upsert"),
    ("optimize",),
    ("overwrite", "--source", "x.csv", "--all"),
    ("purge",),
    ("recompute-statistics",),
    ("restore", "--version", "0"),
    ("traces", "--where", "id = 1"),
    ("update", "--set", "a=1", "--all"),
    ("vacuum",),
)
ICEBERG = (
    ("branch create", "audit"),
    ("branch rollback", "--snapshot-id", "1"),
    ("clean-target",),
    ("compact",),
    ("consolidate",),
    ("expire-snapshots",),
    ("remove-orphan-files",),
    ("unlock",),
    ("index", "--key", "id"),
    ("refs",),
    ("resolve",),
    ("tag drop", "end-of-2026"),
    ("upsert", "--source", "x.csv", "--key", "id"),
)


@pytest.mark.parametrize("arguments", DELTA, ids=lambda given: given[0])
def test_a_catalog_name_instead_of_a_path(arguments: tuple[str, ...]) -> None:
    result = run(*arguments[0].split(), "lake.db.orders", *arguments[1:])
    assert result.exit_code == ExitCode.USAGE, result.output
    assert "lake.db.orders is the name of a table in a catalog; this command takes" in result.stderr
    assert "Hint: name its folder" in result.stderr


@pytest.mark.parametrize("arguments", ICEBERG, ids=lambda given: given[0])
def test_a_path_instead_of_a_catalog_name(arguments: tuple[str, ...]) -> None:
    result = run(*arguments[0].split(), "/lake/orders", *arguments[1:])
    assert result.exit_code == ExitCode.USAGE, result.output
    assert (
        "/lake/orders is a path; this command takes an Iceberg table by its name" in result.stderr
    )
    assert "Hint: name it as catalog.database.table" in result.stderr


@pytest.mark.parametrize("name", ["detail", "files", "history", "schema", "properties", "vacuum"])
def test_a_missing_folder_and_a_folder_of_parquet(name: str, tmp_path: Path) -> None:
    missing = run(name, tmp_path / "nothing")
    assert missing.exit_code == ExitCode.NOT_FOUND
    assert str(tmp_path / "nothing") in missing.stderr
    assert "Hint: " in missing.stderr
    (tmp_path / "plain").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "plain" / "part.parquet")
    plain = run(name, tmp_path / "plain")
    assert plain.exit_code == ExitCode.NOT_FOUND
    assert "convert-to-delta" in plain.stderr
    assert "convert-to-delta" not in missing.stderr


def test_a_misspelt_column_is_named_with_those_that_are_near(tmp_path: Path) -> None:
    table, _ = small_table(tmp_path / "t")
    assert table.fields == {"id": "long"}
    result = run("properties", tmp_path / "t", "--set", "delta.enableDeletionVektors=true")
    assert result.exit_code == ExitCode.USAGE
    assert "delta.enableDeletionVectors" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("histroy", "t"), "no such command 'histroy': did you mean history?"),
        (("delete_keys", "t"), "no such command 'delete_keys': did you mean delete-keys"),
        (("--dry-run", "vacuum", "t"), "options come after it, as in delvec history TABLE --json"),
        (("files", "t", "--limt", "3"), "No such option '--limt'. Did you mean '--limit'?"),
        (("files", "t", "--where", "x"), "No such option '--where'."),
        (("xyzzy",), "no such command 'xyzzy': delvec --help lists all."),
        (("files", "t", "--limmit", "1"), "--limmit"),
        (("files", "t", "--limit", "many"), "'many' is not a valid integer"),
        (("files", "t", "--limit", "-1"), "-1 is not in the range x>=0"),
        (("files",), "Missing argument 'TABLE'"),
        (("files", "a", "b"), "unexpected extra argument"),
        (("files", "t", "--version", "1", "--timestamp", "2026-01-01"), "not both"),
        (("restore", "t"), "give --version or --timestamp"),
        (("upsert", "lake.db.t", "--key", "id"), "Missing option '--source'"),
        (("properties", "t", "--set", "a=1", "--unset", "b"), "give one of them"),
        (("properties", "t", "--set", "a"), "'a' is not of the form KEY=VALUE"),
        (
            ("convert-to-delta", "t", "--partition-by", "a=date", "--partition-by", "b"),
            "or of none",
        ),
        (("changes", "t"), "give --start-version or --start-timestamp"),
        (("branch", "rollback", "lake.db.t"), "give --snapshot-id or --timestamp"),
        (("recompute-statistics", "t", "--where", "id < 3"), "comparisons of partition columns"),
        (("append", "lake.db.t", "--source", "x", "--merge-schema"), "is for a Delta table"),
        (("delete", "lake.db.t", "--all", "--max-retries", "3"), "is for a Delta table"),
        (("append", "lake.db.t", "--source", "x", "--max-retries", "0"), "is for a Delta table"),
        (("properties", "lake.db.t", "--commit-metadata", "main"), "--commit-metadata is for"),
        (("completion", "tcsh"), "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
        (("detail", "./t", "--branch", "x"), "--branch is for an Iceberg table"),
        (("schema", "lake.db.t", "--version", "1"), "--version is for a Delta table"),
        (("schema", "lake.db.t", "--timestamp", "2026-01-31"), "--timestamp is for a Delta table"),
        (("check", "lake.db.t", "--repair"), "--repair is for a Delta table"),
        (("check", "lake.db.t", "--sample", "3"), "--sample is for a Delta table"),
        (("check", "./t", "--snapshot-id", "3"), "--snapshot-id is for an Iceberg table"),
        (("delete", "lake.db.t", "--all", "--rewrite-ratio", "1"), "--rewrite-ratio is for a Del"),
        (("delete", "./t", "--all", "--key", "id"), "--key is for an Iceberg table"),
        (("delete-keys", "./t", "--key", "a", "--values", "1", "--branch", "b"), "is for an Iceb"),
        (("files", "./t", "--branch", "b"), "--branch is for an Iceberg table"),
        (("history", "./t", "--branch", "b"), "--branch is for an Iceberg table"),
        (("inspect", "./t", "--snapshot-id", "3"), "--snapshot-id is for an Iceberg table"),
        (("properties", "lake.db.t", "--dry-run"), "--dry-run is for a Delta table"),
        (("delete", "t", "--where", "a", "--conf", "x"), "'x' is not of the form KEY=VALUE"),
    ],
)
def test_usage_that_click_or_a_command_refuses(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == ExitCode.USAGE, result.output
    assert message in " ".join(result.stderr.split())
    assert "'--help'?" not in result.stderr
    assert result.stdout == ""


def test_a_command_of_commands_alone_shows_them() -> None:
    result = run("branch")
    assert "branch [OPTIONS] COMMAND [ARGS]" in result.output  # of click 8.1 the exit code is 0


@pytest.mark.parametrize(
    ("arguments", "message", "command"),
    [
        (("files", "--json"), "Missing argument 'TABLE'.", "delvec files"),
        (("files", "t", "--limmit", "1", "--json"), "No such option '--limmit'", "delvec files"),
        (("restore", "t", "--json"), "give --version or --timestamp", "delvec restore"),
        (("histroy", "t", "--json"), "did you mean history?", "delvec"),
        (("--bogus", "--json"), "No such option '--bogus'", "delvec"),
    ],
)
def test_wrong_usage_is_told_in_json_where_that_is_asked_for(
    arguments: tuple[str, ...], message: str, command: str
) -> None:
    result = separate().invoke(main, arguments, prog_name="delvec")
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr == ""
    error = json.loads(result.stdout)["error"]
    assert error["type"] == "UsageError"
    assert message in error["message"]
    assert error["hint"] == f"{command} --help shows the options and examples"


def test_exit_codes_tell_a_missing_folder_from_another_file_and_from_damage(tmp_path: Path) -> None:
    text, vectors = tmp_path / "readme.txt", tmp_path / "deletion_vector.bin"
    text.write_text("hello")
    vectors.write_text("hello")
    missing = run("convert-to-delta", tmp_path / "nothing")
    assert (missing.exit_code, run("inspect", text).exit_code) == (
        ExitCode.NOT_FOUND,
        ExitCode.USAGE,
    )
    assert run("inspect", vectors).exit_code == ExitCode.DAMAGED
    for name in ("files", "check", "history"):
        result = run(name, text)
        assert result.exit_code == ExitCode.NOT_FOUND
        assert "is not a Delta table: it is a file" in result.stderr


def test_paths_in_hints_are_quoted_for_the_shell(tmp_path: Path) -> None:
    folder = tmp_path / "a lake"
    folder.mkdir()
    assert f"delvec create '{folder}' --schema" in run("files", folder).stderr
    pq.write_table(pa.table({"id": [1]}), folder / "part.parquet")
    assert f"delvec convert-to-delta '{folder}';" in run("check", folder).stderr


def test_properties_of_iceberg_tables_are_refused_with_the_statement_that_sets_them() -> None:
    result = run("properties", "lake.db.t", "--set", "it's=secret", "--json")
    assert result.exit_code == ExitCode.UNSUPPORTED
    error = json.loads(result.stdout)["error"]
    statement = r"ALTER TABLE lake.db.t SET TBLPROPERTIES ('it\'s'='…')"
    assert error["hint"] == f"run in Spark SQL: {statement}"


def test_a_hint_has_no_path_that_looks_like_an_option() -> None:
    assert "delvec create ./-x --schema ..." in run("inspect", "--", "-x").stderr
