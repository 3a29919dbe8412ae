"""Resolving equality deletes until none are left, and then beginning the staging branch again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from delvec.errors import DelvecError, PlanError, committed_before
from delvec.iceberg.client.catalog import LoadedTable, load_table
from delvec.iceberg.client.metadata import branch_head
from delvec.iceberg.commit.branch_commit import require_row_deletes, require_writable
from delvec.iceberg.commit.marks import STAGING_SUMMARY
from delvec.iceberg.commit.refs import restart_branch
from delvec.iceberg.resolve.plan import ResolveOptions, ResolvePlan, plan_resolve
from delvec.iceberg.resolve.report import ResolveReport
from delvec.iceberg.resolve.step import Step
from delvec.iceberg.search.index_update import update_index
from delvec.iceberg.search.key_index import open_index
from delvec.report.rendering import Stopwatch
from delvec.spark.jobs import interruptible


def resolve(
    table: LoadedTable,
    choices: ResolveOptions,
    between: Callable[[], None] = lambda: None,
    plan: ResolvePlan | None = None,
) -> ResolveReport:
    """Resolve equality deletes until none are left, in one or more commits.

    The first carries out `plan` if nobody has committed since: who looked for work has made it.

    The time grows with the key columns of the data files that may have a deleted key. The driver
    holds 1 kB for each of these files and for each file that is taken over, the vectors of files
    with found rows, and 24 bytes for each 64 rows with one. After a failure all that was committed
    stays, and the next call goes on from there.
    """
    watch = Stopwatch()
    if plan is not None and not plan.is_newest(table, choices.staging):
        plan = None
    report = ResolveReport(
        str(table.name), choices.target, choices.staging, dry_run=choices.dry_run
    )

    def so_far() -> ResolveReport | None:
        return replace(report, phases=watch.seconds) if report.commits else None

    with interruptible(table.spark), committed_before(so_far):
        while True:
            step = Step(table, choices, watch, between, plan)
            report, plan = _added(report, step.run()), None
            if choices.dry_run or not step.left or not report.commits:
                break
            table = load_table(table.spark, table.name)
    if report.commits:
        report = _with_index(report, choices, table, watch)
    return replace(report, phases=watch.seconds)


def plan_first_step(table: LoadedTable, choices: ResolveOptions) -> ResolvePlan:
    """Plan the first commit; reads manifests only.

    A service looks every few seconds, and should not take the lock for nothing, by two commits.
    """
    require_row_deletes(table)
    require_writable(table)
    return plan_resolve(table, choices.target, choices.staging, choices.max_snapshots)


def can_restart(table: LoadedTable, choices: ResolveOptions) -> bool:
    """Tell whether a staging branch is elsewhere than at its target, empty snapshots apart."""
    metadata, name, staging = table.metadata, str(table.name), choices.staging
    if staging is None:
        return False
    head, goal = (branch_head(metadata, name, each) for each in (staging, choices.target))
    if head is None or goal is None or head.id == goal.id:
        return False
    is_mark = head.summary.get(STAGING_SUMMARY) == staging and head.parent_id == goal.id
    return not is_mark


def restart_if_resolved(
    table: LoadedTable, choices: ResolveOptions, report: ResolveReport
) -> ResolveReport:
    """Move a staging branch to its target, unless it has new changes; return the report."""
    staging, target = choices.staging, choices.target
    if staging is None or not can_restart(table, choices):
        return report
    work = plan_resolve(table, target, staging, None)
    head = table.metadata.head(staging)
    note = f"{staging} was not moved to {target}: it has new changes."
    if head is not None and (work.staged is None or work.staged.is_empty):
        try:
            restart_branch(table, staging, target, head.id)
        except PlanError:  # others have committed to it just now
            pass
        else:
            note = f"{staging} begins again at {target}."
    return replace(report, notes=(*report.notes, note))


def _with_index(
    report: ResolveReport, choices: ResolveOptions, table: LoadedTable, watch: Stopwatch
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
    counts = [each.name for each in fields(report) if each.type == "int"]
    totals: dict[str, Any] = {name: getattr(report, name) + getattr(step, name) for name in counts}
    totals["waiting_snapshots"] = step.waiting_snapshots  # all other counts add up
    return replace(
        report,
        **totals,
        snapshot_id=report.snapshot_id if step.snapshot_id is None else step.snapshot_id,
        oldest_staged_ms=report.oldest_staged_ms or step.oldest_staged_ms,
        notes=tuple(dict.fromkeys((*report.notes, *step.notes))),
        verified=_weaker(report.verified, step.verified) if step.commits else report.verified,
        strategy=step.strategy or report.strategy,
        reason=step.reason or report.reason,
    )


def _weaker(one: str, other: str) -> str:
    """Return what holds for both of two commits; the first is none before any."""
    return "counts" if {one, other} == {"counts", "rows"} else other
