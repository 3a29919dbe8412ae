"""`delvec delete-keys`: delete the rows of an Iceberg table that have some keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.key_trials import try_delete_keys
from delvec.cli.key_values import partition_values, typed_keys, written_keys
from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    Aliased,
    branch_option,
    catalog_options,
    dry_run,
    key_option,
    pairs,
    source_option,
    table_argument,
    txn_options,
)
from delvec.cli.sources import rows_from
from delvec.cli.spark_tables import opened_iceberg, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("delete-keys", "no row was changed")
@table_argument
@key_option("A column of the key; may be repeated.", "--column", required=True)
@click.option(
    "--values",
    cls=Aliased,
    aliases=["--keys"],
    metavar="VALUES",
    help="The keys: values of one column, such as 1,2,3.",
)
@source_option(
    "A file or folder that has the keys, or a Delta table; - for standard input: lines of CSV, the"
    " columns in the order given, without a header.",
    required=False,
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
@dry_run
@catalog_options
def command(  # noqa: PLR0913
    output: Output,
    table: str,
    *,
    keys: tuple[str, ...],
    values: str | None,
    source: str | None,
    kind: str | None,
    partition: dict[str, str],
    branch: str,
    txn: dict[str, Any],
    dry_run: bool,
    iceberg: dict[str, Any],
) -> None:
    """Delete the rows of TABLE, an Iceberg table, that have some keys.

    The table is not read: the keys themselves are written down, in one commit.

    \b
    delvec delete-keys lake.db.orders --key id --values 17,18,19
    delvec delete-keys lake.db.orders --key id --source gone.csv --branch staged
    """  # noqa: D301
    if (values is None) == (source is None):
        raise click.UsageError("which keys? give --values or --source, one of them")
    written = None if source not in (None, "-") else written_keys(values, keys)
    with opened_iceberg(output, table, iceberg) as (spark, target):
        if written is not None:
            given: Any = typed_keys(target, keys, written)
        else:
            given = rows_from(spark, target, str(source), kind, {})
        scope = partition_values(target, partition) if partition else None
        if dry_run:
            try_delete_keys(output, target, given, keys, branch, scope)
            return
        report = target.delete_keys(
            given, columns=list(keys), branch=branch, partition=scope, **txn
        )
    show_report(output, report)
