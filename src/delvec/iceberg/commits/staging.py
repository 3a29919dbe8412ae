"""The end of a staging branch whose changes were taken over: it begins anew at the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.errors import PlanError
from delvec.iceberg.client.named_snapshots import branch_head
from delvec.iceberg.commits.commit import change_properties
from delvec.iceberg.commits.marks import STAGING_PROPERTY, is_staging, txn_properties
from delvec.iceberg.commits.ref_commit import change_refs
from delvec.iceberg.commits.refs import mark_branch

if TYPE_CHECKING:
    from delvec.iceberg.client.catalog import LoadedTable

__all__ = ["restart_branch"]

_GONE: Final = -1  # in place of the id of a snapshot: one that no branch has any more


def restart_branch(table: LoadedTable, branch: str, target: str, until: int) -> LoadedTable:
    """Move a branch to the newest snapshot of its target; return the table.

    Its own snapshots go when snapshots expire. Files that the target has taken over are the
    target's, and stay. A staging branch of delvec's stays one. Transactions that were committed to
    the branch stay known, so that streams do not repeat them.

    Args:
        table: The table; its newest metadata are loaded.
        branch: The branch.
        target: The branch that has taken over its changes.
        until: The newest snapshot of the branch, which has no changes that it has not taken over.

    Raises:
        PlanError: The branch has newer snapshots.
        ConflictError: Others committed to the table at the same time, again and again.
    """

    def change(newest: LoadedTable, transaction: Any) -> None:  # noqa: ANN401
        metadata, name = newest.metadata, str(newest.name)
        head, goal = (branch_head(metadata, name, each) for each in (branch, target))
        if head is None or goal is None or head.id == goal.id:
            return
        if head.id != until:
            raise PlanError(
                f"{branch} of {name} has changes that {target} has not: expected snapshot {until},"
                f" found {head.id}",
                hint="resolve them first",
            )
        was_staging = is_staging(metadata, branch)
        transaction.manageSnapshots().replaceBranch(branch, goal.id).commit()
        properties: dict[str, str | None] = {}
        for key in txn_properties(metadata, branch):
            version = metadata.properties[key].partition("@")[0]
            properties[key] = f"{version}@{_GONE}"
        if was_staging:
            mark_branch(transaction, branch, staging=True)
            first = transaction.currentMetadata().ref(branch).snapshotId()
            properties[STAGING_PROPERTY + branch] = str(first)
        change_properties(transaction, properties)

    return change_refs(table, f"RESTART of {branch}", change)
