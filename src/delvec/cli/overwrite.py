"""`delvec overwrite`: rows of files or of another table in place of those of a Delta table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    rows_chosen,
    source_options,
    spark_options,
    table_argument,
    txn_options,
    write_options,
)
from delvec.cli.sources import rows_from
from delvec.cli.spark_tables import opened, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("overwrite")
@table_argument
@source_options()
@rows_chosen
@click.option("--merge-schema", is_flag=True, help="Add columns that the table does not have.")
@txn_options
@write_options
@spark_options
def command(  # noqa: PLR0913
    output: Output,
    table: str,
    *,
    source: str,
    kind: str | None,
    where: str | None,
    merge_schema: bool,
    txn: dict[str, Any],
    how: dict[str, Any],
    options: dict[str, str],
    session: dict[str, Any],
) -> None:
    """Put the rows of a source in place of rows of TABLE, the path or URI of a Delta table.

    With --where those rows are replaced for which it is true, and it must be true of all new ones.

    \b
    delvec overwrite /lake/orders --source new.parquet --where "month = '2026-01'"
    """  # noqa: D301
    with opened(output, table, options, session=session) as (spark, target):
        rows = rows_from(spark, target, source, kind, options)
        report = target.overwrite(rows, where, merge_schema=merge_schema, **txn, **how)
    show_report(output, report)
