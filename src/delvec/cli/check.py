"""`delvec check`: compare the files of a table with its log or its manifests."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from delvec.cli.exits import ExitCode
from delvec.cli.main import command as delvec_command
from delvec.cli.options import Aliased, catalog_options, dry_run, storage_options, table_argument
from delvec.cli.spark_tables import delta_storage, opened_iceberg, show_report
from delvec.cli.table_kinds import is_delta, refuse_options
from delvec.delta.table import DeltaTable

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]

_SAMPLE = 10


@delvec_command("check")
@table_argument
@click.option("--repair", is_flag=True, help="Delta: repair what loses no row for certain.")
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Delta: compare the rows of so many files with their statistics; {_SAMPLE} if absent.",
)
@dry_run
@click.option("--branch", metavar="NAME", help="Iceberg: the branch; main if absent.")
@click.option(
    "--snapshot-id",
    cls=Aliased,
    aliases=["--snapshot"],
    type=int,
    metavar="ID",
    help="Iceberg: instead, a snapshot by its id.",
)
@storage_options
@catalog_options
def command(  # noqa: PLR0913 - one for each option
    output: Output,
    table: str,
    *,
    repair: bool,
    sample: int | None,
    dry_run: bool,
    branch: str | None,
    snapshot_id: int | None,
    options: dict[str, str],
    iceberg: dict[str, Any],
) -> None:
    """Check that TABLE has the files, vectors and deletes that its metadata says.

    TABLE is the path or URI of a Delta table, or the name of an Iceberg table in a catalog. All
    data files are looked for and all deletes are read; of a Delta table the footers of all files
    and the rows of some as well. Ends with exit code 4 if there are errors.

    \b
    delvec check /lake/orders
    delvec check /lake/orders --repair --dry-run
    delvec check lake.db.orders --branch changes
    """  # noqa: D301
    if is_delta(table):
        refuse_options("an Iceberg table", "--branch", "--snapshot-id")
        with delta_storage(table, options) as storage, output.progress() as show:
            report: Any = DeltaTable(storage).check(
                repair=repair,
                sample=_SAMPLE if sample is None else sample,
                dry_run=dry_run,
                on_progress=show,
            )
    else:
        refuse_options("a Delta table", "--repair", "--sample", "--dry-run", "--storage-option")
        with opened_iceberg(output, table, iceberg) as (_, named):
            report = named.check(branch, snapshot_id)
    show_report(output, report)
    if not report.ok:
        sys.exit(ExitCode.DAMAGED)
