"""`delvec recompute-statistics`: statistics of files that have none, or wide bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import files_chosen, table_argument, write_options
from delvec.cli.spark_tables import delta_table, show_report
from delvec.cli.traces import plain_comparisons

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("recompute-statistics")
@table_argument
@files_chosen
@write_options
def command(
    output: Output,
    table: str,
    *,
    where: str | None,
    how: dict[str, Any],
    options: dict[str, str],
) -> None:
    """Compute statistics of files of TABLE, a Delta table, that have none, or wide bounds.

    Deletion vectors leave the bounds of their files wide. With tight ones, queries skip files in
    which all rows of interest are deleted. No data file is written. --where compares partition
    columns with values, by = and AND.

    \b
    delvec recompute-statistics /lake/orders --dry-run
    delvec recompute-statistics /lake/orders --where "day = '2026-01-31'"
    """  # noqa: D301
    chosen = None if where is None else plain_comparisons(where)
    if where is not None and chosen is None:
        raise click.UsageError(
            "--where takes comparisons of partition columns here, such as"
            " \"day = '2026-01-31' and country = 'de'\""
        )
    target = delta_table(table, options)
    with output.working("reading live rows"):
        report = target.recompute_statistics(chosen, **how)
    show_report(output, report)
