"""All commands, and a runner that keeps standard output and standard error apart."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import click
from click.testing import CliRunner

from delvec.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["commands", "separate"]


def separate() -> CliRunner:
    """Return a runner; click mixes the two before 8.2."""
    choice: dict[str, Any] = {"mix_stderr": False}
    return CliRunner(**(choice if "mix_stderr" in signature(CliRunner).parameters else {}))


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
