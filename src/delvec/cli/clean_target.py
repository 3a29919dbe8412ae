"""`delvec clean-target`: expire snapshots of a converted table, and delete files it alone had."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.deleted_files import show_files
from delvec.cli.main import command as delvec_command
from delvec.cli.options import catalog_options, dry_run, limit_option
from delvec.cli.output import Column, JsonOutput
from delvec.cli.spark_tables import on_spark
from delvec.report.figures import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.cli.output import Output

__all__ = ["command"]

_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_AGE: Final = re.compile(rf"(\d+)([{''.join(_UNITS)}])")
_COLUMNS: Final = [
    Column("kind", "file", "bold", is_unbroken=True),
    Column("name", "name"),
    Column("reason", "reason"),
    Column("modified", "modified", is_unbroken=True),
    Column("size", "size", is_unbroken=True),
]
_NAME_WIDTH: Final = 56


def _age(_context: click.Context, _option: click.Parameter, value: str) -> timedelta:
    """Parse an age such as `7d` or `12h`."""
    match = _AGE.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not an age such as 7d, 12h or 30m")
    try:
        return timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError as error:
        raise click.BadParameter(f"{value!r} is too long, give an age such as 7d") from error


def _age_or_time(
    context: click.Context, option: click.Parameter, value: str | None
) -> timedelta | datetime | None:
    """Parse an age, or a point in time in ISO form."""
    if value is None or _AGE.fullmatch(value):
        return None if value is None else _age(context, option, value)
    try:
        return datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is neither an age such as 7d nor a time such as 2026-01-31T12:00"
        ) from error


@delvec_command(
    "clean-target",
    "snapshots may have expired already: run it again, files that are left are orphans then and go"
    " when they are as old as --orphan-age",
)
@click.argument("target")
@click.option(
    "--older-than",
    callback=_age_or_time,
    metavar="AGE",
    help="Expire snapshots older than this, such as 7d or 2026-01-31.",
)
@click.option(
    "--retain-last",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep so many of the newest snapshots of each branch, whatever their age.",
)
@click.option(
    "--orphan-age",
    callback=_age,
    default="3d",
    show_default=True,
    metavar="AGE",
    help="Delete files that no snapshot refers to if they are older; a day or more.",
)
@dry_run
@limit_option("Show so many files of a dry run, 0 for all. JSON holds all of them.")
@catalog_options
def command(
    output: Output,
    target: str,
    *,
    older_than: timedelta | datetime | None,
    retain_last: int | None,
    orphan_age: timedelta,
    dry_run: bool,
    limit: int,
    iceberg: dict[str, Any],
) -> None:
    """Expire snapshots of TARGET, a converted Iceberg table, and delete files that it alone had.

    Without --older-than and --retain-last no snapshot expires: orphan files and branches of dead
    conversions are removed. Files of the source are never touched.

    \b
    delvec clean-target lake.db.orders --older-than 7d --dry-run --warehouse /warehouse
    """  # noqa: D301
    from delvec.conversion.clean_target import clean_target, retention_of  # noqa: PLC0415

    retention_of(older_than, retain_last, orphan_age)  # rejected before a JVM starts
    with on_spark(output, target, iceberg) as spark:
        report = clean_target(
            spark,
            target,
            older_than=older_than,
            retain_last=retain_last,
            orphan_age=orphan_age,
            dry_run=dry_run,
        )
    output.draw(report)
    if dry_run:
        show_files(output, _COLUMNS, report.files, limit, _cells)
    if isinstance(output, JsonOutput):
        output.result({**report.to_json(), "files": report.files.to_pylist()})


def _cells(file: Mapping[str, Any]) -> dict[str, Any]:
    return {**file, "name": shortened(file["path"].rpartition("/")[2], _NAME_WIDTH)}
