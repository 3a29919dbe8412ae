"""Commands on the past of a table: `history`, and `changes` of rows between two versions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.options import BRANCH, STORAGE, option, together
from delvec.cli.tables import DELTA, either, table_command
from delvec.cli.terminal import Column
from delvec.delta.log.history import history_rows
from delvec.delta.read.change_feed import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from delvec.delta.table import DeltaTable
from delvec.documents import parse_json, shown_time, whole_number
from delvec.errors import FormatError
from delvec.report.format import escape_controls, format_count, format_list

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delvec.cli.output import Output
    from delvec.iceberg.table import IcebergTable

_COLUMNS: Final = [
    Column("version", "version", "bold"),
    Column("when", "when (UTC)", "dim", is_unbroken=True),
    Column("operation", "operation", "cyan"),
    Column("parameters", "parameters", name_width=44, omitted=2),
    Column("rows", "rows", omitted=1),
    Column("vectors", "vectors", "bold"),
    Column("engine", "engine", "dim", name_width=44, omitted=3),
]
_ROWS: Final = {
    "deleted": ("numDeletedRows", "numTargetRowsDeleted"),
    "updated": ("numUpdatedRows", "numTargetRowsUpdated"),
    "inserted": ("numTargetRowsInserted",),
    "copied": ("numCopiedRows", "numTargetRowsCopied"),
    "written": ("numOutputRows", "numAddedRows"),
}
_VECTORS: Final = {
    "added": ("numDeletionVectorsAdded", "numTargetDeletionVectorsAdded"),
    "updated": ("numDeletionVectorsUpdated", "numTargetDeletionVectorsUpdated"),
    "removed": ("numDeletionVectorsRemoved", "numTargetDeletionVectorsRemoved"),
}
_NOTHING: Final = ("", "[]", "{}", "null", None)
_ICEBERG_COLUMNS: Final = [
    Column("snapshot", "snapshot", "bold", is_unbroken=True),
    Column("when", "when (UTC)", "dim", is_unbroken=True),
    Column("operation", "operation", "cyan", is_unbroken=True, omitted=1),
    Column("rows", "rows"),
    Column("deletes", "deletes", "bold"),
    Column("refs", "refs", name_width=30, omitted=2),
]
_SHOWN = 50
_STYLES = {CHANGE_TYPE: "bold", COMMIT_VERSION: "cyan", COMMIT_TIMESTAMP: "dim"}


@table_command(
    "history",
    either("", "--branch"),
    option("--limit N", "The newest so many commits.", type=click.IntRange(min=1)),
    BRANCH,
    STORAGE,
)
def history(
    output: Output, table: DeltaTable | IcebergTable, *, limit: int | None = None, branch: str
) -> None:
    """Show what was done to TABLE: commits still in its log, or snapshots, newest first.

    TABLE is the path or URI of a Delta table, whose log alone is read, or the name of an Iceberg
    table in a catalog.

    \b
    delvec history /lake/orders --limit 20
    delvec history lake.db.orders --branch changes
    """
    if not isinstance(table, DeltaTable):
        _show_snapshots(output, table, limit, branch)
        return
    # No Arrow: a table of Python values imports pandas, a quarter of a second.
    commits = [_document(row) for row in history_rows(table.storage, limit)]
    root = table.storage.root
    output.note((escape_controls(root), "bold"), f": {format_count(len(commits), 'commit')}")
    output.listing(_COLUMNS, [_row(commit) for commit in commits])
    oldest = commits[-1]["version"] if commits else None
    if oldest and len(commits) == limit:
        output.note(("Older commits are left out; without --limit all are shown.", "dim"))
    elif oldest:
        output.note((f"Commits before version {oldest:,} were cleaned up.", "dim"))
    output.result({"table": root, "commits": commits})


def _require_start(given: dict[str, Any]) -> None:
    if (given["start"] is None) == (given["start_timestamp"] is None):
        raise click.UsageError("since when? give --start-version or --start-timestamp")
    if given["end"] is not None and given["end_timestamp"] is not None:
        raise click.UsageError("give --end-version or --end-timestamp, not both")


@table_command(
    "changes",
    DELTA,
    together(
        option("--start-version start N", "The first version."),
        option("--end-version end N", "The last version; the newest if absent."),
        option(
            "--start-timestamp TIME", "Instead, the first version at or after this time, in UTC."
        ),
        option("--end-timestamp TIME", "Instead, the last version at or before this time, in UTC."),
        check=_require_start,
    ),
    option("--limit N", f"Show so many rows, 0 for all; as text {_SHOWN} if absent, in JSON all."),
    STORAGE,
)
def changes(
    output: Output,
    table: DeltaTable,
    *,
    start: int | None = None,
    end: int | None = None,
    start_timestamp: str | None = None,
    end_timestamp: str | None = None,
    limit: int | None = None,
) -> None:
    """Show the rows that versions of TABLE, the path or URI of a Delta table, changed.

    A row of an update comes twice, as it was and as it is.

    \b
    delvec changes /lake/orders --start-version 3 --end-version 5
    delvec changes /lake/orders --start-timestamp "2026-01-31 10:00"
    """
    if limit is None:
        limit = 0 if output.as_json else _SHOWN
    times = {"start_timestamp": start_timestamp, "end_timestamp": end_timestamp}
    found = table.changes(start, end, **times)
    rows = _documents(found.orderBy(COMMIT_VERSION), limit)
    shown = rows[:limit] if limit else rows
    more = len(shown) < len(rows)
    since = f"version {start:,}" if start is not None else str(start_timestamp)
    last = end_timestamp if end is None else f"{end:,}" if start is not None else f"version {end:,}"
    until = "" if last is None else f" to {last}"
    root = table.storage.root
    output.note((escape_controls(root), "bold"), f": changes from {escape_controls(since + until)}")
    if shown:
        output.table([_column(name) for name in found.columns], shown)
    count = format_count(len(shown), "row")
    output.note((f"the first {count}; --limit 0 shows all", "dim") if more else count)
    facts = {"table": root, "from": start, "to": end, **times, "is_all": not more}
    output.result({**facts, "truncated": more, "rows": shown})


def _show_snapshots(output: Output, target: IcebergTable, limit: int | None, branch: str) -> None:
    found = target.history(limit, branch=branch).toArrow().to_pylist()
    snapshots = [_iceberg_document(each) for each in found]
    count = format_count(len(snapshots), "snapshot")
    output.note((escape_controls(target.name), "bold"), f": {count} of {escape_controls(branch)}")
    output.listing(_ICEBERG_COLUMNS, [_iceberg_row(each) for each in snapshots])
    if snapshots and len(snapshots) == limit:
        output.note(("Older snapshots are left out; without --limit all are shown.", "dim"))
    output.result({"table": target.name, "branch": branch, "snapshots": snapshots})


def _document(row: dict[str, Any]) -> dict[str, Any]:
    maps = ("operationParameters", "operationMetrics")
    row |= {name: dict(row[name]) for name in maps if row[name] is not None}
    row["timestamp"] = shown_time(row["timestamp"] // 1000, "T")
    return {name: value for name, value in row.items() if value is not None}


def _row(commit: dict[str, Any]) -> dict[str, Any]:
    metrics = {_camel(name): text for name, text in commit.get("operationMetrics", {}).items()}
    return {
        "version": commit["version"],
        "when": commit["timestamp"][:19].replace("T", " "),
        "operation": commit.get("operation"),
        "parameters": _parameters(commit.get("operationParameters", {})),
        "rows": _figures(metrics, _ROWS),
        "vectors": _figures(metrics, _VECTORS),
        "engine": commit.get("engineInfo", ""),
    }


def _camel(name: str) -> str:
    """Return a metric's name as delta-spark spells it; delta-rs writes `num_deleted_rows`."""
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def _parameters(parameters: Mapping[str, str | None]) -> str:
    """Return the parameters that are not empty, the predicate first."""
    given = {name: text for name, text in parameters.items() if text not in _NOTHING}
    predicate = _predicate(given.pop("predicate", ""))
    shown = [f"where {predicate}"] if predicate else []
    shown += [f"{name}={text}" for name, text in given.items()]
    return ", ".join(shown)


