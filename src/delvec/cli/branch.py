"""`delvec branch`: the branches of an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.main import group
from delvec.cli.options import branch_option, catalog_options, dry_run, table_argument
from delvec.cli.ref_changes import show_ref, snapshot_option
from delvec.cli.spark_tables import opened_iceberg
from delvec.iceberg.client.metadata import NO_SNAPSHOT

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("create")
@table_argument
@click.argument("name")
@snapshot_option("The snapshot that it begins at; the newest of main if absent.")
@click.option(
    "--for-staging",
    "staging",
    is_flag=True,
    help="Keep it for staged changes: deletes by key may be vectors alone, which other engines"
    " cannot read.",
)
@dry_run
@catalog_options
def create(
    output: Output,
    table: str,
    name: str,
    *,
    snapshot_id: int | None,
    staging: bool,
    dry_run: bool,
    iceberg: dict[str, Any],
) -> None:
    """Make the branch NAME of TABLE, an Iceberg table by its name in a catalog.

    \b
    delvec branch create lake.db.orders audit
    delvec branch create lake.db.orders changes --for-staging
    """  # noqa: D301
    with opened_iceberg(output, table, iceberg) as (_, target):
        head = target.create_branch(name, snapshot_id=snapshot_id, staging=staging, dry_run=dry_run)
        # A branch for staging, or of a table without snapshots, begins with a new snapshot.
        new = None if dry_run and (staging or head == NO_SNAPSHOT) else head
        show_ref(output, target.name, "branch", name, "made", new, dry_run=dry_run)


@delvec_command("drop")
@table_argument
@click.argument("name")
@dry_run
@catalog_options
def drop(output: Output, table: str, name: str, *, dry_run: bool, iceberg: dict[str, Any]) -> None:
    """Drop the branch NAME of TABLE, an Iceberg table; its rows go when its snapshots expire.

    \b
    delvec branch drop lake.db.orders audit
    """  # noqa: D301
    with opened_iceberg(output, table, iceberg) as (_, target):
        target.drop_branch(name, dry_run=dry_run)
        show_ref(output, target.name, "branch", name, "dropped", None, dry_run=dry_run)


@delvec_command("fast-forward")
@table_argument
@click.argument("name")
@click.option(
    "--to", required=True, metavar="REF", help="The branch or tag that goes on from where it is."
)
@dry_run
@catalog_options
def fast_forward(
    output: Output, table: str, name: str, *, to: str, dry_run: bool, iceberg: dict[str, Any]
) -> None:
    """Move the branch NAME of TABLE, an Iceberg table, forward to another branch or a tag.

    \b
    delvec branch fast-forward lake.db.orders main --to audit
    """  # noqa: D301
    with opened_iceberg(output, table, iceberg) as (_, target):
        head = target.fast_forward(name, to, dry_run=dry_run)
        show_ref(output, target.name, "branch", name, "moved", head, dry_run=dry_run)


@delvec_command("rollback")
@table_argument
@branch_option
@snapshot_option("The snapshot, one of the branch.")
@click.option(
    "--timestamp",
    metavar="TIME",
    help="Instead, what was current at this time, such as 2026-01-31 10:00.",
)
@dry_run
@catalog_options
def rollback(
    output: Output,
    table: str,
    *,
    branch: str,
    snapshot_id: int | None,
    timestamp: str | None,
    dry_run: bool,
    iceberg: dict[str, Any],
) -> None:
    """Move a branch of TABLE, an Iceberg table, back to one of its earlier snapshots.

    Columns and properties stay as they are.

    \b
    delvec branch rollback lake.db.orders --timestamp "2026-01-31 10:00"
    """  # noqa: D301
    if (snapshot_id is None) == (timestamp is None):
        raise click.UsageError("where to? give --snapshot-id or --timestamp, one of them")
    with opened_iceberg(output, table, iceberg) as (_, target):
        head = target.rollback(snapshot_id, timestamp=timestamp, branch=branch, dry_run=dry_run)
        show_ref(output, target.name, "branch", branch, "moved back", head, dry_run=dry_run)


command = group(
    "branch",
    "Make, drop and move branches of an Iceberg table; `delvec refs` shows them.",
    {
        create: "Make a branch.",
        drop: "Drop a branch.",
        fast_forward: "Move a branch forward to another branch or a tag.",
        rollback: "Move a branch back to an earlier snapshot.",
    },
)
