"""`delvec history`: what was done to a table, newest first."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.main import command as delvec_command
from delvec.cli.options import branch_option, catalog_options, storage_options, table_argument
from delvec.cli.output import Column, used_columns, visible
from delvec.cli.spark_tables import delta_storage, opened_iceberg
from delvec.cli.table_kinds import is_delta, refuse_options
from delvec.delta.log.history import history_rows
from delvec.documents import parse_json, whole_number
from delvec.errors import FormatError
from delvec.report.figures import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.cli.output import Output

__all__ = ["command"]

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
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NOTHING: Final = ("", "[]", "{}", "null", None)


@delvec_command("history")
@table_argument
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="The newest so many commits."
)
@branch_option
@storage_options
@catalog_options
def command(
    output: Output,
    table: str,
    *,
    limit: int | None,
    branch: str,
    options: dict[str, str],
    iceberg: dict[str, Any],
) -> None:
    """Show what was done to TABLE: commits still in its log, or snapshots, newest first.

    TABLE is the path or URI of a Delta table, whose log alone is read, or the name of an Iceberg
    table in a catalog.

    \b
    delvec history /lake/orders --limit 20
    delvec history lake.db.orders --branch changes
    """  # noqa: D301
    if not is_delta(table):
        from delvec.cli.iceberg_history import show_snapshots  # noqa: PLC0415

        refuse_options("a Delta table", "--storage-option")
        with opened_iceberg(output, table, iceberg) as (_, target):
            show_snapshots(output, target, limit, branch)
        return
    refuse_options("an Iceberg table", "--branch")
    with delta_storage(table, options) as storage:
        # No Arrow: a table of Python values imports pandas, a quarter of a second.
        commits = [_document(row) for row in history_rows(storage, limit)]
    _show(output, storage.root, commits, limit)
    output.result({"table": storage.root, "commits": commits})


def _document(row: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON document of a commit: every field that it has."""
    maps = ("operationParameters", "operationMetrics")
    row |= {name: dict(row[name]) for name in maps if row[name] is not None}
    moment = _EPOCH + timedelta(microseconds=row["timestamp"])
    row["timestamp"] = moment.isoformat(timespec="milliseconds")
    return {name: value for name, value in row.items() if value is not None}


def _show(output: Output, table: str, commits: list[dict[str, Any]], limit: int | None) -> None:
    output.note((visible(table), "bold"), f": {counted(len(commits), 'commit')}")
    rows = [_row(commit) for commit in commits]
    if rows:
        output.table(used_columns(_COLUMNS, rows), rows)
    oldest = commits[-1]["version"] if commits else None
    if oldest and len(commits) == limit:
        output.note(("Older commits are left out; without --limit all are shown.", "dim"))
    elif oldest:
        output.note((f"Commits before version {oldest:,} were cleaned up.", "dim"))


def _row(commit: dict[str, Any]) -> dict[str, Any]:
    """Return the table row of a commit."""
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
