"""Hints of errors, in the words of the command: arguments of Python are options of that name.

What has another name is said by the hint itself, see `delvec.report.wordings`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

from delvec.report.wordings import Wording, shell_word

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["command_hint"]

_ARGUMENT: Final = re.compile(
    r"""\b([a-z]+(?:_[a-z]+)*)=(?:True|"([^"]*)"|'([^']*)')""",
)
_TABLE: Final = re.compile(r"(?<=\s)TABLE(?=[\s`])")
_OMITTED: Final = re.compile(r"\bomit ([a-z]+(?:_[a-z]+)+)()()\b")


def command_hint(hint: str, options: Collection[str]) -> str:
    """Return a hint with options in place of arguments.

    Args:
        hint: The hint.
        options: The options of the command that failed; only these are named.

    >>> command_hint("omit retention_hours, or pass force=True", ("--retention-hours", "--force"))
    'omit --retention-hours, or pass --force'
    >>> command_hint("pass mode='ignore'", ("--mode",))
    'pass --mode ignore'
    """

    def option(found: re.Match[str]) -> str:
        name = f"--{found[1].replace('_', '-')}"
        value = found[2] or found[3] or ""
        given = f"{name} {shell_word(value)}" if value else name
        return given if name in options else found[0].removeprefix("omit ")

    if isinstance(hint, Wording):
        return _with_table(hint.command)
    hint = _ARGUMENT.sub(option, hint)
    return _OMITTED.sub(lambda found: f"omit {option(found)}", hint)


def _with_table(command: str) -> str:
    """Return a hint with the table of the command that runs in place of TABLE."""
    context = click.get_current_context(silent=True)
    table = None if context is None else context.params.get("table")
    if table is None:
        return command
    word = shell_word(table, is_path=True)
    return _TABLE.sub(lambda _: word, command)
