"""`delvec tag`: the tags of an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.main import group
from delvec.cli.options import catalog_options, dry_run, table_argument
from delvec.cli.ref_changes import show_ref, snapshot_option
from delvec.cli.spark_tables import opened_iceberg

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command("create")
@table_argument
@click.argument("name")
@snapshot_option("The snapshot; the newest of main if absent.")
@dry_run
@catalog_options
def create(
    output: Output,
    table: str,
    name: str,
    *,
    snapshot_id: int | None,
    dry_run: bool,
    iceberg: dict[str, Any],
) -> None:
    """Make the tag NAME of TABLE, an Iceberg table by its name in a catalog.

    \b
    delvec tag create lake.db.orders end-of-2026
    """  # noqa: D301
    with opened_iceberg(output, table, iceberg) as (_, target):
        found = target.create_tag(name, snapshot_id=snapshot_id, dry_run=dry_run)
        show_ref(output, target.name, "tag", name, "made", found, dry_run=dry_run)


@delvec_command("drop")
@table_argument
@click.argument("name")
@dry_run
@catalog_options
def drop(output: Output, table: str, name: str, *, dry_run: bool, iceberg: dict[str, Any]) -> None:
    """Drop the tag NAME of TABLE, an Iceberg table.

    \b
    delvec tag drop lake.db.orders end-of-2026
    """  # noqa: D301
    with opened_iceberg(output, table, iceberg) as (_, target):
        target.drop_tag(name, dry_run=dry_run)
        show_ref(output, target.name, "tag", name, "dropped", None, dry_run=dry_run)


command = group(
    "tag",
    "Make and drop tags of an Iceberg table; `delvec refs` shows them.",
    {create: "Make a tag.", drop: "Drop a tag."},
)
