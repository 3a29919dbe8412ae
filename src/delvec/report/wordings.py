"""Text that tells what to run next: as a call of Python, and as a command for those who use it."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Final

from delvec.report.figures import visible

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Wording", "call", "in_command", "on_one_line", "shell_word", "worded"]

# Where the command is called otherwise than the method.
_COMMANDS: Final = {
    "add_constraint": "constraint add",
    "add_feature": "feature add",
    "build_index": "index",
    "consolidate_deletes": "consolidate",
    "create_branch": "branch create",
    "drop_constraint": "constraint drop",
    "enable_deletion_vectors": "feature enable-vectors",
}
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Wording(str):
    """A string that names calls of Python, and knows how the same is said with commands.

    >>> told = Wording("run purge()", "run `delvec purge`")
    >>> told, told.command
    ('run purge()', 'run `delvec purge`')
    """

    __slots__ = ("command",)
    command: str

    def __new__(cls, text: str, command: str | None = None) -> Self:
        """Make it of both spellings."""
        made = super().__new__(cls, text)
        made.command = text if command is None else command
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.command


def call(operation: str, *values: str, table: str | None = None, **arguments: object) -> Wording:
    """Return the call of an operation; paths and values are quoted for Python and for a shell.

    >>> call("vacuum"), call("vacuum").command
    ('vacuum()', '`delvec vacuum`')
    >>> call("clean_log", table="/my lake/orders", dry_run=True).command
    "`delvec clean-log '/my lake/orders' --dry-run`"
    >>> call("add_feature", "v2Checkpoint"), call("add_feature", "v2Checkpoint").command
    ('add_feature("v2Checkpoint")', '`delvec feature add TABLE v2Checkpoint`')
    """
    given = [
        *map(_literal, values),
        *(f"{name}={_literal(value)}" for name, value in arguments.items()),
    ]
    words = ["delvec", _COMMANDS.get(operation, operation.replace("_", "-"))]
    if table is not None:
        words.append(shell_word(table, is_path=True))
    elif values:
        words.append("TABLE")
    words += map(shell_word, values)
    for name, value in arguments.items():
        words.append(f"--{name.replace('_', '-')}")
        words += [] if value is True else [shell_word(str(value))]
    return Wording(f"{operation}({', '.join(given)})", f"`{' '.join(words)}`")


def shell_word(word: str, *, is_path: bool = False) -> str:
    r"""Return a word as a shell takes it; control characters as bash, zsh and ksh have them.

    Args:
        word: The word.
        is_path: Whether it names a file or folder: one that begins with a dash is no option.

    >>> shell_word("/lake/my orders"), shell_word("a\n"), shell_word("-x", is_path=True)
    ("'/lake/my orders'", "$'a\\n'", './-x')
    """
    if is_path and word.startswith("-"):
        word = f"./{word}"
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{''.join(c if c.isprintable() else _escaped(c) for c in escaped)}'"


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    # Python has bytes of names that are no UTF-8 as surrogates.
    is_byte = "\udc80" <= character <= "\udcff"
    encoded = character.encode("utf-8", "surrogateescape" if is_byte else "surrogatepass")
    return "".join(f"\\{byte:03o}" for byte in encoded)  # a digit that follows is no part of it


def _literal(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def worded(template: str, *parts: object) -> Wording:
    """Return a text made of others, in both spellings.

    >>> told = worded("run {}, then {}", call("purge"), call("vacuum"))
    >>> told, told.command
    ('run purge(), then vacuum()', 'run `delvec purge`, then `delvec vacuum`')
    """
    return Wording(template.format(*parts), template.format(*map(in_command, parts)))


def in_command(value: Any) -> Any:  # noqa: ANN401
    """Return a value with all advice in it as the command says it; for text and for JSON."""
    if isinstance(value, Wording):
        return value.command
    if isinstance(value, dict):
        return {name: in_command(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [in_command(each) for each in value]
    return value


def on_one_line(text: str) -> Wording:
    """Return a text on one line, in both spellings; see `visible`."""
    return Wording(visible(text), visible(in_command(text)))
