"""`delvec detail`: what a table is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    branch_option,
    catalog_options,
    storage_options,
    table_argument,
    version_options,
)
from delvec.cli.spark_tables import delta_table, opened_iceberg, show_report
from delvec.cli.table_kinds import is_delta, refuse_options

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("detail")
@table_argument
@version_options
@branch_option
@storage_options
@catalog_options
def command(
    output: Output,
    table: str,
    *,
    version: int | None,
    timestamp: str | None,
    branch: str,
    options: dict[str, str],
    iceberg: dict[str, Any],
) -> None:
    """Show what TABLE is made of: files, rows, deletes, protocol or format, branches, tags.

    TABLE is the path or URI of a Delta table, whose log alone is read, or the name of an Iceberg
    table in a catalog. Options of versions are for Delta tables, those of branches and catalogs for
    Iceberg tables.

    \b
    delvec detail /lake/orders
    delvec detail lake.db.orders --warehouse /warehouse
    """  # noqa: D301
    if is_delta(table):
        refuse_options("an Iceberg table", "--branch")
        show_report(output, delta_table(table, options).detail(version, timestamp))
        return
    refuse_options("a Delta table", "--version", "--timestamp", "--storage-option")
    with opened_iceberg(output, table, iceberg) as (_, target):
        detail = target.detail(branch=branch)
    show_report(output, detail)
