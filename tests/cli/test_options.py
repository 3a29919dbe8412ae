"""All commands call the same thing by the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from delvec.cli import main
from delvec.cli.exits import ExitCode
from tests.cli.runner import commands
from tests.delta.builder import TableBuilder

if TYPE_CHECKING:
    from pathlib import Path

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


def test_arguments_have_few_names() -> None:
    names = {
        argument.name
        for _, command in commands()
        for argument in command.params
        if isinstance(argument, click.Argument) and argument.name != "positional"
    }
    of_groups = {"columns", "name", "new_name"}
    assert names <= {"table", "source", "target", "folder", "file", "shell"} | of_groups


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("append", "./t", "--from", "x.csv", "--branch", "b"), "--branch is for an Iceberg table"),
        (("files", "lake.db.t", "--option", "a=b"), "--storage-option is for a Delta table"),
        (("changes", "lake.db.t", "--from", "0", "--to", "1"), "is the name of a table in a"),
        (("compact", "./t", "--option", "rewrite-all=true"), "./t is a path"),
        (
            ("delete-keys", "./t", "--column", "id", "--keys", "1", "--partition", "a=b"),
            "--partition is for an Iceberg table",
        ),
        (("index", "./t", "--key", "id", "--target", "main"), "./t is a path"),
        (("upsert", "./t", "x.csv", "--key", "id"), "./t is a path"),
    ],
)
def test_names_that_options_had_before_still_work(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "300"})
    assert result.exit_code == ExitCode.USAGE
    assert message in result.output
    assert "No such option" not in result.output


@pytest.mark.parametrize("name", ["append", "changes", "compact", "delete-keys", "index", "upsert"])
def test_no_help_shows_names_of_before(name: str) -> None:
    text = CliRunner().invoke(main, [name, "--help"]).output
    for old in ("--from ", "--to ", "--option ", "--column ", "--keys ", "--target ", "POSITIONAL"):
        assert old not in text


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
