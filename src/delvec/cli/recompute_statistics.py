"""`delvec recompute-statistics`: statistics of files that have none, or wide bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.cli.main import command as delvec_command
from delvec.cli.options import table_argument, write_options
from delvec.cli.spark_tables import delta_table, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("recompute-statistics")
@table_argument
@write_options
def command(output: Output, table: str, *, how: dict[str, Any], options: dict[str, str]) -> None:
    """Compute statistics of files of TABLE, a Delta table, that have none, or wide bounds.

    Deletion vectors leave the bounds of their files wide. With tight ones, queries skip files in
    which all rows of interest are deleted. No data file is written.

    \b
    delvec recompute-statistics /lake/orders --dry-run
    """  # noqa: D301
    target = delta_table(table, options)
    with output.working("reading live rows"):
        report = target.recompute_statistics(**how)
    show_report(output, report)
