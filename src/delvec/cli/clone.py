"""`delvec clone`: a table that shares the data files of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import complete_folders, table_argument, version_options, write_options
from delvec.cli.spark_tables import delta_table, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("clone")
@table_argument
@click.argument("target", shell_complete=complete_folders)
@version_options
@write_options
def command(
    output: Output,
    table: str,
    target: str,
    *,
    version: int | None,
    timestamp: str | None,
    how: dict[str, Any],
    options: dict[str, str],
) -> None:
    """Make TARGET, a new folder, a Delta table with the data files of TABLE: a shallow clone.

    Both can be changed independently. But a `delvec vacuum` of TABLE deletes files that only the
    clone still needs.

    \b
    delvec clone /lake/orders /scratch/orders --version 3
    """  # noqa: D301
    source = delta_table(table, options)
    with output.working("cloning"):
        report = source.clone(target, version, timestamp, **how)
    show_report(output, report)
