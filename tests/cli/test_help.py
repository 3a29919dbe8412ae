"""The help of every command, as a snapshot; see `tests/cli/snapshot_files.py`."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from delvec.cli import main
from tests.cli.snapshot_files import FOLDER, PINNED, compare

NAMES = main.list_commands(click.Context(main))


@PINNED
@pytest.mark.parametrize("name", ["delvec", *NAMES])
def test_the_help_is_that_of_the_snapshot(name: str) -> None:
    arguments = ["--help"] if name == "delvec" else [name, "--help"]
    result = CliRunner().invoke(main, arguments, prog_name="delvec", terminal_width=80)
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    compare(f"help/{name}", result.output)


def test_every_command_has_snapshots_and_every_snapshot_a_command() -> None:
    helps = {file.stem for file in FOLDER.glob("help/*.txt")}
    printed = {file.stem for file in FOLDER.glob("*.txt")}
    assert helps == {"delvec", *NAMES}
    assert printed == set(NAMES) - {"demo"}, "the demo's output is tested in test_demo.py"
