"""`delvec index`: the primary-key index of an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import Aliased, catalog_options, dry_run, key_option, table_argument
from delvec.cli.output import visible
from delvec.cli.spark_tables import opened_iceberg, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("index", "the index is as it was, or up to date")
@table_argument
@key_option("A column of the key; may be repeated.")
@click.option(
    "--branch",
    cls=Aliased,
    aliases=["--target"],
    metavar="NAME",
    help="The branch whose files are indexed; main if absent.",
)
@click.option("--drop", is_flag=True, help="Drop the index, with its files.")
@dry_run
@catalog_options
def command(
    output: Output,
    table: str,
    *,
    keys: tuple[str, ...],
    branch: str | None,
    drop: bool,
    dry_run: bool,
    iceberg: dict[str, Any],
) -> None:
    """Make the primary-key index of TABLE, an Iceberg table, or bring it up to date.

    It only makes `delvec resolve` faster, where few keys of a large table are deleted.

    \b
    delvec index lake.db.orders --key id
    delvec index lake.db.orders --drop
    """  # noqa: D301
    if drop == bool(keys):
        raise click.UsageError("give --key or --drop, one of them")
    if drop and branch is not None:
        raise click.UsageError("--branch goes with --key: there is one index of all branches")
    with opened_iceberg(output, table, iceberg) as (_, found):
        if drop:
            dropped = found.drop_index(dry_run=dry_run)
            _show_dropped(output, found.name, dropped=dropped, dry_run=dry_run)
            return
        report = found.build_index(list(keys), target=branch or "main", dry_run=dry_run)
    show_report(output, report)


def _show_dropped(output: Output, name: str, *, dropped: bool, dry_run: bool) -> None:
    shown = visible(name)
    done = f"dry run: the index of {shown} would be" if dry_run else f"the index of {shown} is"
    output.note(f"{done} dropped" if dropped else f"{shown} has no index")
    output.result({"table": name, "dropped": dropped, "dry_run": dry_run})
