"""`delvec upsert`: rows of a source in place of those of an Iceberg table with the same keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    branch_option,
    catalog_options,
    dry_run,
    key_option,
    source_options,
    table_argument,
    txn_options,
)
from delvec.cli.sources import rows_from
from delvec.cli.spark_tables import opened_iceberg, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


class _Unshown(click.Argument):
    """The source as an argument, as it was before `--source`; no help shows it."""

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return nothing."""
        return []


@delvec_command("upsert", "no row was changed")
@table_argument
@click.argument("positional", cls=_Unshown, required=False)
@source_options(required=False)
@key_option("A column of the key; may be repeated.", required=True)
@click.option(
    "--delete-where",
    metavar="SQL",
    help="Rows of the source that only delete, such as \"op = 'D'\".",
)
@click.option(
    "--duplicates",
    type=click.Choice(["error", "last"]),
    default="error",
    show_default=True,
    help="What to do with a key that the source has twice: refuse, or keep the last row.",
)
@click.option("--order-by", metavar="SQL", help="What the last row of a key is the greatest by.")
@branch_option
@txn_options
@dry_run
@catalog_options
def command(  # noqa: PLR0913
    output: Output,
    table: str,
    positional: str | None,
    *,
    source: str | None,
    keys: tuple[str, ...],
    delete_where: str | None,
    duplicates: Literal["error", "last"],
    order_by: str | None,
    kind: str | None,
    branch: str,
    txn: dict[str, Any],
    dry_run: bool,
    iceberg: dict[str, Any],
) -> None:
    """Write rows of a source to TABLE, an Iceberg table, in place of those with the same keys.

    The table is not read: the keys are deleted, and the rows added, in one commit.

    \b
    delvec upsert lake.db.orders --source new.csv --key id --delete-where gone
    """  # noqa: D301
    if (source is None) == (positional is None):
        raise click.UsageError("which rows? give --source PATH")
    choices: dict[str, Any] = {"delete_where": delete_where, "order_by": order_by}
    with opened_iceberg(output, table, iceberg) as (spark, target):
        rows = rows_from(spark, target, str(source or positional), kind, {})
        given: dict[str, Any] = {**choices, **txn, "dry_run": dry_run}
        report = target.upsert(rows, list(keys), branch=branch, duplicates=duplicates, **given)
    show_report(output, report)
