"""The help of every command, as a snapshot; see `tests/cli/snapshot_files.py`."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from delvec.cli import main
from tests.cli.snapshot_files import FOLDER, PINNED, compare

CONTEXT = click.Context(main)
NAMES = main.list_commands(CONTEXT)
GROUPS = {
    name: found
    for name in NAMES
    if isinstance(found := main.get_command(CONTEXT, name), click.Group)
}
INNER = [f"{name} {each}" for name, found in GROUPS.items() for each in found.commands]


@PINNED
@pytest.mark.parametrize("name", ["delvec", *NAMES, *INNER])
def test_the_help_is_that_of_the_snapshot(name: str) -> None:
    arguments = ["--help"] if name == "delvec" else [*name.split(), "--help"]
    result = CliRunner().invoke(main, arguments, prog_name="delvec", terminal_width=80)
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    compare(f"help/{name.replace(' ', '-')}", result.output)


def test_every_command_has_snapshots_and_every_snapshot_a_command() -> None:
    helps = {file.stem for file in FOLDER.glob("help/*.txt")}
    printed = {file.stem for file in FOLDER.glob("*.txt")}
    assert helps == {"delvec", *NAMES, *(name.replace(" ", "-") for name in INNER)}
    assert printed == set(NAMES) - {"demo"}, "the demo's output is tested in test_demo.py"
