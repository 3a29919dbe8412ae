"""`delvec create`: an empty table."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    dry_run,
    property_option,
    spark_options,
    storage_options,
    table_argument,
)
from delvec.cli.spark_tables import on_spark, show_report
from delvec.cli.table_kinds import require_path
from delvec.delta.alter.location import require_empty_location
from delvec.delta.table import DeltaTable
from delvec.delta.table.opening import open_storage
from delvec.delta.write.report import WriteReport
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("create")
@table_argument
@click.option("--schema", required=True, metavar="DDL", help='As in "id long not null, day date".')
@click.option("--partition-by", multiple=True, metavar="COLUMN", help="May be repeated.")
@property_option
@click.option(
    "--mode",
    type=click.Choice(["error", "ignore", "replace"]),
    default="error",
    show_default=True,
    help="What to do where a table is already.",
)
@dry_run
@storage_options
@spark_options
def command(  # noqa: PLR0913
    output: Output,
    table: str,
    *,
    schema: str,
    partition_by: tuple[str, ...],
    properties: dict[str, str],
    mode: Literal["error", "ignore", "replace"],
    dry_run: bool,
    options: dict[str, str],
    session: dict[str, Any],
) -> None:
    """Make an empty Delta table at TABLE, a path or URI, with deletion vectors enabled.

    \b
    delvec create /lake/orders --schema "id long, day date" --partition-by day
    """  # noqa: D301
    require_path(table)
    with on_spark(output, table, session=session) as spark, TemporaryDirectory() as scratch:
        exists = DeltaTable.is_delta_table(table, options, spark=spark)
        if exists and mode == "error":
            raise InvalidArgumentError(
                f"there is a table at {table}", hint="--mode replace, or --mode ignore to keep it"
            )
        # Creating a temporary table checks whether schema and properties are compatible.
        made = DeltaTable.create(
            spark,
            scratch if dry_run else table,
            schema,
            partition_by,
            properties,
            mode=mode,
            storage_options=None if dry_run else options,
        )
        if dry_run and not exists:
            place = open_storage(spark, table, options)
            require_empty_location(place, made.snapshot().metadata)
        kept = exists and mode == "ignore"
        operation = "CREATE OR REPLACE TABLE" if mode == "replace" else "CREATE TABLE"
        version = None if kept or dry_run else made.version
        report = WriteReport(operation, table, version, dry_run=dry_run)
    show_report(output, report)
