"""`delvec delete`: delete rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    branch_option,
    catalog_options,
    key_option,
    rows_chosen,
    table_argument,
    txn_options,
    write_options,
)
from delvec.cli.spark_tables import opened, opened_iceberg, show_report, without_catalog
from delvec.cli.table_kinds import is_delta, refuse_delta_options, refuse_options

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("delete")
@table_argument
@rows_chosen
@click.option(
    "--rewrite-ratio",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Delta: rewrite a file when at least this share of its rows is deleted, such as 0.5.",
)
@key_option("Iceberg: a column of the key, for conditions that list keys; may be repeated.")
@branch_option
@txn_options
@write_options
@catalog_options
def command(  # noqa: PLR0913
    output: Output,
    table: str,
    *,
    where: str | None,
    rewrite_ratio: float | None,
    keys: tuple[str, ...],
    branch: str,
    txn: dict[str, Any],
    how: dict[str, Any],
    options: dict[str, str],
    iceberg: dict[str, Any],
) -> None:
    """Delete rows of TABLE: the path or URI of a Delta table, or the name of an Iceberg table.

    `delvec delete-keys` deletes the rows of keys that a file lists.

    \b
    delvec delete /lake/orders --where "day < '2026-01-01'"
    delvec delete lake.db.orders --where "amount < 0" --dry-run
    """  # noqa: D301
    if is_delta(table):
        refuse_options("an Iceberg table", "--key", "--branch")
        session = without_catalog(iceberg)
        with opened(output, table, options, session=session) as (_, target):
            report: Any = target.delete(where, rewrite_ratio=rewrite_ratio, **txn, **how)
    else:
        refuse_delta_options("--rewrite-ratio")
        with opened_iceberg(output, table, iceberg) as (_, named):
            report = named.delete(
                where, key=list(keys) or None, branch=branch, dry_run=how["dry_run"], **txn
            )
    show_report(output, report)
