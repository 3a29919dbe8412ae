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
        own = _context(command, name, context)
        parts += _section(name, command, own)
        for inner, each in command.commands.items() if isinstance(command, click.Group) else ():
            parts += _section(f"{name} {inner}", each, _context(each, inner, own))
    return "\n".join(parts)


def _context(command: click.Command, name: str, parent: click.Context) -> click.Context:
    made = click.Context(command, info_name=name, parent=parent, max_content_width=100)
    made.terminal_width = 100
    return made


def _section(name: str, command: click.Command, context: click.Context) -> list[str]:
    return [f"## {name}", "", "```text", command.get_help(context).rstrip(), "```", ""]
