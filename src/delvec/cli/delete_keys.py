"""`delvec delete-keys`: delete the rows of a table that have some keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.key_values import delta_keys, partition_values, typed_keys, written_keys
from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    Aliased,
    branch_option,
    catalog_options,
    key_option,
    pairs,
    source_option,
    table_argument,
    txn_options,
    write_options,
)
from delvec.cli.sources import rows_from
from delvec.cli.spark_tables import opened, opened_iceberg, show_report, without_catalog
from delvec.cli.table_kinds import is_delta, refuse_delta_options, refuse_options

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("delete-keys", "no row was changed")
@table_argument
@key_option("A column of the key; may be repeated.", "--column", "--on", required=True)
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
    help="Iceberg: delete in this partition only; give all of its fields.",
)
@branch_option
@txn_options
@write_options
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
    how: dict[str, Any],
    options: dict[str, str],
    iceberg: dict[str, Any],
) -> None:
    """Delete the rows of TABLE that have some keys.

    TABLE is the path or URI of a Delta table, whose rows are searched once; or the name of an
    Iceberg table, which is not read: the keys themselves are written down, in one commit.

    \b
    delvec delete-keys /lake/orders --key id --source gone.csv
    delvec delete-keys lake.db.orders --key id --values 17,18,19
    """  # noqa: D301
    if (values is None) == (source is None):
        raise click.UsageError("which keys? give --values or --source, one of them")
    written = None if source not in (None, "-") else written_keys(values, keys)
    if is_delta(table):
        refuse_options("an Iceberg table", "--partition", "--branch")
        session = without_catalog(iceberg)
        with opened(output, table, options, session=session) as (spark, target):
            given: Any = (
                delta_keys(target, keys, written)
                if written is not None
                else rows_from(spark, target, str(source), kind, options)
            )
            report: Any = target.delete(keys=given, on=list(keys), **txn, **how)
        show_report(output, report)
        return
    refuse_delta_options()
    with opened_iceberg(output, table, iceberg) as (spark, named):
        if written is not None:
            given = typed_keys(named, keys, written)
        else:
            given = rows_from(spark, named, str(source), kind, {})
        scope = partition_values(named, partition) if partition else None
        report = named.delete_keys(
            given, columns=list(keys), branch=branch, partition=scope, dry_run=how["dry_run"], **txn
        )
    show_report(output, report)
