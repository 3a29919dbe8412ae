"""`delvec convert`: a Delta table as an Iceberg table."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    catalog_options,
    complete_folders,
    dry_run,
    interval_option,
    limit_option,
    storage_options,
)
from delvec.cli.spark_tables import opened, show_report
from delvec.conversion.options import ConversionOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from delvec.cli.output import Output
    from delvec.conversion.options import Verify

__all__ = ["command"]

_SECONDS: Final = 5.0
_CHOICES: Final = (
    "format_version",
    "vectors",
    "history",
    "start_version",
    "folder",
    "location",
    "copy_files",
)


def _choices(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the conversion; the function gets those given as `choices`."""

    @wraps(function)
    def run(*args: Any, overwrite_foreign: bool, **kwargs: Any) -> None:  # noqa: ANN401
        found = {name: kwargs.pop(name) for name in _CHOICES}
        choices = {
            name: value for name, value in found.items() if value is not None and value is not False
        }
        if overwrite_foreign:
            choices["foreign"] = "overwrite"
        function(*args, choices=choices, **kwargs)

    decorated: Callable[..., Any] = run
    for option in (
        click.option(
            "--copy-files",
            is_flag=True,
            help="Copy the data files that Iceberg cannot read as they are.",
        ),
        click.option(
            "--overwrite-foreign", is_flag=True, help="Take back changes that others made to it."
        ),
        click.option("--location", metavar="URI", help="Where a new target shall be."),
        click.option(
            "--folder", metavar="NAME", help="Of position deletes, below the target's location."
        ),
        click.option(
            "--start-version",
            type=click.IntRange(min=0),
            metavar="N",
            help="Where the history of a new target begins.",
        ),
        click.option(
            "--history",
            type=click.Choice(["latest", "per-version"]),
            help="One snapshot, or one with a tag for each version of the source.",
        ),
        click.option(
            "--vectors",
            type=click.Choice(["repack", "reference"]),
            help="Copy vectors into Puffin files, or point at Delta's own.",
        ),
        click.option(
            "--format-version",
            type=click.IntRange(2, 3),
            help="Iceberg's format of a new target; 3 if absent.",
        ),
    ):
        decorated = option(decorated)
    return decorated


@delvec_command("convert", "the target is as it was, or holds all that was published to it")
@click.argument("source", shell_complete=complete_folders)
@click.argument("target")
@click.option(
    "--version",
    type=click.IntRange(min=0),
    metavar="N",
    help="Of the source; the newest if absent.",
)
@click.option(
    "--verify",
    type=click.Choice(["counts", "rows", "none"]),
    default="counts",
    show_default=True,
    help="Compare what each file holds, all rows as well, or nothing, before it is published.",
)
@_choices
@dry_run
@limit_option("Show so many files of a dry run, 0 for all. JSON holds all of them.")
@click.option("--follow", is_flag=True, help="Go on until SIGINT or SIGTERM; JSON in lines.")
@interval_option(_SECONDS)
@catalog_options
@storage_options
def command(  # noqa: PLR0913
    output: Output,
    source: str,
    target: str,
    *,
    version: int | None,
    verify: Verify,
    dry_run: bool,
    limit: int,
    follow: bool,
    interval: float | None,
    choices: dict[str, Any],
    iceberg: dict[str, Any],
    options: dict[str, str],
) -> None:
    """Bring TARGET, an Iceberg table, to what SOURCE, the path or URI of a Delta table, holds.

    Data files are shared, not copied. The target is named as catalog.database.table, and made if
    it is not there.

    \b
    delvec convert /lake/orders lake.db.orders --warehouse /warehouse
    """  # noqa: D301
    if follow and (dry_run or version is not None):
        raise click.UsageError("--follow goes with neither --dry-run nor --version")
    if interval is not None and not follow:
        raise click.UsageError("--interval needs --follow")
    ConversionOptions(**choices)  # contradicting options are rejected before a JVM starts
    if follow:
        from delvec.cli.convert_follow import run  # noqa: PLC0415

        run(
            output,
            source,
            target,
            options,
            iceberg,
            _SECONDS if interval is None else interval,
            verify,
            choices,
        )
        return
    from delvec.conversion.convert import convert, plan_conversion  # noqa: PLC0415

    with opened(output, source, options, iceberg) as (spark, table):
        if dry_run:
            from delvec.cli.convert_plan import show_plan  # noqa: PLC0415

            show_plan(
                output, plan_conversion(spark, table, target, version=version, **choices), limit
            )
            return
        report = convert(spark, table, target, verify=verify, version=version, **choices)
    show_report(output, report)
