"""`delvec resolve`: equality deletes become deletion vectors; `delvec index` makes that faster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.exits import stopped_by_signals
from delvec.cli.main import command
from delvec.cli.options import (
    CATALOG,
    DRY_RUN,
    FOLLOW,
    LEASE,
    TABLE,
    WAIT,
    interval,
    key,
    option,
    together,
)
from delvec.cli.tables import ICEBERG, open_iceberg, table_command
from delvec.errors import DelvecError
from delvec.report.format import escape_controls, format_count

if TYPE_CHECKING:
    from delvec.cli.output import Output
    from delvec.iceberg.table import IcebergTable

_SECONDS: Final = 30.0
_HOST: Final = "127.0.0.1"


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
@FOLLOW
@interval(_SECONDS)
@option(
    "--metrics-port PORT",
    "Serve /metrics in Prometheus' format there; 0 for any port.",
    type=click.IntRange(0, 65535),
)
@option(
    "--metrics-host ADDRESS",
    f"Where to serve it: {_HOST}, to this machine only, if absent; 0.0.0.0 in a container.",
)
@CATALOG
def resolve(
    output: Output,
    table: str,
    *,
    dry_run: bool,
    follow: bool,
    interval: float | None,
    metrics_port: int | None,
    metrics_host: str | None,
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
        every = _SECONDS if interval is None else interval
        served = None if metrics_port is None else (metrics_host or _HOST, metrics_port)
        _follow(output, table, iceberg, choices, every, served)
        return
    with open_iceberg(output, table, iceberg) as target:
        report = target.resolve(**choices, dry_run=dry_run)
    output.report(report)


def _follow(
    output: Output,
    name: str,
    iceberg: Mapping[str, Any],
    choices: Mapping[str, Any],
    interval: float,
    metrics_at: tuple[str, int] | None,
) -> None:
    from delvec.iceberg.resolve.follow import Metrics, follow, served  # noqa: PLC0415

    stop = Event()
    output.begin_lines()
    current = Metrics(name, choices["target"], choices["staging"])

    def keep(metrics: Metrics) -> None:
        nonlocal current
        current = metrics

    def text() -> str:
        return current.to_prometheus()

    def show_end() -> None:
        figures = {"commit": current.commits, "key": current.keys, "row": current.rows_deleted}
        done = ", ".join(format_count(count, noun) for noun, count in figures.items())
        cycles = format_count(current.cycles, "cycle")
        output.timed(f"stopped after {cycles}: {done} deleted")
        output.result({"stopped": True, **current.to_json()})

    with ExitStack() as stack:
        port = None
        if metrics_at is not None:  # a port that is taken is noticed before a JVM starts
            host, wanted = metrics_at
            port = stack.enter_context(served(text, wanted, host))
        stack.enter_context(stopped_by_signals(stop))
        table = stack.enter_context(open_iceberg(output, name, iceberg))
        output.note((escape_controls(table.name), "bold"), f", every {interval:g} s")
        if port is not None:
            output.note(f"metrics: http://{host}:{port}/metrics")
            output.result({"metrics_port": port})
        with stopped_by_signals(stop):  # Spark has installed handlers of its own
            try:
                current = follow(
                    lambda: table.resolve(**choices),
                    stop=stop,
                    on_report=lambda report: output.cycle(report, metrics=current.to_json()),
                    on_retry=lambda error, seconds: output.retry(
                        error, seconds, metrics=current.to_json()
                    ),
                    on_metrics=keep,
                    interval=interval,
                    metrics=current,
                )
            except DelvecError:
                show_end()
                raise
    show_end()


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
