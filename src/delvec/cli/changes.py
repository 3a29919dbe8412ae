"""`delvec changes`: the rows that changed between two versions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import Aliased, spark_options, storage_options, table_argument
from delvec.cli.output import Column, JsonOutput, visible
from delvec.cli.spark_tables import opened
from delvec.delta.read.change_feed_schema import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from delvec.report.figures import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delvec.cli.output import Output

__all__ = ["command"]

_SHOWN = 50
_STYLES = {CHANGE_TYPE: "bold", COMMIT_VERSION: "cyan", COMMIT_TIMESTAMP: "dim"}


@delvec_command("changes")
@table_argument
@click.option(
    "--start-version",
    "start",
    cls=Aliased,
    aliases=["--from"],
    type=click.IntRange(min=0),
    metavar="N",
    help="The first version.",
)
@click.option(
    "--end-version",
    "end",
    cls=Aliased,
    aliases=["--to"],
    type=click.IntRange(min=0),
    metavar="N",
    help="The last version; the newest if absent.",
)
@click.option(
    "--start-timestamp", metavar="TIME", help="Instead, the first version at or after this time."
)
@click.option(
    "--end-timestamp", metavar="TIME", help="Instead, the last version at or before this time."
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Show so many rows, 0 for all; as text {_SHOWN} if absent, in JSON all.",
)
@storage_options
@spark_options
def command(  # noqa: PLR0913
    output: Output,
    table: str,
    *,
    start: int | None,
    end: int | None,
    start_timestamp: str | None,
    end_timestamp: str | None,
    limit: int | None,
    options: dict[str, str],
    session: dict[str, Any],
) -> None:
    """Show the rows that versions of TABLE, the path or URI of a Delta table, changed.

    A row of an update comes twice, as it was and as it is.

    \b
    delvec changes /lake/orders --start-version 3 --end-version 5
    delvec changes /lake/orders --start-timestamp "2026-01-31 10:00"
    """  # noqa: D301
    if (start is None) == (start_timestamp is None):
        raise click.UsageError("since when? give --start-version or --start-timestamp")
    if end is not None and end_timestamp is not None:
        raise click.UsageError("give --end-version or --end-timestamp, not both")
    if limit is None:
        limit = 0 if isinstance(output, JsonOutput) else _SHOWN
    times = {"start_timestamp": start_timestamp, "end_timestamp": end_timestamp}
    with opened(output, table, options, session=session) as (_, target):
        found = target.changes(start, end, **times)
        names = found.columns
        rows = _documents(found.orderBy(COMMIT_VERSION), limit)
        root = target.storage.root
    shown = rows[:limit] if limit else rows
    more = len(shown) < len(rows)
    since = f"version {start:,}" if start is not None else str(start_timestamp)
    last = end_timestamp if end is None else f"{end:,}" if start is not None else f"version {end:,}"
    until = "" if last is None else f" to {last}"
    output.note((visible(root), "bold"), f": changes from {visible(since + until)}")
    if shown:
        output.table([_column(name) for name in names], shown)
    count = counted(len(shown), "row")
    output.note((f"the first {count}; --limit 0 shows all", "dim") if more else count)
    facts = {"table": root, "from": start, "to": end, **times, "is_all": not more}
    output.result({**facts, "truncated": more, "rows": shown})


def _column(name: str) -> Column:
    """Return the column of the text; the time of the commit is omitted where there is no room."""
    is_ours = name in _STYLES
    omitted = 1 if name == COMMIT_TIMESTAMP else 0
    return Column(name, visible(name), _STYLES.get(name, ""), is_ours, omitted=omitted)


def _documents(df: DataFrame, limit: int) -> list[dict[str, Any]]:
    """Return rows as Spark writes them to JSON, one more than the limit."""
    from pyspark.sql import functions  # noqa: PLC0415

    wanted = df.limit(limit + 1) if limit else df
    text = functions.to_json(functions.struct("*"), {"ignoreNullFields": "false"})
    return [json.loads(row[0]) for row in wanted.select(text).collect()]
