"""`delvec delete-keys`: delete the rows of an Iceberg table that have some keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.key_values import partition_values, typed_keys, written_keys
from delvec.cli.main import command as delvec_command
from delvec.cli.options import branch_option, catalog_options, pairs, txn_options
from delvec.cli.sources import FORMATS, rows_from
from delvec.cli.spark_tables import opened_iceberg, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("delete-keys", "the table is as it was, or all keys are deleted")
@click.argument("table")
@click.option(
    "--column",
    "columns",
    multiple=True,
    required=True,
    metavar="NAME",
    help="A column of the key; may be repeated.",
)
@click.option("--keys", metavar="VALUES", help="The values of one column, such as 1,2,3.")
@click.option(
    "--source",
    metavar="PATH",
    help="A file or folder that has the keys, or a table; - for standard input: lines of CSV, the"
    " columns in the order given, without a header.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="What the source is; if not given, its name tells, or its being a Delta table.",
)
@click.option(
    "--partition",
    multiple=True,
    metavar="FIELD=VALUE",
    callback=pairs,
    help="Delete in this partition only; give all of its fields.",
)
@branch_option
@txn_options
@catalog_options
def command(  # noqa: PLR0913
    output: Output,
    table: str,
    *,
    columns: tuple[str, ...],
    keys: str | None,
    source: str | None,
    kind: str | None,
    partition: dict[str, str],
    branch: str,
    txn: dict[str, Any],
    iceberg: dict[str, Any],
) -> None:
    """Delete the rows of TABLE, an Iceberg table, that have some keys.

    The table is not read: the keys themselves are written down, in one commit.

    \b
    delvec delete-keys lake.db.orders --column id --keys 17,18,19
    delvec delete-keys lake.db.orders --column id --source gone.parquet --branch changes
    """  # noqa: D301
    if (keys is None) == (source is None):
        raise click.UsageError("which keys? give --keys or --source, one of them")
    written = None if source not in (None, "-") else written_keys(keys, columns)
    with opened_iceberg(output, table, iceberg) as (spark, target):
        if written is not None:
            given: Any = typed_keys(target, columns, written)
        else:
            given = rows_from(spark, target, str(source), kind, {})
        scope = partition_values(target, partition) if partition else None
        report = target.delete_keys(
            given, columns=list(columns), branch=branch, partition=scope, **txn
        )
    show_report(output, report)
