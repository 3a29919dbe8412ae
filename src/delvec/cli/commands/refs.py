"""Commands on the branches and tags of an Iceberg table: `refs`, `branch` and `tag`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.main import group
from delvec.cli.options import BRANCH, DRY_RUN, option, snapshot, together
from delvec.cli.tables import ICEBERG, table_command
from delvec.cli.terminal import Column
from delvec.iceberg.client.metadata import NO_SNAPSHOT
from delvec.report.format import escape_controls, format_count

if TYPE_CHECKING:
    from delvec.cli.output import Output
    from delvec.iceberg.table import IcebergTable

_NAME: Final = click.argument("name")
_COLUMNS: Final = [
    Column("name", "name", "bold", name_width=40),
    Column("kind", "kind", "cyan", is_unbroken=True),
    Column("snapshot", "snapshot", is_unbroken=True),
    Column("staging", "staging", is_unbroken=True, omitted=1),
]


@table_command("refs", ICEBERG)
def refs(output: Output, table: IcebergTable) -> None:
    """Show the branches and tags of TABLE, an Iceberg table by its name in a catalog.

    \b
    delvec refs lake.db.orders
    """
    found = [each.asDict(recursive=True) for each in table.refs().collect()]
    rows: list[dict[str, Any]] = [
        {
            "name": each["name"],
            "kind": each["type"],
            "snapshot": str(each["snapshot_id"]),
            "staging": "yes" if each["is_staging"] else None,
        }
        for each in found
    ]
    branches = sum(row["kind"] == "branch" for row in rows)
    count = f"{branches:,} branch" + ("" if branches == 1 else "es")
    tags = format_count(len(rows) - branches, "tag")
    output.note((escape_controls(table.name), "bold"), f": {count}, {tags}")
    output.listing(_COLUMNS, rows)
    output.result({"table": table.name, "refs": found})


@table_command(
    "create",
    ICEBERG,
    _NAME,
    snapshot("The snapshot that it begins at; the newest of main if absent."),
    option(
        "--for-staging staging",
        "Keep it for staged changes: deletes by key may be vectors alone, which other engines"
        " cannot read.",
    ),
    DRY_RUN,
)
def create_branch(
    output: Output, table: IcebergTable, name: str, *, staging: bool, dry_run: bool, **which: Any
) -> None:
    """Make the branch NAME of TABLE, an Iceberg table by its name in a catalog.

    \b
    delvec branch create lake.db.orders audit
    delvec branch create lake.db.orders changes --for-staging
    """
    head = table.create_branch(name, staging=staging, dry_run=dry_run, **which)
    # A branch for staging, or of a table without snapshots, begins with a new snapshot.
    new = None if dry_run and (staging or head == NO_SNAPSHOT) else head
    _show_ref(output, table, "branch", name, "made", new, dry_run=dry_run)


@table_command("drop", ICEBERG, _NAME, DRY_RUN)
def drop_branch(output: Output, table: IcebergTable, name: str, *, dry_run: bool) -> None:
    """Drop the branch NAME of TABLE, an Iceberg table; its rows go when its snapshots expire.

    \b
    delvec branch drop lake.db.orders audit
    """
    table.drop_branch(name, dry_run=dry_run)
    _show_ref(output, table, "branch", name, "dropped", None, dry_run=dry_run)


@table_command(
    "fast-forward",
    ICEBERG,
    _NAME,
    option("--to REF", "The branch or tag that goes on from where it is.", required=True),
    DRY_RUN,
)
def fast_forward(output: Output, table: IcebergTable, name: str, *, to: str, dry_run: bool) -> None:
    """Move the branch NAME of TABLE, an Iceberg table, forward to another branch or a tag.

    \b
    delvec branch fast-forward lake.db.orders main --to audit
    """
    head = table.fast_forward(name, to, dry_run=dry_run)
    _show_ref(output, table, "branch", name, "moved", head, dry_run=dry_run)


def _require_snapshot(given: dict[str, Any]) -> None:
    if (given["snapshot_id"] is None) == (given["timestamp"] is None):
        raise click.UsageError("where to? give --snapshot-id or --timestamp, one of them")


@table_command(
    "rollback",
    ICEBERG,
    BRANCH,
    together(
        snapshot("The snapshot, one of the branch."),
        option(
            "--timestamp TIME",
            "Instead, what was current at this time, such as 2026-01-31 10:00; in UTC unless it"
            " names a zone.",
        ),
        check=_require_snapshot,
    ),
    DRY_RUN,
)
def rollback(
    output: Output, table: IcebergTable, *, branch: str, dry_run: bool, **which: Any
) -> None:
    """Move a branch of TABLE, an Iceberg table, back to one of its earlier snapshots.

    Columns and properties stay as they are.

    \b
    delvec branch rollback lake.db.orders --timestamp "2026-01-31 10:00"
    """
    head = table.rollback(branch=branch, dry_run=dry_run, **which)
    _show_ref(output, table, "branch", branch, "moved back", head, dry_run=dry_run)


branch = group(
    "branch",
    "Make, drop and move branches of an Iceberg table; `delvec refs` shows them.",
    {
        create_branch: "Make a branch.",
        drop_branch: "Drop a branch.",
        fast_forward: "Move a branch forward to another branch or a tag.",
        rollback: "Move a branch back to an earlier snapshot.",
    },
)


@table_command(
    "create", ICEBERG, _NAME, snapshot("The snapshot; the newest of main if absent."), DRY_RUN
)
def create_tag(
    output: Output, table: IcebergTable, name: str, *, dry_run: bool, **which: Any
) -> None:
    """Make the tag NAME of TABLE, an Iceberg table by its name in a catalog.

    \b
    delvec tag create lake.db.orders end-of-2026
    """
    found = table.create_tag(name, dry_run=dry_run, **which)
    _show_ref(output, table, "tag", name, "made", found, dry_run=dry_run)


@table_command("drop", ICEBERG, _NAME, DRY_RUN)
def drop_tag(output: Output, table: IcebergTable, name: str, *, dry_run: bool) -> None:
    """Drop the tag NAME of TABLE, an Iceberg table.

    \b
    delvec tag drop lake.db.orders end-of-2026
    """
    table.drop_tag(name, dry_run=dry_run)
    _show_ref(output, table, "tag", name, "dropped", None, dry_run=dry_run)


tag = group(
    "tag",
    "Make and drop tags of an Iceberg table; `delvec refs` shows them.",
    {create_tag: "Make a tag.", drop_tag: "Drop a tag."},
)


def _show_ref(
    output: Output,
    table: IcebergTable,
    kind: str,
    name: str,
    what: str,
    snapshot_id: int | None,
    *,
    dry_run: bool,
) -> None:
    done = f"would be {what}" if dry_run else f"is {what}"
    way = "to" if what.startswith("moved") else "at"
    place = "" if snapshot_id is None else f" {way} snapshot {snapshot_id}"
    told = "dry run: " if dry_run else ""
    sentence = f": {told}{kind} {escape_controls(name)} {done}{place}"
    output.note((escape_controls(table.name), "bold"), sentence)
    facts = {"table": table.name, kind: name, "action": what, "snapshot_id": snapshot_id}
    output.result({**facts, "dry_run": dry_run})
