"""`delvec delete`: delete rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import rows_chosen, spark_options, table_argument, write_options
from delvec.cli.spark_tables import opened, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("delete")
@table_argument
@rows_chosen
@click.option(
    "--rewrite-ratio",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Rewrite a file when at least this share of its rows is deleted, such as 0.5.",
)
@write_options
@spark_options
def command(
    output: Output,
    table: str,
    *,
    where: str | None,
    rewrite_ratio: float | None,
    how: dict[str, Any],
    options: dict[str, str],
    session: dict[str, Any],
) -> None:
    """Delete rows of TABLE, the path or URI of a Delta table.

    \b
    delvec delete /lake/orders --where "day < '2026-01-01'"
    """  # noqa: D301
    with opened(output, table, options, session=session) as (_, target):
        report = target.delete(where, rewrite_ratio=rewrite_ratio, **how)
    show_report(output, report)
