"""Branches and tags of a table: making, moving and dropping them, each in one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.errors import InvalidArgumentError, PlanError
from delvec.iceberg.client.catalog import load_table
from delvec.iceberg.client.delete_files import equality_deletes
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.client.named_snapshots import branch_head, near, require_ref, snapshot_of
from delvec.iceberg.commits.commit import change_properties
from delvec.iceberg.commits.marks import (
    STAGING_PROPERTY,
    STAGING_SUMMARY,
    is_staging,
    staging_branches,
    txn_properties,
    txns_after_rollback,
)
from delvec.iceberg.commits.progress import resolved_after_rollback, resolved_properties
from delvec.iceberg.commits.ref_commit import change_refs
from delvec.report.wordings import Wording, call, worded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata

__all__ = [
    "create_branch",
    "create_tag",
    "drop_branch",
    "drop_tag",
    "fast_forward",
    "is_staging",
    "keep_staging_marks",
    "mark_branch",
    "rollback",
]


def create_branch(
    table: LoadedTable,
    name: str,
    *,
    snapshot_id: int | None = None,
    staging: bool = False,
    dry_run: bool = False,
) -> LoadedTable:
    """Create a branch, and return the table with it.

    A staging branch, and any branch of a table without snapshots, begins with an empty snapshot.

    Args:
        table: The table; its newest metadata are loaded.
        name: The name, which no branch or tag has.
        snapshot_id: The snapshot that it begins at; by default that of `main`.
        staging: Whether it may hold equality delete vectors alone, which stock readers cannot read.
        dry_run: Whether to check all of that only; see `change_refs`. The branch is returned
            without its empty snapshot, so not at all for a table without snapshots.

    Raises:
        InvalidArgumentError: The name is taken or empty, or there is no such snapshot.
        PlanError: Stock readers could not read the snapshot, and the branch is not for staging.
        ConflictError: Somebody else made one of that name meanwhile, or committed again and again.
    """
    _require_name(name)

    def change(newest: LoadedTable, transaction: Any) -> None:  # noqa: ANN401
        metadata = newest.metadata
        _require_unused(newest, name)
        start = snapshot_of(metadata, str(newest.name), snapshot_id=snapshot_id)
        if start is not None and not staging:
            _require_readable(newest, start, f"branch {name}")
        if start is not None:
            transaction.manageSnapshots().createBranch(name, start.id).commit()
        if dry_run:
            return  # an empty snapshot would be a file
        if start is None or staging:
            mark_branch(transaction, name, staging=staging)
        # Others may have dropped a branch of that name, and left its properties.
        properties = _without_branch(metadata, name)
        if staging:
            first = transaction.currentMetadata().ref(name).snapshotId()
            properties[STAGING_PROPERTY + name] = str(first)
        change_properties(transaction, properties)

    return change_refs(table, f"CREATE BRANCH {name}", change, dry_run=dry_run)


def drop_branch(table: LoadedTable, name: str, *, dry_run: bool = False) -> LoadedTable:
    """Drop a branch, and return the table without it; its snapshots go when snapshots expire.

    Raises:
        InvalidArgumentError: There is no such branch, or it is `main` or a tag.
        ConflictError: Others committed to the table at the same time, again and again.
    """
    if name == MAIN:
        raise InvalidArgumentError(f"{MAIN} of {table.name} cannot be dropped: every table has it")

    def change(newest: LoadedTable, transaction: Any) -> None:  # noqa: ANN401
        require_ref(newest.metadata, str(newest.name), name, is_branch=True)
        transaction.manageSnapshots().removeBranch(name).commit()
        change_properties(transaction, _without_branch(newest.metadata, name))

    return change_refs(table, f"DROP BRANCH {name}", change, dry_run=dry_run)


def create_tag(
    table: LoadedTable, name: str, *, snapshot_id: int | None = None, dry_run: bool = False
) -> LoadedTable:
    """Create a tag, by default of the newest snapshot of `main`, and return the table with it.

    Raises:
        InvalidArgumentError: The name is taken or empty, or there is no such snapshot.
        ConflictError: Somebody else made one of that name meanwhile, or committed again and again.
    """
    _require_name(name)

    def change(newest: LoadedTable, transaction: Any) -> None:  # noqa: ANN401
        _require_unused(newest, name)
        found = snapshot_of(newest.metadata, str(newest.name), snapshot_id=snapshot_id)
        if found is None:
            raise InvalidArgumentError(f"{newest.name} has no snapshot that a tag could name")
        transaction.manageSnapshots().createTag(name, found.id).commit()

    return change_refs(table, f"CREATE TAG {name}", change, dry_run=dry_run)


def drop_tag(table: LoadedTable, name: str, *, dry_run: bool = False) -> LoadedTable:
    """Drop a tag, and return the table without it.

    Raises:
        InvalidArgumentError: There is no such tag, or it is a branch.
        ConflictError: Others committed to the table at the same time, again and again.
    """

    def change(newest: LoadedTable, transaction: Any) -> None:  # noqa: ANN401
        require_ref(newest.metadata, str(newest.name), name, is_branch=False)
        transaction.manageSnapshots().removeTag(name).commit()

    return change_refs(table, f"DROP TAG {name}", change, dry_run=dry_run)


def fast_forward(table: LoadedTable, branch: str, to: str, *, dry_run: bool = False) -> LoadedTable:
    """Move a branch forward to what another one, or a tag, points to, and return the table.

    Args:
        table: The table; its newest metadata are loaded.
        branch: The branch to move; `main` may have no snapshot yet.
        to: The branch or tag that goes on from where `branch` is.
        dry_run: Whether to check all of that only; see `change_refs`.

    Raises:
        InvalidArgumentError: There is no such branch or tag.
        PlanError: `branch` has snapshots that `to` has not, or stock readers could not read it any
            more: `to` is a staging branch or has equality delete vectors alone.
        ConflictError: Others committed to the table at the same time, again and again.
    """

    def change(newest: LoadedTable, transaction: Any) -> None:  # noqa: ANN401
        metadata, name = newest.metadata, str(newest.name)
        head = branch_head(metadata, name, branch)
        if to not in metadata.refs:
            raise InvalidArgumentError(
                f"{name} has no branch or tag {to!r}", hint=near(to, metadata.refs, "branch")
            )
        goal = metadata.snapshots[metadata.refs[to].snapshot_id]
        if head is not None and head.id not in {each.id for each in metadata.ancestors(to)}:
            raise PlanError(
                f"{branch} of {name} cannot be moved forward to {to}: {branch} has snapshot"
                f" {head.id}, which {to} does not go on from",
                hint=f"write the changes of {to} to {branch} anew",
            )
        if head is not None and head.id == goal.id:
            return
        if not is_staging(metadata, branch):
            _require_no_staging(newest, branch, to)
            _require_readable(newest, goal, branch)
        transaction.manageSnapshots().fastForwardBranch(branch, to).commit()

    return change_refs(table, f"FAST FORWARD {branch} to {to}", change, dry_run=dry_run)


def rollback(
    table: LoadedTable,
    branch: str = MAIN,
    *,
    snapshot_id: int | None = None,
    timestamp: Any = None,  # noqa: ANN401 - `snapshot_of` checks it
    time_zone: str = "UTC",
    dry_run: bool = False,
) -> LoadedTable:
    """Move a branch back to one of its own earlier snapshots, and return the table.

    Schema, partition spec and properties stay as they are.

    Args:
        table: The table; its newest metadata are loaded.
        branch: The branch.
        snapshot_id: The snapshot, of this branch.
        timestamp: Instead: a time; the snapshot that was the branch's newest then.
        time_zone: The zone of a timestamp that names none.
        dry_run: Whether to check all of that only; see `change_refs`.

    Raises:
        InvalidArgumentError: There is no such branch or snapshot, or not exactly one is named.
        PlanError: The snapshot does not belong to the branch, or is older than a staging branch.
        ConflictError: Others committed to the table at the same time, again and again.
    """
    if (snapshot_id is None) == (timestamp is None):
        raise InvalidArgumentError(
            f"a rollback of {table.name} goes to a snapshot or to a time: name one of them",
            hint="rollback(snapshot_id=...), or rollback(timestamp='2024-01-31 10:00:00')",
        )

    def change(newest: LoadedTable, transaction: Any) -> None:  # noqa: ANN401
        metadata, name = newest.metadata, str(newest.name)
        head = branch_head(metadata, name, branch)
        of_branch = branch if timestamp is not None else None
        goal = snapshot_of(
            metadata,
            name,
            branch=of_branch,
            snapshot_id=snapshot_id,
            timestamp=timestamp,
            time_zone=time_zone,
        )
        if goal is None or head is None or head.id == goal.id:
            return
        earlier = list(metadata.ancestors(branch))
        ids = [each.id for each in earlier]
        if goal.id not in ids:
            raise PlanError(
                f"snapshot {goal.id} of {name} does not belong to branch {branch}",
                hint=worded("{} lists those that do", call("history", branch=branch)),
            )
        kept = earlier[ids.index(goal.id) :]
        if is_staging(metadata, branch):
            _require_marked(newest, branch, kept)
        manage = transaction.manageSnapshots()
        if branch == MAIN:
            manage.rollbackTo(goal.id).commit()
        else:
            manage.replaceBranch(branch, goal.id).commit()
        change_properties(
            transaction,
            {
                **txns_after_rollback(metadata, branch, kept),
                **resolved_after_rollback(metadata, branch, kept),
            },
        )

    return change_refs(table, f"ROLLBACK of {branch}", change, dry_run=dry_run)


def keep_staging_marks(table: LoadedTable) -> LoadedTable:
    """Commit an empty snapshot to each staging branch whose newest snapshot lacks the mark.

    Commits of others do not repeat it, so expiry of the older snapshots would lose it.
    """
    for branch in staging_branches(load_table(table.spark, table.name).metadata):

        def change(newest: LoadedTable, transaction: Any, branch: str = branch) -> None:  # noqa: ANN401
            head = newest.metadata.head(branch)
            if head is None or not is_staging(newest.metadata, branch):
                return
            if head.summary.get(STAGING_SUMMARY) != branch:
                mark_branch(transaction, branch, staging=True)

        table = change_refs(table, f"MARK {branch}", change)
    return table


def mark_branch(transaction: Any, branch: str, *, staging: bool) -> None:  # noqa: ANN401
    """Add an empty snapshot to a branch, which makes the branch if there is none."""
    append = transaction.newFastAppend().toBranch(branch)
    if staging:
        append = append.set(STAGING_SUMMARY, branch)
    append.commit()


def _require_name(name: str) -> None:
    if not name or not name.strip():
        raise InvalidArgumentError("the name of a branch or tag must not be empty")


def _require_unused(table: LoadedTable, name: str) -> None:
    found = table.metadata.refs.get(name)
    if found is None and name != MAIN:
        return
    kind = "branch" if found is None or found.is_branch else "tag"
    raise InvalidArgumentError(
        f"{table.name} has a {kind} {name!r} already", hint="drop it first, or take another name"
    )


def _require_no_staging(table: LoadedTable, branch: str, to: str) -> None:
    if is_staging(table.metadata, to):
        raise PlanError(
            f"{to} of {table.name} is a staging branch: {branch}, moved forward to it, could not be"
            " read by stock Iceberg",
            hint=worded("{} takes over its changes", call("resolve", staging=to, target=branch)),
        )


def _require_readable(table: LoadedTable, snapshot: IcebergSnapshot, what: str) -> None:
    """Refuse a snapshot with equality delete vectors alone for a branch that others read."""
    if snapshot.summary.get("total-equality-deletes") == "0":
        return
    found = [each for each in equality_deletes(table, snapshot.id) if each.is_vector]
    if found:
        raise PlanError(
            f"snapshot {snapshot.id} of {table.name} has {len(found)} equality delete vectors, such"
            f" as {found[0].path}: stock Iceberg could not read {what} with it",
            hint=worded(
                "name another snapshot, or make it a staging branch: {}",
                Wording("staging=True", "--for-staging"),
            ),
        )


def _require_marked(table: LoadedTable, branch: str, kept: Sequence[IcebergSnapshot]) -> None:
    """Refuse a rollback to a snapshot from before a branch became a staging branch."""
    if any(each.summary.get(STAGING_SUMMARY) == branch for each in kept):
        return
    raise PlanError(
        f"snapshot {kept[0].id} of {table.name} is older than the staging branch {branch}",
        hint=f"drop the branch and create it anew: create_branch({branch!r},"
        f" snapshot_id={kept[0].id}, staging=True)",
    )


def _without_branch(metadata: TableMetadata, name: str) -> dict[str, str | None]:
    """Return the properties that are about a branch, to be removed."""
    mark = STAGING_PROPERTY + name
    marks = [mark] if mark in metadata.properties else []
    progress = resolved_properties(metadata, name)
    return dict.fromkeys([*marks, *progress, *txn_properties(metadata, name)])
