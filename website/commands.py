"""The page of all commands, from the help that they print."""

from __future__ import annotations

import click

from delvec.cli import main

__all__ = ["commands_page"]


def commands_page() -> str:
    """Return the help of every command in Markdown."""
    context = click.Context(main, info_name="delvec")
    parts = ["# All commands", "", "What `delvec COMMAND --help` prints.", ""]
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        if command is None or command.hidden:
            continue
        own = click.Context(command, info_name=name, parent=context, max_content_width=100)
        own.terminal_width = 100
        parts += [f"## {name}", "", "```text", command.get_help(own).rstrip(), "```", ""]
    return "\n".join(parts)
