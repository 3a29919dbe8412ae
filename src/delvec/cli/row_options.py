"""The options that say which rows or files a command is about."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.option_values import Aliased, complete_files

if TYPE_CHECKING:
    from collections.abc import Callable

    _Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

__all__ = [
    "FORMATS",
    "files_chosen",
    "key_option",
    "rows_chosen",
    "source_option",
    "source_options",
]

FORMATS: Final = ("parquet", "csv", "json", "delta")
"""What a source of rows can be."""


def files_chosen(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--where`, which chooses files."""
    return click.option(
        "--where", metavar="SQL", help="Only files that may have rows for which it is true."
    )(function)


def key_option(help_text: str, *aliases: str, required: bool = False) -> _Decorator:
    """Add `--key`, a column of the key; the function gets all of them as `keys`."""
    return click.option(
        "--key",
        "keys",
        cls=Aliased,
        aliases=aliases,
        multiple=True,
        required=required,
        metavar="COLUMN",
        help=help_text,
    )


def source_option(help_text: str, *aliases: str, required: bool = True) -> _Decorator:
    """Add `--source`, rows of files or of a table, and `--format`, which is given as `kind`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        kind = click.option(
            "--format",
            "kind",
            type=click.Choice(FORMATS),
            help="What the source is; if not given, its name tells, or its being a Delta table.",
        )
        source = click.option(
            "--source",
            cls=Aliased,
            aliases=aliases,
            required=required,
            metavar="PATH",
            help=help_text,
            shell_complete=complete_files,
        )
        return source(kind(function))

    return decorate


def source_options(*aliases: str, required: bool = True) -> _Decorator:
    """Add `--source` and `--format` for rows that are written."""
    text = "A file or folder of Parquet, of CSV with a header or of JSON lines, or a Delta table."
    return source_option(text, *aliases, required=required)


def rows_chosen(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--where` and `--all`, exactly one of which is required; the function gets `where`."""

    @wraps(function)
    def run(*args: Any, where: str | None, every: bool, **kwargs: Any) -> None:  # noqa: ANN401
        if (where is None) != every:
            raise click.UsageError(
                "give --where or --all, not both"
                if every
                else "which rows? give --where CONDITION, or --all for every row"
            )
        function(*args, where=where, **kwargs)

    run = click.option("--all", "every", is_flag=True, help="All rows of the table.")(run)
    return click.option("--where", metavar="SQL", help="The rows for which this is true.")(run)
