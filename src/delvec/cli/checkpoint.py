"""`delvec checkpoint`: write a checkpoint of a Delta table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delvec.cli.main import command as delvec_command
from delvec.cli.options import dry_run, storage_options, table_argument
from delvec.cli.output import visible
from delvec.cli.spark_tables import delta_table

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("checkpoint", "no checkpoint was written, or a whole one")
@table_argument
@dry_run
@storage_options
def command(output: Output, table: str, *, dry_run: bool, options: dict[str, str]) -> None:
    """Write a checkpoint of the newest version of TABLE, the path or URI of a Delta table.

    Opening the table then takes less time. Every commit writes one by itself where the table's
    property delta.checkpointInterval says that one is due.

    \b
    delvec checkpoint /lake/orders
    """  # noqa: D301
    target = delta_table(table, options)
    with output.working("writing the checkpoint"):
        version = target.version if dry_run else target.checkpoint()
    what = "would get a checkpoint; nothing was written" if dry_run else "has a checkpoint"
    root = target.storage.root
    output.note((visible(root), "bold"), f": version {version:,} {what}")
    output.result({"table": root, "version": version, "dry_run": dry_run})