def _predicate(text: str) -> str:
    """Return a predicate without the JSON list that delta-spark wraps it in."""
    try:
        parts = parse_json(text, "a predicate")
    except FormatError:
        return text
    return " and ".join(map(str, parts)) if isinstance(parts, list) else text


def _figures(metrics: Mapping[str, str | None], wanted: Mapping[str, tuple[str, ...]]) -> str:
    shown = []
    for word, names in wanted.items():
        values = [metrics.get(name) or "" for name in names]
        if count := next(filter(None, map(whole_number, values)), 0):
            shown.append(f"{count:,} {word}")
    return ", ".join(shown)


def _iceberg_document(row: dict[str, Any]) -> dict[str, Any]:
    made = row | {"summary": dict(row["summary"] or ())}
    if row["timestamp"] is not None:  # what another engine wrote may be out of range
        made["timestamp"] = row["timestamp"].isoformat(timespec="milliseconds")
    return {name: value for name, value in made.items() if value is not None}


def _iceberg_row(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "snapshot": str(snapshot["snapshot_id"]),
        "when": snapshot.get("timestamp", "unknown")[:19].replace("T", " "),
        "operation": snapshot.get("operation"),
        "rows": format_list(
            added=snapshot.get("added_rows", 0), removed=snapshot.get("removed_rows", 0)
        ),
        "deletes": format_list(
            positions=snapshot.get("added_position_deletes", 0),
            keys=snapshot.get("added_equality_deletes", 0),
        ),
        "refs": ", ".join(snapshot.get("refs", ())),
    }


def _column(name: str) -> Column:
    """Return the column of the text; the time of the commit is omitted where there is no room."""
    is_ours = name in _STYLES
    omitted = 1 if name == COMMIT_TIMESTAMP else 0
    return Column(name, escape_controls(name), _STYLES.get(name, ""), is_ours, omitted=omitted)


def _documents(df: DataFrame, limit: int) -> list[dict[str, Any]]:
    """Return rows as Spark writes them to JSON, one more than the limit."""
    from pyspark.sql import functions  # noqa: PLC0415

    wanted = df.limit(limit + 1) if limit else df
    text = functions.to_json(functions.struct("*"), {"ignoreNullFields": "false"})
    return [json.loads(row[0]) for row in wanted.select(text).collect()]
