"""`delvec append`: add rows of files or of another table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import source_options, spark_options, table_argument, write_options
from delvec.cli.sources import rows_from
from delvec.cli.spark_tables import opened, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("append")
@table_argument
@source_options("--from")
@click.option("--merge-schema", is_flag=True, help="Add columns that the table does not have.")
@write_options
@spark_options
def command(
    output: Output,
    table: str,
    *,
    source: str,
    kind: str | None,
    merge_schema: bool,
    how: dict[str, Any],
    options: dict[str, str],
    session: dict[str, Any],
) -> None:
    """Add rows to TABLE, the path or URI of a Delta table.

    \b
    delvec append /lake/orders --source new-orders.csv
    """  # noqa: D301
    with opened(output, table, options, session=session) as (spark, target):
        rows = rows_from(spark, target, source, kind, options)
        report = target.append(rows, merge_schema=merge_schema, **how)
    show_report(output, report)
