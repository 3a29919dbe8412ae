"""`delvec optimize`: put the small files of a Delta table together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import file_size, files_chosen, spark_options, table_argument, write_options
from delvec.cli.spark_tables import opened, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("optimize")
@table_argument
@files_chosen
@click.option(
    "--target-file-size",
    metavar="BYTES",
    callback=file_size,
    help="The most live bytes of files that become one, such as 128MB; 256MB if absent.",
)
@click.option(
    "--min-file-size",
    metavar="BYTES",
    callback=file_size,
    help="Files with fewer live bytes are put together; half of the target if absent.",
)
@click.option(
    "--max-deleted-ratio",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    metavar="SHARE",
    help="A file with a larger share of deleted rows is rewritten, even alone.",
)
@click.option(
    "--zorder-by",
    multiple=True,
    metavar="COLUMN",
    help="Sort rows by this column, and by others if repeated; rewrites all files.",
)
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
    **rule: Any,  # noqa: ANN401 - sizes, share and order, as `optimize` names them
) -> None:
    """Put small files of TABLE, the path or URI of a Delta table, together.

    Files with many deleted rows are rewritten without them. No row changes; writers need not wait.

    \b
    delvec optimize /lake/orders --where "day = '2026-01-31'"
    delvec optimize /lake/orders --zorder-by customer --zorder-by day
    """  # noqa: D301
    with opened(output, table, options, session=session) as (_, target):
        report = target.optimize(where, **rule, **how)
    show_report(output, report)
