"""Hints of errors, in the words of the command: arguments of Python are options of that name.

What has another name is said by the hint itself, see `delvec.report.wordings`.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from delvec.report.wordings import Wording

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["command_hint"]

_ARGUMENT: Final = re.compile(
    r"""\b([a-z]+(?:_[a-z]+)*)=(?:True|"([^"]*)"|'([^']*)')""",
)
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
        given = f"{name} {shlex.quote(value)}" if value else name
        return given if name in options else found[0].removeprefix("omit ")

    if isinstance(hint, Wording):
        return hint.command
    hint = _ARGUMENT.sub(option, hint)
    return _OMITTED.sub(lambda found: f"omit {option(found)}", hint)
