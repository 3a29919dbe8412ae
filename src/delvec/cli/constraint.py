"""`delvec constraint`: the CHECK constraints of a Delta table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.main import group
from delvec.cli.options import spark_options, table_argument, write_options
from delvec.cli.spark_tables import delta_table, opened, show_alteration

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("add")
@table_argument
@click.argument("name")
@click.option("--check", required=True, metavar="SQL", help="What has to be true of every row.")
@write_options
@spark_options
def add(
    output: Output,
    table: str,
    name: str,
    *,
    check: str,
    how: dict[str, Any],
    options: dict[str, str],
    session: dict[str, Any],
) -> None:
    """Add a constraint to TABLE, the path or URI of a Delta table; all its rows are checked first.

    \b
    delvec constraint add /lake/orders positive --check "amount > 0"
    """  # noqa: D301
    with opened(output, table, options, session=session) as (_, target):
        report = target.add_constraint(name, check, **how)
    show_alteration(output, report, name, f"added: {check}")


@delvec_command("drop")
@table_argument
@click.argument("name")
@click.option("--if-exists", is_flag=True, help="Do nothing if there is none of that name.")
@write_options
def drop(
    output: Output,
    table: str,
    name: str,
    *,
    if_exists: bool,
    how: dict[str, Any],
    options: dict[str, str],
) -> None:
    """Drop a constraint of TABLE, the path or URI of a Delta table.

    \b
    delvec constraint drop /lake/orders positive
    """  # noqa: D301
    target = delta_table(table, options)
    report = target.drop_constraint(name, if_exists=if_exists, **how)
    show_alteration(output, report, name, "dropped")


command = group(
    "constraint",
    "Add or drop CHECK constraints of a Delta table; `delvec properties` shows them.",
    {add: "Add a constraint.", drop: "Drop a constraint."},
)
