"""`delvec restore`: a table is again what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import table_argument, version_options, write_options
from delvec.cli.spark_tables import delta_table, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("restore")
@table_argument
@version_options
@write_options
def command(
    output: Output,
    table: str,
    *,
    version: int | None,
    timestamp: str | None,
    how: dict[str, Any],
    options: dict[str, str],
) -> None:
    """Bring TABLE, the path or URI of a Delta table, back to an earlier version.

    The versions since then stay in its history. All files of that version must still exist.

    \b
    delvec restore /lake/orders --version 3
    delvec restore /lake/orders --timestamp "2026-01-31 10:00:00" --dry-run
    """  # noqa: D301
    if version is None and timestamp is None:
        raise click.UsageError("give --version or --timestamp")
    target = delta_table(table, options)
    with output.working("restoring"):
        report = target.restore(version, timestamp, **how)
    show_report(output, report)
