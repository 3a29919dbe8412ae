"""Options that several commands take: each has one name, one meaning and one help text."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from delvec.cli.option_values import (
    Aliased,
    age,
    age_or_time,
    complete_folders,
    file_size,
    pairs,
    seconds,
)
from delvec.cli.row_options import (
    FORMATS,
    files_chosen,
    key_option,
    rows_chosen,
    source_option,
    source_options,
)
from delvec.cli.session_options import catalog_options, spark_options

if TYPE_CHECKING:
    from collections.abc import Callable

    _Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

__all__ = [
    "FORMATS",
    "Aliased",
    "age",
    "age_or_time",
    "branch_option",
    "catalog_options",
    "complete_folders",
    "dry_run",
    "expiry_options",
    "file_size",
    "files_chosen",
    "interval_option",
    "key_option",
    "limit_option",
    "location_option",
    "pairs",
    "property_option",
    "rows_chosen",
    "seconds",
    "source_option",
    "source_options",
    "spark_options",
    "storage_options",
    "table_argument",
    "txn_options",
    "version_options",
    "wait_option",
    "write_options",
]


def table_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument TABLE; shells complete the paths of folders."""
    return click.argument("table", shell_complete=complete_folders)(function)


def storage_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-o KEY=VALUE`, repeatable; the function gets a dictionary as `options`."""
    return click.option(
        "--storage-option",
        "-o",
        "options",
        cls=Aliased,
        aliases=["--option"],
        multiple=True,
        metavar="KEY=VALUE",
        callback=pairs,
        help="A setting of the object store, such as region=eu-west-1; may be repeated.",
    )(function)


def write_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all commands that commit; the function gets those given as `how`."""

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
            metavar="N",
            help="How often to begin again when other commits get in the way.",
        ),
        dry_run,
    ):
        decorated = option(decorated)
    return storage_options(decorated)


def dry_run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--dry-run`."""
    return click.option(
        "--dry-run", is_flag=True, help="Tell what would be done, and write nothing."
    )(function)


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


def version_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--version` and `--timestamp`, of which at most one is given."""

    @wraps(function)
    def run(*args: Any, version: int | None, timestamp: str | None, **kwargs: Any) -> None:  # noqa: ANN401
        if version is not None and timestamp is not None:
            raise click.UsageError("give --version or --timestamp, not both")
        function(*args, version=version, timestamp=timestamp, **kwargs)

    decorated: Callable[..., Any] = click.option(
        "--timestamp",
        metavar="TIME",
        help="What was current at this time, such as 2026-01-31 10:00; in UTC unless it names a"
        " zone.",
    )(run)
    return click.option(
        "--version", type=click.IntRange(min=0), metavar="N", help="As of this version."
    )(decorated)


def expiry_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--older-than` and `--retain-last`, which choose the snapshots that expire."""
    last = click.option(
        "--retain-last",
        type=click.IntRange(min=1),
        metavar="N",
        help="Keep so many of the newest snapshots of each branch, whatever their age.",
    )
    oldest = click.option(
        "--older-than",
        callback=age_or_time,
        metavar="AGE",
        help="Expire snapshots older than this, such as 7d or 2026-01-31.",
    )
    return oldest(last(function))


def location_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--location`, the folder in which files are deleted."""
    return click.option(
        "--location",
        metavar="URI",
        help="Delete files in this folder; by default the table's own, which has its metadata.",
    )(function)


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


def interval_option(default: float) -> _Decorator:
    """Add `--interval`, in seconds; the function gets None if it is absent."""
    return click.option(
        "--interval",
        metavar="DURATION",
        callback=seconds,
        help=f"How often to look, such as 10s or 2m; {default:g}s if absent.",
    )


def property_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--property`; the function gets a dictionary as `properties`."""
    return click.option(
        "--property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        callback=pairs,
        help="A property of the table, such as delta.enableDeletionVectors=false; may be repeated.",
    )(function)


def limit_option(help_text: str) -> _Decorator:
    """Add `--limit`; 0 means all."""
    return click.option(
        "--limit",
        type=click.IntRange(min=0),
        default=50,
        show_default=True,
        metavar="N",
        help=help_text,
    )
