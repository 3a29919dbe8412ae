"""Options that several commands take."""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.report.figures import parsed_size

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "branch_option",
    "catalog_options",
    "dry_run",
    "file_size",
    "files_chosen",
    "interval_option",
    "limit_option",
    "pairs",
    "rows_chosen",
    "seconds",
    "source_options",
    "storage_options",
    "txn_options",
    "wait_option",
    "write_options",
]

_UNITS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)", re.ASCII)


def storage_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-o KEY=VALUE`, repeatable; the function gets a dictionary as `options`."""
    return click.option(
        "--option",
        "-o",
        "options",
        multiple=True,
        metavar="KEY=VALUE",
        callback=pairs,
        help="A setting of the object store, such as region=eu-west-1.",
    )(function)


def write_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all commands that write; the function gets those given as `how`."""

    @wraps(function)
    def run(
        *args: Any,  # noqa: ANN401
        dry_run: bool,
        max_retries: int | None,
        commit_metadata: str | None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        given = {"max_retries": max_retries, "commit_metadata": commit_metadata}
        how = {name: value for name, value in given.items() if value is not None}
        function(*args, how={"dry_run": dry_run, **how}, **kwargs)

    decorated: Callable[..., Any] = run
    for option in (
        click.option("--commit-metadata", metavar="TEXT", help="A text kept with the commit."),
        click.option(
            "--max-retries",
            type=click.IntRange(min=0),
            help="How often to begin again when other commits get in the way.",
        ),
        dry_run,
    ):
        decorated = option(decorated)
    return storage_options(decorated)


def branch_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--branch`."""
    return click.option(
        "--branch", default="main", show_default=True, metavar="NAME", help="The branch."
    )(function)


def txn_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of an application's transaction; the function gets those given as `txn`."""

    @wraps(function)
    def run(
        *args: Any,  # noqa: ANN401
        txn_app_id: str | None,
        txn_version: int | None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        if (txn_app_id is None) != (txn_version is None):
            raise click.UsageError("--txn-app-id and --txn-version go together")
        given = {"txn_app_id": txn_app_id, "txn_version": txn_version}
        function(*args, txn={} if txn_app_id is None else given, **kwargs)

    decorated: Callable[..., Any] = click.option(
        "--txn-version",
        type=click.IntRange(min=0),
        metavar="N",
        help="Write nothing if that application has committed this version or a later one.",
    )(run)
    return click.option("--txn-app-id", metavar="ID", help="The application that writes.")(
        decorated
    )


def wait_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--wait`, in seconds."""
    return click.option(
        "--wait",
        default="0s",
        show_default=True,
        metavar="DURATION",
        callback=seconds,
        help="How long to wait for somebody else's lock, such as 30s or 5m.",
    )(function)


def interval_option(default: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--interval`, in seconds; the function gets None if it is absent."""
    return click.option(
        "--interval",
        metavar="DURATION",
        callback=seconds,
        help=f"How often to look, such as 10s or 2m; {default:g}s if absent.",
    )


def files_chosen(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--where`, which chooses files."""
    return click.option(
        "--where", metavar="SQL", help="Only files that may have rows for which it is true."
    )(function)


def file_size(
    ctx: click.Context,  # noqa: ARG001
    param: click.Parameter,
    value: str | None,
) -> int | None:
    """Return the bytes of a size such as 128MB; None if it is absent."""
    if value is None:
        return None
    found = parsed_size(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no size such as 128MB", param=param)
    return found


def dry_run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--dry-run`."""
    return click.option(
        "--dry-run", is_flag=True, help="Tell what would be done, and write nothing."
    )(function)


def source_options(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the option of that name for a source of rows, and `--format`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        kind = click.option(
            "--format",
            "kind",
            type=click.Choice(["parquet", "csv", "json", "delta"]),
            help="What the source is; if not given, its name tells, or its being a Delta table.",
        )
        source = click.option(
            name,
            "source",
            required=True,
            metavar="PATH",
            help="A file or folder of Parquet, of CSV with a header or of JSON lines, or a table.",
        )
        return source(kind(function))

    return decorate


def limit_option(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--limit`; 0 means all."""
    return click.option(
        "--limit", type=click.IntRange(min=0), default=50, show_default=True, help=help_text
    )


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


def catalog_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of an Iceberg table's catalog; the function gets them as `iceberg`."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        found = {name: kwargs.pop(name) for name in ("warehouse", "catalog", "conf", "packages")}
        function(*args, iceberg=found, **kwargs)

    decorated: Callable[..., Any] = run
    for option in (
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
        click.option(
            "--catalog", default="lake", show_default=True, help="The name of that catalog."
        ),
        click.option(
            "--warehouse",
            metavar="PATH",
            help="Folder or URI of a catalog of Hadoop type; the folder `warehouse` if absent.",
        ),
    ):
        decorated = option(decorated)
    return decorated


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
    if found is None or found[2] not in _UNITS:
        raise click.BadParameter(f"{value!r} is not a duration such as 30s, 500ms, 2m or 1h")
    return float(found[1]) * _UNITS[found[2]]
