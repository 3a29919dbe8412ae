"""`delvec update`: new values for rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    rows_chosen,
    spark_options,
    table_argument,
    txn_options,
    write_options,
)
from delvec.cli.spark_tables import opened, show_report
from delvec.cli.sql import Cursor, assignments

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]

_HINT: Final = "write --set \"amount = amount * 2, note = 'doubled'\""


@delvec_command("update")
@table_argument
@click.option(
    "--set",
    "changes",
    multiple=True,
    required=True,
    metavar="COLUMN=SQL",
    help="A column's new value; several with commas, or by repeating the option.",
)
@rows_chosen
@txn_options
@write_options
@spark_options
def command(
    output: Output,
    table: str,
    *,
    changes: tuple[str, ...],
    where: str | None,
    txn: dict[str, Any],
    how: dict[str, Any],
    options: dict[str, str],
    session: dict[str, Any],
) -> None:
    """Give rows of TABLE, the path or URI of a Delta table, new values.

    \b
    delvec update /lake/orders --set "amount = amount * 2" --where "id < 10"
    """  # noqa: D301
    new = assignments(Cursor(", ".join(changes), hint=_HINT))
    with opened(output, table, options, session=session) as (_, target):
        report = target.update(new, where, **txn, **how)
    show_report(output, report)
