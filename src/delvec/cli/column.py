"""`delvec column`: the columns of a Delta table."""

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
@click.argument("columns")
@write_options
@spark_options
def add(
    output: Output,
    table: str,
    columns: str,
    *,
    how: dict[str, Any],
    options: dict[str, str],
    session: dict[str, Any],
) -> None:
    """Add COLUMNS to TABLE, the path or URI of a Delta table; they are NULL in rows of before.

    A name such as `a.b`, in backticks, adds a field to the struct a. Spark parses the types.

    \b
    delvec column add /lake/orders "tax decimal(10,2), note string"
    """  # noqa: D301
    with opened(output, table, options, session=session) as (_, target):
        report = target.add_columns(columns, **how)
    show_alteration(output, report, columns, "added")


@delvec_command("rename")
@table_argument
@click.argument("name")
@click.argument("new_name")
@write_options
def rename(
    output: Output,
    table: str,
    name: str,
    new_name: str,
    *,
    how: dict[str, Any],
    options: dict[str, str],
) -> None:
    """Rename a column of TABLE, a Delta table with column mapping; no file is rewritten.

    \b
    delvec column rename /lake/orders note remark
    """  # noqa: D301
    report = delta_table(table, options).rename_column(name, new_name, **how)
    show_alteration(output, report, name, f"renamed to {new_name}")


@delvec_command("drop")
@table_argument
@click.argument("name")
@write_options
def drop(
    output: Output, table: str, name: str, *, how: dict[str, Any], options: dict[str, str]
) -> None:
    """Drop a column of TABLE, a Delta table with column mapping.

    No file is rewritten: the values stay in the files that have them.

    \b
    delvec column drop /lake/orders note --dry-run
    """  # noqa: D301
    report = delta_table(table, options).drop_column(name, **how)
    show_alteration(output, report, name, "dropped")


command = group(
    "column",
    "Add, rename or drop columns of a Delta table; `delvec schema` shows them.",
    {add: "Add columns.", rename: "Rename a column.", drop: "Drop a column."},
)
