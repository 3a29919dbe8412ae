"""`delvec resolve`: equality deletes become deletion vectors; `delvec index` makes that faster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.main import command
from delvec.cli.options import CATALOG, DRY_RUN, LEASE, TABLE, WAIT, key, option, together
from delvec.cli.services import Following, Service, following
from delvec.cli.tables import ICEBERG, open_iceberg, table_command
from delvec.report.format import escape_controls

if TYPE_CHECKING:
    from delvec.cli.output import Output
    from delvec.iceberg.table import IcebergTable

_SECONDS: Final = 30.0


@command("resolve", "the target is as it was, or holds all that was published to it")
@TABLE
@key("A column of the key; may be repeated. Needed for the index.")
@option("--staging NAME", "The branch whose changes are taken over; in place if absent.")
@option("--target NAME", "The branch to commit to.", default="main")
@option(
    "--index auto|join|index",
    "Find rows by a join of their key columns, or by the primary-key index.",
    default="auto",
)
@option(
    "--verify counts|rows|none",
    "Check counts, all rows as well, or nothing, before it is published.",
    default="counts",
)
@option("--unique-keys", "Check that no two rows have the same key.")
@option(
    "--max-snapshots N",
    "So many staged snapshots in one commit at most; all if absent.",
    type=click.IntRange(min=1),
)
@option("--restart-staging", "Let the staging branch begin again when all was taken.")
@WAIT
@LEASE
@DRY_RUN
@following(_SECONDS)
@CATALOG
def resolve(
    output: Output,
    table: str,
    *,
    dry_run: bool,
    following: Following | None,
    iceberg: dict[str, Any],
    **choices: Any,
) -> None:
    """Turn the equality deletes of TABLE, an Iceberg table, into deletion vectors.

    With --staging, the changes of that branch are taken over; otherwise the deletes of the target
    are resolved in place. Every engine then reads the target.

    \b
    delvec resolve lake.db.orders --dry-run
    delvec resolve lake.db.orders --key id --staging changes --follow
    """
    if following and dry_run:
        raise click.UsageError("--follow does not go with --dry-run")
    if choices["restart_staging"] and choices["staging"] is None:
        raise click.UsageError("--restart-staging needs --staging")
    if following:
        _follow(output, table, iceberg, choices, following)
        return
    with open_iceberg(output, table, iceberg) as target:
        report = target.resolve(**choices, dry_run=dry_run)
    output.report(report)


def _follow(
    output: Output,
    name: str,
    iceberg: Mapping[str, Any],
    choices: Mapping[str, Any],
    given: Following,
) -> None:
    from delvec.iceberg.resolve.follow import Metrics, follow  # noqa: PLC0415

    staging, target = choices["staging"], choices["target"]
    service = Service(output, given, Metrics(name, target, staging))

    def run(table: IcebergTable) -> None:
        follow(
            lambda: table.resolve(**choices),
            oldest=lambda: table.oldest_unresolved(staging, target=target),
            **service.arguments(),
        )

    service.run(open_iceberg(output, name, iceberg), lambda table: table.name, run)


def _require_key(given: dict[str, Any]) -> None:
    if given["drop"] == bool(given["keys"]):
        raise click.UsageError("give --key or --drop, one of them")
    if given["drop"] and given["branch"] is not None:
        raise click.UsageError("--branch goes with --key: there is one index of all branches")


@table_command(
    "index",
    ICEBERG,
    together(
        key("A column of the key; may be repeated."),
        option("--branch NAME", "The branch whose files are indexed; main if absent."),
        option("--drop", "Drop the index, with its files."),
        check=_require_key,
    ),
    DRY_RUN,
    unfinished="the index is as it was, or up to date",
)
def index(
    output: Output,
    table: IcebergTable,
    *,
    keys: tuple[str, ...],
    branch: str = "main",
    drop: bool,
    dry_run: bool,
) -> None:
    """Make the primary-key index of TABLE, an Iceberg table, or bring it up to date.

    It only makes `delvec resolve` faster, where few keys of a large table are deleted.

    \b
    delvec index lake.db.orders --key id
    delvec index lake.db.orders --drop
    """
    if not drop:
        output.report(table.build_index(list(keys), target=branch, dry_run=dry_run))
        return
    dropped = table.drop_index(dry_run=dry_run)
    shown = escape_controls(table.name)
    done = f"dry run: the index of {shown} would be" if dry_run else f"the index of {shown} is"
    output.note(f"{done} dropped" if dropped else f"{shown} has no index")
    output.result({"table": table.name, "dropped": dropped, "dry_run": dry_run})
