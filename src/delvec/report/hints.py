"""Text that tells what to run next: as a call of Python, and as a command for those who use it."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Final

from delvec.report.format import escape_controls

if TYPE_CHECKING:
    from typing_extensions import Self

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
# Where the option is called otherwise than the argument.
_OPTIONS: Final = {"allow_paths": "allow-path", "storage_options": "storage-option"}
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
    given = [argument(**{name: value}) for name, value in arguments.items()]
    words = ["delvec", _COMMANDS.get(operation, operation.replace("_", "-"))]
    if table is not None:
        words.append(shell_word(table, is_path=True))
    elif values:
        words.append("TABLE")
    words += [*map(shell_word, values), *(each.command for each in given)]
    told = ", ".join([*map(_literal, values), *given])
    return Wording(f"{operation}({told})", f"`{' '.join(words)}`")


def argument(**given: object) -> Wording:
    """Return an argument, which is an option of the command; None stands for its name alone.

    >>> argument(force=True), argument(index="join"), argument(order_by=None)
    ('force=True', 'index="join"', 'order_by')
    >>> argument(force=True).command, argument(index="join").command
    ('--force', '--index join')
    """
    [(name, value)] = given.items()
    option = f"--{_OPTIONS.get(name, name.replace('_', '-'))}"
    if value is None:
        return Wording(name, option)
    words = option if value is True else f"{option} {shell_word(str(value))}"
    return Wording(f"{name}={_literal(value)}", words)


def shell_word(word: str, *, is_path: bool = False) -> str:
    r"""Return a word as a shell takes it; control characters as bash, zsh and ksh have them.

    >>> shell_word("/lake/my orders"), shell_word("a\n"), shell_word("-x", is_path=True)
    ("'/lake/my orders'", "$'a\\n'", './-x')
    """
    if is_path and word.startswith("-"):
        word = f"./{word}"
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{''.join(c if c.isprintable() else _escaped(c) for c in escaped)}'"


def format_hint(template: str, *parts: object) -> Wording:
    """Return a text made of others, in both spellings.

    >>> told = format_hint("run {}, then {}", call("purge"), call("vacuum"))
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
    """Return a text on one line, in both spellings; see `escape_controls`."""
    return Wording(escape_controls(text), escape_controls(in_command(text)))


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    # Python has bytes of names that are no UTF-8 as surrogates.
    is_byte = "\udc80" <= character <= "\udcff"
    encoded = character.encode("utf-8", "surrogateescape" if is_byte else "surrogatepass")
    return "".join(f"\\{byte:03o}" for byte in encoded)  # a digit that follows is not a part of it


def _literal(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
