"""A staging branch all of whose changes were taken over begins anew at its target."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from delvec.errors import PlanError
from delvec.iceberg.client.named_snapshots import branch_head
from delvec.iceberg.commits.marks import STAGING_SUMMARY
from delvec.iceberg.commits.staging import restart_branch
from delvec.iceberg.resolve.plan import begin

if TYPE_CHECKING:
    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.resolve.choices import Choices
    from delvec.iceberg.resolve.report import ResolveReport

__all__ = ["can_restart", "restarted"]


def can_restart(table: LoadedTable, choices: Choices) -> bool:
    """Tell whether a staging branch is elsewhere than at its target, empty snapshots apart."""
    metadata, name, staging = table.metadata, str(table.name), choices.staging
    if staging is None:
        return False
    head, goal = (branch_head(metadata, name, each) for each in (staging, choices.target))
    if head is None or goal is None or head.id == goal.id:
        return False
    is_mark = head.summary.get(STAGING_SUMMARY) == staging and head.parent_id == goal.id
    return not is_mark


def restarted(table: LoadedTable, choices: Choices, report: ResolveReport) -> ResolveReport:
    """Move a staging branch to its target, unless it has new changes; return the report with that.

    Raises:
        ConflictError: Others committed to the table at the same time, again and again.
    """
    staging, target = choices.staging, choices.target
    if staging is None or not can_restart(table, choices):
        return report
    work = begin(table, target, staging, None)
    head = table.metadata.head(staging)
    note = f"{staging} was not moved to {target}: it has new changes."
    if head is not None and (work.staged is None or work.staged.is_empty):
        try:
            restart_branch(table, staging, target, head.id)
        except PlanError:  # others have committed to it just now
            pass
        else:
            note = f"{staging} begins anew at {target}."
    return replace(report, notes=(*report.notes, note))
