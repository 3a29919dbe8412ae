"""`delvec compact`: rewrite the small data files of an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    Aliased,
    catalog_options,
    dry_run,
    files_chosen,
    pairs,
    table_argument,
    wait_option,
)
from delvec.cli.spark_tables import opened_iceberg, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("compact", "the files are as they were, or rewritten")
@table_argument
@files_chosen
@click.option(
    "--rewrite-option",
    "options",
    cls=Aliased,
    aliases=["--option"],
    multiple=True,
    metavar="KEY=VALUE",
    callback=pairs,
    help="An option of rewrite_data_files, such as rewrite-all=true; may be repeated.",
)
@wait_option
@dry_run
@catalog_options
def command(
    output: Output,
    table: str,
    *,
    where: str | None,
    options: dict[str, str],
    wait: float,
    dry_run: bool,
    iceberg: dict[str, Any],
) -> None:
    """Rewrite small data files of TABLE, an Iceberg table, and those with many deleted rows.

    Iceberg's own rewrite_data_files does it, while no resolve runs. No row changes.

    \b
    delvec compact lake.db.orders --dry-run
    delvec compact lake.db.orders --rewrite-option delete-file-threshold=1
    """  # noqa: D301
    with opened_iceberg(output, table, iceberg) as (_, target):
        report = target.compact(where=where, options=options, wait=wait, dry_run=dry_run)
    show_report(output, report)
