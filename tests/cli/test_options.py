"""All commands call the same thing by the same name."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from delvec.cli import main
from delvec.cli.exits import ExitCode
from delvec.cli.values import age_or_time
from tests.cli.runner import commands
from tests.delta.builder import TableBuilder

# What changes no table has nothing to try out.
READING = {
    "changes",
    "completion",
    "demo",
    "detail",
    "files",
    "history",
    "inspect",
    "refs",
    "schema",
    "traces",
}
SPARK = ("--conf", "--master", "--package")


def options(command: click.Command) -> dict[str, click.Option]:
    found = [each for each in command.params if isinstance(each, click.Option)]
    return {name: each for each in found for name in each.opts}


@pytest.fixture(scope="module")
def everything() -> dict[str, dict[str, click.Option]]:
    return {name: options(command) for name, command in commands()}


def test_whatever_changes_a_table_has_a_dry_run(
    everything: dict[str, dict[str, click.Option]],
) -> None:
    without = {name for name, found in everything.items() if "--dry-run" not in found}
    assert without == READING


def test_what_starts_spark_takes_all_options_of_a_session(
    everything: dict[str, dict[str, click.Option]],
) -> None:
    for name, found in everything.items():
        assert len(found.keys() & set(SPARK)) in (0, len(SPARK)), name
        assert ("--catalog" in found) == ("--warehouse" in found), name
        if "--catalog" in found:
            assert "--conf" in found, name


def test_an_option_has_one_form_wherever_it_is(
    everything: dict[str, dict[str, click.Option]],
) -> None:
    """Same type and same placeholder; help texts differ where an option has its own defaults."""
    own = {
        "--source": "which rows, or which keys",
        "--history": "of the source, or how many commits to look at",
        "--set": "values of columns, or properties",
        "--partition-by": "of a new table, or of folders with their types",
    }
    seen: dict[str, tuple[str, tuple[object, ...]]] = {}
    for name, found in everything.items():
        for option, given in found.items() if name != "demo" else ():
            kind = type(given.type).__name__
            form = (given.metavar, kind, given.multiple, given.is_flag)
            first, known = seen.setdefault(option, (name, form))
            assert option in own or known == form, f"{option} of {first} and of {name}"


def test_times_without_a_zone_are_utc_wherever_they_are(
    everything: dict[str, dict[str, click.Option]],
) -> None:
    found = [given["--timestamp"] for given in everything.values() if "--timestamp" in given]
    assert len(found) > 5
    context = click.Context(main)
    for option in found:
        for text, expected in (
            ("2026-01-31 10:00", "2026-01-31T10:00:00+00:00"),
            ("2026-01-31T10:00+01:00", "2026-01-31T10:00+01:00"),
            ("now", "now"),
        ):
            assert option.type.convert(text, option, context) == expected
    noon = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    assert age_or_time("2026-01-31 12:00") == noon
    assert age_or_time("0d") == timedelta(0)


def test_arguments_have_few_names() -> None:
    names = {
        argument.name
        for _, command in commands()
        for argument in command.params
        if isinstance(argument, click.Argument)
    }
    of_groups = {"columns", "name", "new_name"}
    assert names <= {"table", "source", "target", "folder", "file", "shell"} | of_groups


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("append", "./t", "--source", "x.csv", "--branch", "b"),
            "--branch is for an Iceberg table",
        ),
        (
            ("files", "lake.db.t", "--storage-option", "a=b"),
            "--storage-option is for a Delta table",
        ),
        (("changes", "lake.db.t", "--start-version", "0"), "is the name of a table in a"),
        (("compact", "./t", "--rewrite-option", "rewrite-all=true"), "./t is a path"),
        (
            ("delete-keys", "./t", "--key", "id", "--values", "1", "--partition", "a=b"),
            "--partition is for an Iceberg table",
        ),
        (("index", "./t", "--key", "id", "--branch", "main"), "./t is a path"),
        (("upsert", "./t", "--source", "x.csv", "--key", "id"), "./t is a path"),
    ],
)
def test_options_of_the_other_format_are_refused(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "300"})
    assert result.exit_code == ExitCode.USAGE
    assert message in result.output
    assert "No such option" not in result.output


def test_a_fence_is_for_all_commands_that_open_a_table(tmp_path: Path) -> None:
    table = TableBuilder(tmp_path / "t")
    table.create()
    add = table.write_file("../outside/a.parquet", {"id": range(5)})
    table.commit({"add": add | {"path": f"{tmp_path}/outside/a.parquet"}})

    def checked(*fence: str) -> str:
        return CliRunner().invoke(main, [*fence, "check", str(table.root)]).output

    assert "nothing is wrong" in checked()
    assert "nothing is wrong" in checked("--allow-path", "/x", "--allow-path", str(tmp_path))
    assert "leads out of its folder" in " ".join(checked("--allow-path", "/x").split())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("history", "s3:///orders"), "credentials go into --storage-option"),
        (("history", "/orders", "-o", "s3://other=x"), "write --storage-option s3://other/aws_reg"),
        (
            ("--allow-path", "x", "history", "/orders"),
            "write spark.delvec.allowedPaths and --allow-",
        ),
    ],
)
def test_hints_name_options_of_the_command(arguments: tuple[str, ...], told: str) -> None:
    output = CliRunner().invoke(main, arguments, env={"COLUMNS": "300"}).output
    assert told in output
    assert "storage_options" not in output
