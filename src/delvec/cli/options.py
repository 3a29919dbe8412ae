"""Options that several commands take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["storage_options"]


def storage_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-o KEY=VALUE`, which may be repeated; the function gets a dictionary as `options`."""
    return click.option(
        "--option",
        "-o",
        "options",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_pairs,
        help="A setting of the object store, such as region=eu-west-1.",
    )(function)


def _pairs(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    pairs = [value.partition("=") for value in values]
    if bad := [key for key, sign, _ in pairs if not sign]:
        raise click.BadParameter(f"{bad[0]!r} is not of the form KEY=VALUE")
    return {key: value for key, _, value in pairs}
