"""Hints of errors, in the words of the command: they name calls of Python elsewhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["command_hint"]

_CALLS: Final = (
    (r"DeltaTable\.convert_to_delta\(None, '([^']*)'\)", r"delvec convert-to-delta \1"),
    (r"DeltaTable\.create\(spark, '([^']*)', schema\)", r"delvec create \1 --schema ..."),
    (
        r'open it by its name: IcebergTable\.for_name\(spark, "catalog\.database\.table"\)',
        "give its name in a catalog, such as lake.db.orders",
    ),
    (r"remove_orphan_files\(older_than=timedelta\(days=(\d+)\)\)", r"--older-than \1d"),
    (r"foreign=['\"]overwrite['\"]", "--overwrite-foreign"),
    (r"purge\(\) or `delvec purge`", "`delvec purge`"),
    (r"copy_files=True \(--copy-files\)", "--copy-files"),
)
_ARGUMENT: Final = re.compile(
    r"""\b([a-z]+(?:_[a-z]+)*)=(?:True|"([^"]*)"|'([^']*)')""",
)
_METHOD: Final = re.compile(r"(?<![\w.`])([a-z]+(?:_[a-z]+)*)\(\)")
_OMITTED: Final = re.compile(r"\bomit ([a-z]+(?:_[a-z]+)+)()()\b")
# Methods whose command has the same name.
_COMMANDS: Final = {
    *("checkpoint", "clean_log", "delete", "generate_manifest", "optimize", "purge"),
    *("recompute_statistics", "restore", "vacuum"),
}


def command_hint(hint: str, options: Collection[str]) -> str:
    """Return a hint with commands and options in place of calls and arguments.

    Args:
        hint: The hint.
        options: The options of the command that failed; only these are named.

    >>> command_hint("make it one: DeltaTable.convert_to_delta(None, '/lake/orders')", ())
    'make it one: delvec convert-to-delta /lake/orders'
    >>> command_hint("omit retention_hours, or pass force=True", ("--retention-hours", "--force"))
    'omit --retention-hours, or pass --force'
    >>> command_hint("pass mode='ignore'; recompute_statistics() counts anew", ("--mode",))
    'pass --mode ignore; `delvec recompute-statistics` counts anew'
    """

    def option(found: re.Match[str]) -> str:
        name = f"--{found[1].replace('_', '-')}"
        value = found[2] or found[3] or ""
        return f"{name} {value}".rstrip() if name in options else found[0].removeprefix("omit ")

    for pattern, command in _CALLS:
        hint = re.sub(pattern, command, hint)
    hint = _ARGUMENT.sub(option, hint)
    hint = _OMITTED.sub(lambda found: f"omit {option(found)}", hint)
    return _METHOD.sub(_command, hint)


def _command(found: re.Match[str]) -> str:
    name = found[1]
    return f"`delvec {name.replace('_', '-')}`" if name in _COMMANDS else found[0]
