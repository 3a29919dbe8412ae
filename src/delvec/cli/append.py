"""`delvec append`: add rows of files or of another table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    branch_option,
    catalog_options,
    source_options,
    table_argument,
    txn_options,
    write_options,
)
from delvec.cli.sources import rows_from
from delvec.cli.spark_tables import opened, opened_iceberg, show_report, without_catalog
from delvec.cli.table_kinds import is_delta, refuse_delta_options, refuse_options

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("append")
@table_argument
@source_options("--from")
@click.option("--merge-schema", is_flag=True, help="Delta: add columns that the table lacks.")
@branch_option
@txn_options
@write_options
@catalog_options
def command(  # noqa: PLR0913
    output: Output,
    table: str,
    *,
    source: str,
    kind: str | None,
    merge_schema: bool,
    branch: str,
    txn: dict[str, Any],
    how: dict[str, Any],
    options: dict[str, str],
    iceberg: dict[str, Any],
) -> None:
    """Add rows to TABLE: the path or URI of a Delta table, or the name of an Iceberg table.

    \b
    delvec append /lake/orders --source new-orders.csv
    delvec append lake.db.orders --source new-orders.parquet --branch audit
    """  # noqa: D301
    if is_delta(table):
        refuse_options("an Iceberg table", "--branch")
        session = without_catalog(iceberg)
        with opened(output, table, options, session=session) as (spark, target):
            rows = rows_from(spark, target, source, kind, options)
            report: Any = target.append(rows, merge_schema=merge_schema, **txn, **how)
    else:
        refuse_delta_options("--merge-schema")
        with opened_iceberg(output, table, iceberg) as (spark, named):
            rows = rows_from(spark, named, source, kind, {})
            report = named.append(rows, branch=branch, dry_run=how["dry_run"], **txn)
    show_report(output, report)
