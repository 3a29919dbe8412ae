"""`delvec check`: compare the files of an Iceberg table with its manifests."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from delvec.cli.exits import ExitCode
from delvec.cli.main import command as delvec_command
from delvec.cli.options import catalog_options
from delvec.cli.spark_tables import opened_iceberg, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("check")
@click.argument("table")
@click.option("--branch", metavar="NAME", help="The branch; main if not given.")
@click.option("--snapshot", type=int, metavar="ID", help="Instead: a snapshot by its id.")
@catalog_options
def command(
    output: Output,
    table: str,
    *,
    branch: str | None,
    snapshot: int | None,
    iceberg: dict[str, Any],
) -> None:
    """Check that TABLE, an Iceberg table, has the files and deletes that its manifests say.

    Looks for all data files, and reads all equality deletes and deletion vectors. Ends with exit
    code 4 if there are errors.

    \b
    delvec check lake.db.orders --branch changes
    """  # noqa: D301
    with opened_iceberg(output, table, iceberg) as (_, target):
        report = target.check(branch, snapshot)
    show_report(output, report)
    if not report.ok:
        sys.exit(ExitCode.DAMAGED)
