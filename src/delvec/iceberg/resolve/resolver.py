"""Resolving equality deletes: rows that have a deleted key are deleted by position."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import DelvecError, UnsupportedFeatureError
from delvec.iceberg.client.catalog import load_table
from delvec.iceberg.deletes.writable import require_writable
from delvec.iceberg.resolve.plan import begin
from delvec.iceberg.resolve.report import ResolveReport
from delvec.iceberg.resolve.step import Step
from delvec.iceberg.search.index_update import update_index
from delvec.iceberg.search.key_index import open_index
from delvec.report.phases import Stopwatch
from delvec.spark.interrupts import interruptible

if TYPE_CHECKING:
    from collections.abc import Callable

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.resolve.choices import Choices

__all__ = ["has_work", "resolve"]

_LOWEST_FORMAT: Final = 2


def resolve(
    table: LoadedTable,
    choices: Choices,
    between: Callable[[], None] = lambda: None,
) -> ResolveReport:
    """Resolve equality deletes until none are left, in one or more commits.

    The time grows with the key columns of the data files that may have a deleted key. The driver
    holds 1 kB for each of these files and for each file that is taken over, the vectors of files
    with found rows, and 24 bytes for each 64 rows with one. After a failure all that was committed
    stays, and the next call goes on from there.

    Args:
        table: The table.
        choices: How.
        between: Is called before each commit; raises to stop.

    Raises:
        InvalidArgumentError: There is no such branch.
        UnsupportedFeatureError: The table is of format 1.
        PlanError: The changes of the staging branch cannot be taken over; the error says why.
        ConflictError: Others changed the same files again and again.
        VerificationError: The result is not what it should be; it was not published.
        CommitStateUnknownError: The commit may have happened or not.
    """
    _require_format(table)
    require_writable(table)
    watch = Stopwatch()
    report = ResolveReport(
        str(table.name),
        choices.target,
        choices.staging,
        dry_run=choices.dry_run,
    )
    with interruptible(table.spark):
        while True:
            step = Step(table, choices, watch, between)
            report = _added(report, step.run())
            if choices.dry_run or not step.left or not report.commits:
                break
            table = load_table(table.spark, table.name)
    if report.commits:
        report = _with_index(report, choices, table, watch)
    return replace(report, phases=watch.seconds)


def has_work(table: LoadedTable, choices: Choices) -> bool:
    """Tell whether there is something to resolve; reads manifests only.

    A service looks every few seconds, and should not take the lock for nothing, by two commits.
    """
    _require_format(table)
    require_writable(table)
    return not begin(table, choices.target, choices.staging, choices.max_snapshots).is_empty


def _with_index(
    report: ResolveReport, choices: Choices, table: LoadedTable, watch: Stopwatch
) -> ResolveReport:
    """Bring the index up to date with what was committed; it is only ever a copy."""
    snapshot_id = report.snapshot_id
    if choices.index == "join" or not choices.keys or snapshot_id is None:
        return report
    try:
        with watch.phase("index"):
            table = load_table(table.spark, table.name)
            ids = choices.key_ids(table)  # refused if others have dropped a key column meanwhile
            index = open_index(table, ids)
            if index is None:
                return report
            if report.data_files_added:  # vectors change nothing that the index says
                index = update_index(table, snapshot_id, ids)
    except DelvecError as error:
        note = f"The index was not brought up to date, the next call will: {error.describe()}"
        return replace(report, notes=(*report.notes, note))
    return replace(report, index_rows=index.rows)


def _added(report: ResolveReport, step: ResolveReport) -> ResolveReport:
    """Return the report of all commits so far."""
    summed = (
        "commits",
        "staged_snapshots",
        "delete_files",
        "key_vectors",
        "keys",
        "absent",
        "rows_deleted",
        "data_files_added",
        "rows_added",
        "data_files_removed",
        "vectors_added",
        "vectors_replaced",
        "vector_bytes",
        "conflicts",
    )
    totals: dict[str, Any] = {name: getattr(report, name) + getattr(step, name) for name in summed}
    return replace(
        report,
        **totals,
        snapshot_id=report.snapshot_id if step.snapshot_id is None else step.snapshot_id,
        waiting_snapshots=step.waiting_snapshots,
        oldest_staged_ms=report.oldest_staged_ms or step.oldest_staged_ms,
        notes=tuple(dict.fromkeys((*report.notes, *step.notes))),
        verified=_weaker(report.verified, step.verified) if step.commits else report.verified,
        strategy=step.strategy or report.strategy,
        reason=step.reason or report.reason,
    )


def _weaker(one: str, other: str) -> str:
    """Return what holds for both of two commits; the first is none before any."""
    return "counts" if {one, other} == {"counts", "rows"} else other


def _require_format(table: LoadedTable) -> None:
    found = table.metadata.format_version
    if found < _LOWEST_FORMAT:
        raise UnsupportedFeatureError(
            f"{table.name} is of format version {found}, which has no row-level deletes: expected 2"
            " or 3",
            feature=f"format version {found}",
            hint=f"ALTER TABLE {table.name} SET TBLPROPERTIES ('format-version' = '3')",
        )
