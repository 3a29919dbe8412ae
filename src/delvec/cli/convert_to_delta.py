"""`delvec convert-to-delta`: make a folder of Parquet files a Delta table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import complete_folders, property_option, write_options
from delvec.cli.spark_tables import show_report
from delvec.cli.table_kinds import require_path
from delvec.delta.table import DeltaTable

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("convert-to-delta")
@click.argument("folder", shell_complete=complete_folders)
@click.option(
    "--partition-by",
    multiple=True,
    metavar="COLUMN[=TYPE]",
    help="A partition column, whose values are in the names of folders, such as day=date; may be"
    " repeated. If absent, the folders tell.",
)
@property_option
@write_options
def command(
    output: Output,
    folder: str,
    *,
    partition_by: tuple[str, ...],
    properties: dict[str, str],
    how: dict[str, Any],
    options: dict[str, str],
) -> None:
    """Make FOLDER, the path or URI of Parquet files, a Delta table; no file is written anew.

    \b
    delvec convert-to-delta /lake/orders --partition-by day=date
    """  # noqa: D301
    require_path(folder)
    given = [each.partition("=") for each in partition_by]
    if len({bool(sign) for _, sign, _ in given}) > 1:
        raise click.UsageError("give the types of all partition columns, or of none")
    columns: Any = {name: kind for name, sign, kind in given if sign} or list(partition_by) or None
    with output.working("reading the footers"):
        report = DeltaTable.convert_to_delta(
            None, folder, columns, properties or None, storage_options=options, **how
        )
    show_report(output, report)
