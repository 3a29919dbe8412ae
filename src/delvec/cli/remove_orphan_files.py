"""`delvec remove-orphan-files`: delete files of an Iceberg table that no snapshot refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    age_or_time,
    catalog_options,
    dry_run,
    location_option,
    table_argument,
)
from delvec.cli.spark_tables import opened_iceberg, show_report

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command(
    "remove-orphan-files", "files may have been deleted already: run it again for the others"
)
@table_argument
@click.option(
    "--older-than",
    callback=age_or_time,
    metavar="AGE",
    help="Files older than this, such as 7d or 2026-01-31, a day or more; 3d if absent.",
)
@location_option
@dry_run
@catalog_options
def command(
    output: Output,
    table: str,
    *,
    older_than: timedelta | datetime | None,
    location: str | None,
    dry_run: bool,
    iceberg: dict[str, Any],
) -> None:
    """Delete files in the location of TABLE, an Iceberg table, that no snapshot refers to.

    Iceberg's own remove_orphan_files does it. Files of running writes are among them until they
    commit, so young ones stay.

    \b
    delvec remove-orphan-files lake.db.orders --dry-run
    """  # noqa: D301
    with opened_iceberg(output, table, iceberg) as (_, target):
        report = target.remove_orphan_files(older_than, location=location, dry_run=dry_run)
    show_report(output, report)
