"""The options of commands that start Spark: the session, and the catalog of an Iceberg table."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.option_values import pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["catalog_options", "spark_options"]

_SESSION: Final = (
    click.option(
        "--master",
        metavar="URL",
        help="Where Spark runs, such as local[4] or yarn; on all cores of this machine if absent.",
    ),
    click.option(
        "--package",
        "packages",
        multiple=True,
        metavar="COORDINATE",
        help="A jar that a catalog or store needs, by its Maven coordinate; may be repeated.",
    ),
    click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=pairs,
        help="A setting of Spark, such as spark.sql.catalog.prod=…; may be repeated.",
    ),
)
_CATALOG: Final = (
    click.option("--catalog", default="lake", show_default=True, help="The name of that catalog."),
    click.option(
        "--warehouse",
        metavar="PATH",
        help="Folder or URI of a catalog of Hadoop type; the folder `warehouse` if absent.",
    ),
)
_Option = Any


def spark_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a session for Delta tables; the function gets them as `session`."""
    return _gathered(function, "session", ("master", "packages", "conf"), _SESSION)


def catalog_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a session with an Iceberg catalog; the function gets them as `iceberg`."""
    names = ("warehouse", "catalog", "master", "packages", "conf")
    return _gathered(function, "iceberg", names, (*_SESSION, *_CATALOG))


def _gathered(
    function: Callable[..., Any], target: str, names: Sequence[str], options: Sequence[_Option]
) -> Callable[..., Any]:
    """Add options, whose values reach the function as one dictionary."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        found = {name: kwargs.pop(name) for name in names}
        function(*args, **{target: found}, **kwargs)

    decorated: Callable[..., Any] = run
    for option in options:
        decorated = option(decorated)
    return decorated
