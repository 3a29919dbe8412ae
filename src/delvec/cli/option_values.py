"""What is typed on the command line, as values: pairs, durations, sizes, ages and times."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.report.figures import parsed_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from click.shell_completion import CompletionItem

__all__ = [
    "Aliased",
    "age",
    "age_or_time",
    "complete_files",
    "complete_folders",
    "file_size",
    "pairs",
    "seconds",
]

_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)", re.ASCII)
_AGES: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_AGE: Final = re.compile(rf"(\d+)([{''.join(_AGES)}])")


class Aliased(click.Option):
    """An option that is also known by names that no help shows: those that it had before."""

    def __init__(self, *args: Any, aliases: Iterable[str] = (), **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self.aliases = list(aliases)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:  # noqa: ANN401
        """Let the parser know all names."""
        shown = self.opts
        self.opts = [*shown, *self.aliases]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


def pairs(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Parse values of the form KEY=VALUE."""
    found = [value.partition("=") for value in values]
    if bad := [key for key, sign, _ in found if not sign]:
        raise click.BadParameter(f"{bad[0]!r} is not of the form KEY=VALUE")
    return {key: value for key, _, value in found}


def seconds(
    _context: click.Context | None, _option: click.Parameter | None, value: str | None
) -> float | None:
    """Parse a duration: a number of seconds, or a number with its unit.

    >>> seconds(None, None, "1.5m")
    90.0
    """
    if value is None:
        return None
    found = _DURATION.fullmatch(value.strip())
    if found is None or found[2] not in _SECONDS:
        raise click.BadParameter(f"{value!r} is not a duration such as 30s, 500ms, 2m or 1h")
    return float(found[1]) * _SECONDS[found[2]]


def file_size(
    _context: click.Context | None, _option: click.Parameter | None, value: str | None
) -> int | None:
    """Return the bytes of a size such as 128MB; None if it is absent."""
    if value is None:
        return None
    found = parsed_size(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no size such as 128MB")
    return found


def age(
    _context: click.Context | None, _option: click.Parameter | None, value: str | None
) -> timedelta | None:
    """Parse an age such as `7d` or `12h`.

    >>> age(None, None, "12h")
    datetime.timedelta(seconds=43200)
    """
    if value is None:
        return None
    match = _AGE.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not an age such as 7d, 12h or 30m")
    try:
        return timedelta(**{_AGES[match[2]]: int(match[1])})
    except OverflowError as error:
        raise click.BadParameter(f"{value!r} is too long, give an age such as 7d") from error


def age_or_time(
    context: click.Context | None, option: click.Parameter | None, value: str | None
) -> timedelta | datetime | None:
    """Parse an age, or a point in time in ISO form."""
    if value is None or _AGE.fullmatch(value):
        return age(context, option, value)
    try:
        return datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is neither an age such as 7d nor a time such as 2026-01-31T12:00"
        ) from error


def complete_folders(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell complete a folder, where a table is expected."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415

    return [CompletionItem(incomplete, type="dir")]


def complete_files(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell complete a file or folder."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415

    return [CompletionItem(incomplete, type="file")]
