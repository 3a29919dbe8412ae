"""`delvec detail`: what an Iceberg table is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import branch_option, catalog_options
from delvec.cli.spark_tables import opened_iceberg, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("detail")
@click.argument("table")
@branch_option
@catalog_options
def command(output: Output, table: str, *, branch: str, iceberg: dict[str, Any]) -> None:
    """Show what TABLE, an Iceberg table, is made of: files, forms of deletes, branches, tags.

    \b
    delvec detail lake.db.orders --warehouse /warehouse
    """  # noqa: D301
    with opened_iceberg(output, table, iceberg) as (_, target):
        detail = target.detail(branch=branch)
    show_report(output, detail)
