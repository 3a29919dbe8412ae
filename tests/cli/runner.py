"""All commands, and how tests run them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from delvec.cli import main


def separate() -> CliRunner:
    """Return a runner; click mixes the two before 8.2."""
    choice: dict[str, Any] = {"mix_stderr": False}
    return CliRunner(**(choice if "mix_stderr" in signature(CliRunner).parameters else {}))


def run(
    *arguments: str | Path,
    columns: int = 200,
    code: int | None = None,
    runner: CliRunner | None = None,
    **more: Any,  # noqa: ANN401
) -> Result:
    """Run the command as in a terminal of so many columns, without colours; check how it ends."""
    environment = {"COLUMNS": str(columns), "NO_COLOR": "1"}
    words = [str(each) for each in arguments]
    result = (runner or CliRunner()).invoke(main, words, env=environment, **more)
    assert code in (None, result.exit_code), result.output
    return result


def run_json(*arguments: str | Path) -> Any:  # noqa: ANN401
    """Run a command that succeeds, with --json; return the document."""
    return json.loads(run(*arguments, "--json", code=0, runner=separate()).stdout)


def commands() -> Iterator[tuple[str, click.Command]]:
    """All commands by name, those of groups as `branch create`."""
    context = click.Context(main)
    for name in main.list_commands(context):
        found = main.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from ((f"{name} {each}", command) for each, command in found.commands.items())
        else:
            yield name, found
