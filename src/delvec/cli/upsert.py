"""`delvec upsert`: rows of a source in place of those of an Iceberg table with the same keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import branch_option, catalog_options, txn_options
from delvec.cli.sources import FORMATS, rows_from
from delvec.cli.spark_tables import opened_iceberg, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("upsert", "the table is as it was, or holds all of it")
@click.argument("table")
@click.argument("source")
@click.option(
    "--key",
    "keys",
    multiple=True,
    required=True,
    metavar="COLUMN",
    help="A column of the key; may be repeated.",
)
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
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="What the source is; if not given, its name tells, or its being a Delta table.",
)
@branch_option
@txn_options
@catalog_options
def command(  # noqa: PLR0913
    output: Output,
    table: str,
    source: str,
    *,
    keys: tuple[str, ...],
    delete_where: str | None,
    duplicates: Literal["error", "last"],
    order_by: str | None,
    kind: str | None,
    branch: str,
    txn: dict[str, Any],
    iceberg: dict[str, Any],
) -> None:
    """Write the rows of SOURCE to TABLE, an Iceberg table, in place of those with the same keys.

    SOURCE is a file or folder of Parquet, of CSV with a header or of JSON lines, or a Delta table.
    The table is not read: the keys are deleted, and the rows added, in one commit.

    \b
    delvec upsert lake.db.orders changes.parquet --key id --delete-where "op = 'D'"
    """  # noqa: D301
    choices: dict[str, Any] = {"delete_where": delete_where, "order_by": order_by}
    with opened_iceberg(output, table, iceberg) as (spark, target):
        rows = rows_from(spark, target, source, kind, {})
        report = target.upsert(
            rows, list(keys), branch=branch, duplicates=duplicates, **choices, **txn
        )
    show_report(output, report)
