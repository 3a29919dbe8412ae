"""`delvec purge`: rewrite the files of a Delta table that have deletion vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.cli.main import command as delvec_command
from delvec.cli.options import files_chosen, spark_options, table_argument, write_options
from delvec.cli.spark_tables import opened, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("purge")
@table_argument
@files_chosen
@write_options
@spark_options
def command(
    output: Output,
    table: str,
    *,
    where: str | None,
    how: dict[str, Any],
    options: dict[str, str],
    session: dict[str, Any],
) -> None:
    """Rewrite exactly the files of TABLE, a Delta table, that have a deletion vector.

    Afterwards no live file holds deleted rows. Old files do until `delvec vacuum` removes them, for
    readers of older versions; `delvec traces` tells where rows still are.

    \b
    delvec purge /lake/orders --dry-run
    """  # noqa: D301
    with opened(output, table, options, session=session) as (_, target):
        report = target.purge(where, **how)
    show_report(output, report)
