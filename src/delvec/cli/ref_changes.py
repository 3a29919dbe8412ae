"""What the commands on branches and tags have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from delvec.cli.option_values import Aliased
from delvec.cli.output import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from delvec.cli.output import Output

__all__ = ["show_ref", "snapshot_option"]


def snapshot_option(
    help_text: str,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--snapshot-id`."""
    return click.option(
        "--snapshot-id",
        cls=Aliased,
        aliases=["--snapshot"],
        type=int,
        metavar="ID",
        help=help_text,
    )


def show_ref(
    output: Output,
    table: str,
    kind: str,
    name: str,
    what: str,
    snapshot_id: int | None,
    *,
    dry_run: bool,
) -> None:
    """Show what was done, or would be, to a branch or tag.

    Args:
        output: Where to.
        table: The table.
        kind: `branch` or `tag`.
        name: Its name.
        what: What was done: `made`, `dropped`, `moved`, `moved back`.
        snapshot_id: The snapshot that it points to; None if it is gone, or not known yet.
        dry_run: Whether nothing was done.
    """
    done = f"would be {what}" if dry_run else f"is {what}"
    way = "to" if what.startswith("moved") else "at"
    place = "" if snapshot_id is None else f" {way} snapshot {snapshot_id}"
    told = "dry run: " if dry_run else ""
    output.note((visible(table), "bold"), f": {told}{kind} {visible(name)} {done}{place}")
    facts = {"table": table, kind: name, "action": what, "snapshot_id": snapshot_id}
    output.result({**facts, "dry_run": dry_run})
