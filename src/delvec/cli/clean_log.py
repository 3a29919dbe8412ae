"""`delvec clean-log`: delete the old commits and checkpoints of a Delta table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delvec.cli.main import command as delvec_command
from delvec.cli.options import dry_run, storage_options, table_argument
from delvec.cli.spark_tables import delta_table, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("clean-log", "log files may have been deleted already: run it again for the others")
@table_argument
@dry_run
@storage_options
def command(output: Output, table: str, *, dry_run: bool, options: dict[str, str]) -> None:
    """Delete commits and checkpoints of TABLE, a Delta table, that are older than its retention.

    That is its property delta.logRetentionDuration, or else 30 days. Versions since then stay
    readable. Data files are deleted by `delvec vacuum`.

    \b
    delvec clean-log /lake/orders --dry-run
    """  # noqa: D301
    target = delta_table(table, options)
    with output.working("reading the log"):
        report = target.clean_log(dry_run=dry_run)
    show_report(output, report)
