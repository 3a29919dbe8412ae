"""`delvec consolidate`: merge the equality deletes of an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.cli.main import command as delvec_command
from delvec.cli.options import branch_option, catalog_options, dry_run, table_argument
from delvec.cli.spark_tables import opened_iceberg, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("consolidate", "the deletes are as they were")
@table_argument
@branch_option
@dry_run
@catalog_options
def command(
    output: Output, table: str, *, branch: str, dry_run: bool, iceberg: dict[str, Any]
) -> None:
    """Merge the many small equality deletes of TABLE, an Iceberg table, into few.

    No row changes, and no data file is read. Deletes that apply to no data file any more are
    removed.

    \b
    delvec consolidate lake.db.orders --dry-run
    delvec consolidate lake.db.orders --branch changes
    """  # noqa: D301
    with opened_iceberg(output, table, iceberg) as (_, target):
        report = target.consolidate_deletes(branch, dry_run=dry_run)
    show_report(output, report)
