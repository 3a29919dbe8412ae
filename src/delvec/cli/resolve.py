"""`delvec resolve`: equality deletes of an Iceberg table become deletion vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    catalog_options,
    dry_run,
    interval_option,
    key_option,
    table_argument,
    wait_option,
)
from delvec.cli.spark_tables import opened_iceberg, show_report

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]

_SECONDS: Final = 30.0
_HOST: Final = "127.0.0.1"


@delvec_command("resolve", "the target is as it was, or holds all that was published to it")
@table_argument
@key_option("A column of the key; may be repeated. Needed for the index.")
@click.option(
    "--staging", metavar="NAME", help="The branch whose changes are taken over; in place if absent."
)
@click.option(
    "--target", default="main", show_default=True, metavar="NAME", help="The branch to commit to."
)
@click.option(
    "--index",
    type=click.Choice(["auto", "join", "index"]),
    default="auto",
    show_default=True,
    help="Find rows by a join of their key columns, or by the primary-key index.",
)
@click.option(
    "--verify",
    type=click.Choice(["counts", "rows", "none"]),
    default="counts",
    show_default=True,
    help="Check counts, all rows as well, or nothing, before it is published.",
)
@click.option("--unique-keys", is_flag=True, help="Check that no two rows have the same key.")
@click.option(
    "--max-snapshots",
    type=click.IntRange(min=1),
    metavar="N",
    help="So many staged snapshots in one commit at most; all if absent.",
)
@click.option(
    "--restart-staging", is_flag=True, help="Let the staging branch begin anew when all was taken."
)
@wait_option
@dry_run
@click.option("--follow", is_flag=True, help="Go on until SIGINT or SIGTERM; JSON in lines.")
@interval_option(_SECONDS)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve /metrics in Prometheus' format there; 0 for any port.",
)
@click.option(
    "--metrics-host",
    metavar="ADDRESS",
    help=f"Where to serve it: {_HOST}, to this machine only, if absent; 0.0.0.0 in a container.",
)
@catalog_options
def command(
    output: Output,
    table: str,
    *,
    dry_run: bool,
    follow: bool,
    interval: float | None,
    metrics_port: int | None,
    metrics_host: str | None,
    iceberg: dict[str, Any],
    **choices: Any,  # noqa: ANN401
) -> None:
    """Turn the equality deletes of TABLE, an Iceberg table, into deletion vectors.

    With --staging, the changes of that branch are taken over; otherwise the deletes of the target
    are resolved in place. Every engine then reads the target.

    \b
    delvec resolve lake.db.orders --dry-run
    delvec resolve lake.db.orders --key id --staging changes --follow
    """  # noqa: D301
    if follow and dry_run:
        raise click.UsageError("--follow does not go with --dry-run")
    for given, name in ((interval, "--interval"), (metrics_port, "--metrics-port")):
        if given is not None and not follow:
            raise click.UsageError(f"{name} needs --follow")
    if metrics_host is not None and metrics_port is None:
        raise click.UsageError("--metrics-host needs --metrics-port")
    if choices["restart_staging"] and choices["staging"] is None:
        raise click.UsageError("--restart-staging needs --staging")
    if follow:
        from delvec.cli.resolve_follow import run  # noqa: PLC0415

        every = _SECONDS if interval is None else interval
        served = None if metrics_port is None else (metrics_host or _HOST, metrics_port)
        run(output, table, iceberg, choices, every, served)
        return
    with opened_iceberg(output, table, iceberg) as (_, target):
        report = target.resolve(**choices, dry_run=dry_run)
    show_report(output, report)
