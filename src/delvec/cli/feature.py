"""`delvec feature`: the table features of a Delta table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.main import group
from delvec.cli.options import table_argument, write_options
from delvec.cli.spark_tables import delta_table, show_alteration

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("add")
@table_argument
@click.argument("name")
@write_options
def add(
    output: Output, table: str, name: str, *, how: dict[str, Any], options: dict[str, str]
) -> None:
    """Add a table feature to the protocol of TABLE, the path or URI of a Delta table.

    Engines must support it to use the table. No command takes it away again, except that
    `delvec downgrade` takes away deletion vectors.

    \b
    delvec feature add /lake/orders vacuumProtocolCheck --dry-run
    """  # noqa: D301
    report = delta_table(table, options).add_feature(name, **how)
    show_alteration(output, report, name, "added")


@delvec_command("enable-vectors")
@table_argument
@write_options
def enable_vectors(
    output: Output, table: str, *, how: dict[str, Any], options: dict[str, str]
) -> None:
    """Let the writes of TABLE, the path or URI of a Delta table, use deletion vectors.

    Engines without deletion vectors can neither read nor write the table any more.

    \b
    delvec feature enable-vectors /lake/orders
    """  # noqa: D301
    report = delta_table(table, options).enable_deletion_vectors(**how)
    show_alteration(output, report, "deletion vectors", "enabled")


command = group(
    "feature",
    "Add table features to a Delta table; `delvec detail` shows them.",
    {add: "Add a feature to the protocol.", enable_vectors: "Let writes use deletion vectors."},
)
