"""Branches and tags of a table: making, moving and dropping them, each in one commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from delvec.errors import InvalidArgumentError, PlanError, VerificationError
from delvec.iceberg.client.catalog import LoadedTable, iceberg_view, load_table, reload_table
from delvec.iceberg.client.files import equality_deletes
from delvec.iceberg.client.metadata import (
    MAIN,
    IcebergSnapshot,
    TableMetadata,
    branch_head,
    find_snapshot,
    require_ref,
    suggest_name,
)
from delvec.iceberg.commit import marks
from delvec.iceberg.commit.commit import Transaction, commit
from delvec.report.hints import Wording, call, format_hint
from delvec.spark import jvm

_ATTEMPTS: Final = 5
_GONE: Final = -1  # in place of the id of a snapshot: one that no branch has any more


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

    It begins at a snapshot, by default that of `main`. With `staging` it may hold equality delete
    vectors alone, which stock readers cannot read. A dry run returns the branch without its empty
    snapshot, so not at all for a table without snapshots.
    """
    _require_name(name)

    def change(newest: LoadedTable, transaction: Transaction) -> None:
        metadata = newest.metadata
        _require_unused(newest, name)
        start = find_snapshot(metadata, str(newest.name), snapshot_id=snapshot_id)
        if start is not None and not staging:
            _require_readable(newest, start, f"branch {name}")
        if start is not None:
            transaction.add(transaction.handle.manageSnapshots().createBranch(name, start.id))
        if dry_run:
            return  # an empty snapshot would be a file
        if start is None or staging:
            mark_branch(transaction, name, staging=staging)
        # Others may have dropped a branch of that name, and left its properties.
        properties = _without_branch(metadata, name)
        if staging:
            first = transaction.current.ref(name).snapshotId()
            properties[marks.STAGING_PROPERTY + name] = str(first)
        transaction.set_properties(properties)

    return _change(table, f"CREATE BRANCH {name}", change, dry_run=dry_run)


def drop_branch(table: LoadedTable, name: str, *, dry_run: bool = False) -> LoadedTable:
    """Drop a branch, and return the table without it; its snapshots go when snapshots expire."""
    if name == MAIN:
        raise InvalidArgumentError(f"{MAIN} of {table.name} cannot be dropped: every table has it")

    def change(newest: LoadedTable, transaction: Transaction) -> None:
        require_ref(newest.metadata, str(newest.name), name, is_branch=True)
        transaction.add(transaction.handle.manageSnapshots().removeBranch(name))
        transaction.set_properties(_without_branch(newest.metadata, name))

    return _change(table, f"DROP BRANCH {name}", change, dry_run=dry_run)


def create_tag(
    table: LoadedTable, name: str, *, snapshot_id: int | None = None, dry_run: bool = False
) -> LoadedTable:
    """Create a tag, by default of the newest snapshot of `main`, and return the table with it."""
    _require_name(name)

    def change(newest: LoadedTable, transaction: Transaction) -> None:
        _require_unused(newest, name)
        found = find_snapshot(newest.metadata, str(newest.name), snapshot_id=snapshot_id)
        if found is None:
            raise InvalidArgumentError(f"{newest.name} has no snapshot that a tag could name")
        transaction.add(transaction.handle.manageSnapshots().createTag(name, found.id))

    return _change(table, f"CREATE TAG {name}", change, dry_run=dry_run)


def drop_tag(table: LoadedTable, name: str, *, dry_run: bool = False) -> LoadedTable:
    def change(newest: LoadedTable, transaction: Transaction) -> None:
        require_ref(newest.metadata, str(newest.name), name, is_branch=False)
        transaction.add(transaction.handle.manageSnapshots().removeTag(name))

    return _change(table, f"DROP TAG {name}", change, dry_run=dry_run)


def fast_forward(table: LoadedTable, branch: str, to: str, *, dry_run: bool = False) -> LoadedTable:
    """Move a branch forward to what another one, or a tag, points to, and return the table.

    `to` goes on from where `branch` is; `main` may have no snapshot yet. It is refused if stock
    readers could not read the branch any more: `to` is a staging branch, or has equality delete
    vectors alone.
    """

    def change(newest: LoadedTable, transaction: Transaction) -> None:
        metadata, name = newest.metadata, str(newest.name)
        head = branch_head(metadata, name, branch)
        if to not in metadata.refs:
            raise InvalidArgumentError(
                f"{name} has no branch or tag {to!r}",
                hint=suggest_name(to, metadata.refs, "branch"),
            )
        goal = metadata.snapshots[metadata.refs[to].snapshot_id]
        if head is not None and head.id not in {each.id for each in metadata.ancestors(to)}:
            raise PlanError(
                f"{branch} of {name} cannot be moved forward to {to}: {branch} has snapshot"
                f" {head.id}, which {to} does not go on from",
                hint=f"write the changes of {to} to {branch} again",
            )
        if head is not None and head.id == goal.id:
            return
        if not marks.is_staging(metadata, branch):
            if marks.is_staging(metadata, to):
                raise PlanError(
                    f"{to} of {newest.name} is a staging branch: {branch}, moved forward to it,"
                    " could not be read by stock Iceberg",
                    hint=format_hint(
                        "{} takes over its changes", call("resolve", staging=to, target=branch)
                    ),
                )
            _require_readable(newest, goal, branch)
        transaction.add(transaction.handle.manageSnapshots().fastForwardBranch(branch, to))

    return _change(table, f"FAST FORWARD {branch} to {to}", change, dry_run=dry_run)


def rollback(
    table: LoadedTable,
    branch: str = MAIN,
    *,
    snapshot_id: int | None = None,
    timestamp: Any = None,  # noqa: ANN401 - `find_snapshot` checks it
    time_zone: str = "UTC",
    dry_run: bool = False,
) -> LoadedTable:
    """Move a branch back to one of its own earlier snapshots, and return the table.

    Schema, partition spec and properties stay as they are. The snapshot is named by its id, or is
    the one that was the branch's newest at a time; `time_zone` is for a time that names none.
    """
    if (snapshot_id is None) == (timestamp is None):
        raise InvalidArgumentError(
            f"a rollback of {table.name} goes to a snapshot or to a time: name one of them",
            hint="rollback(snapshot_id=...), or rollback(timestamp='2024-01-31 10:00:00')",
        )

    def change(newest: LoadedTable, transaction: Transaction) -> None:
        metadata, name = newest.metadata, str(newest.name)
        head = branch_head(metadata, name, branch)
        of_branch = branch if timestamp is not None else None
        wanted = {"snapshot_id": snapshot_id, "timestamp": timestamp, "time_zone": time_zone}
        goal = find_snapshot(metadata, name, branch=of_branch, **wanted)
        if goal is None or head is None or head.id == goal.id:
            return
        earlier = list(metadata.ancestors(branch))
        ids = [each.id for each in earlier]
        if goal.id not in ids:
            raise PlanError(
                f"snapshot {goal.id} of {name} does not belong to branch {branch}",
                hint=format_hint("{} lists those that do", call("history", branch=branch)),
            )
        kept = earlier[ids.index(goal.id) :]
        is_staging = marks.is_staging(metadata, branch)
        if is_staging and all(each.summary.get(marks.STAGING_SUMMARY) != branch for each in kept):
            raise PlanError(
                f"snapshot {goal.id} of {name} is older than the staging branch {branch}",
                hint=f"drop the branch and create it again: create_branch({branch!r},"
                f" snapshot_id={goal.id}, staging=True)",
            )
        manage = transaction.handle.manageSnapshots()
        is_main = branch == MAIN
        transaction.add(
            manage.rollbackTo(goal.id) if is_main else manage.replaceBranch(branch, goal.id)
        )
        transaction.set_properties(marks.after_rollback(metadata, branch, kept))

    return _change(table, f"ROLLBACK of {branch}", change, dry_run=dry_run)


def keep_staging_marks(table: LoadedTable) -> LoadedTable:
    """Commit an empty snapshot to each staging branch whose newest snapshot lacks the mark.

    Commits of others do not repeat it, so expiry of the older snapshots would lose it.
    """
    for branch in marks.staging_branches(load_table(table.spark, table.name).metadata):

        def change(newest: LoadedTable, transaction: Transaction, branch: str = branch) -> None:
            head = newest.metadata.head(branch)
            if head is None or not marks.is_staging(newest.metadata, branch):
                return
            if head.summary.get(marks.STAGING_SUMMARY) != branch:
                mark_branch(transaction, branch, staging=True)

        table = _change(table, f"MARK {branch}", change)
    return table


def remove(
    table: LoadedTable,
    snapshot_ids: Iterable[int],
    refs: Iterable[str],
    *,
    passing: Collection[str] = (),
    dry_run: bool = False,
) -> LoadedTable:
    """Remove snapshots that no other ref points to, and refs, from the very metadata of a table.

    Iceberg's own call for this refuses a table with `gc.enabled=false`, whatever is to be deleted.
    This one deletes no file; statistics of the snapshots go with them.

    A REST catalog compares no metadata here: it checks the table's UUID, removes the snapshots from
    whatever it has by then, and with them every ref that points to one. So the metadata is compared
    right before the commit, and refs are looked for after it. What is left is a ref that somebody
    makes for an expiring snapshot between the two, within one request: it vanishes unnoticed. Other
    refs that are gone then are a `VerificationError`, and no file may be deleted; but for those
    that others may remove at any time, `passing`.
    """
    removed = tuple(refs)
    root, view = jvm.view_of(table.spark), iceberg_view(table.spark)
    # An array makes longs of small numbers as well, which Python's calls would not.
    longs = jvm.array_of(table.spark, root.long, tuple(snapshot_ids))
    ids = root.java.util.HashSet(view.relocated.com.google.common.primitives.Longs.asList(longs))

    def without(builder: Any) -> Any:  # noqa: ANN401
        for ref in removed:
            builder = builder.removeRef(ref)
        return builder.removeSnapshots(ids)

    def change(_: LoadedTable, transaction: Transaction) -> None:
        transaction.amend(without)

    newest = commit(table, change, what="REMOVE SNAPSHOTS", dry_run=dry_run).table
    if not dry_run:
        _require_refs(table.metadata.refs.keys() - {*removed, *passing}, newest, table)
    return newest


def mark_branch(transaction: Transaction, branch: str, *, staging: bool) -> None:
    """Add an empty snapshot to a branch, which makes the branch if there is none."""
    append = transaction.handle.newFastAppend().toBranch(branch)
    transaction.add(append.set(marks.STAGING_SUMMARY, branch) if staging else append)


def _change(
    table: LoadedTable,
    what: str,
    change: Callable[[LoadedTable, Transaction], None],
    *,
    dry_run: bool = False,
) -> LoadedTable:
    """Commit a change of the newest metadata, and return the table with it."""
    newest = reload_table(table)
    return commit(newest, change, what=what, attempts=_ATTEMPTS, dry_run=dry_run).table


def _require_refs(expected: set[str], found: LoadedTable, before: LoadedTable) -> None:
    gone = sorted(expected - found.metadata.refs.keys(), key=lambda ref: (ref != MAIN, ref))
    if gone:
        raise VerificationError(
            f"{found.name} has lost {', '.join(gone)} while snapshots were removed: somebody"
            " committed at the same moment. No file was deleted",
            hint="unless somebody dropped it: register the table again from the metadata before,"
            f" {before.current.metadataFileLocation()}",
        )


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


def _require_readable(table: LoadedTable, snapshot: IcebergSnapshot, what: str) -> None:
    """Refuse a snapshot with equality delete vectors alone for a branch that others read."""
    if snapshot.summary.get("total-equality-deletes") == "0":
        return
    found = [each for each in equality_deletes(table, snapshot.id) if each.is_vector]
    if found:
        raise PlanError(
            f"snapshot {snapshot.id} of {table.name} has {len(found)} equality delete vectors, such"
            f" as {found[0].path}: stock Iceberg could not read {what} with it",
            hint=format_hint(
                "name another snapshot, or make it a staging branch: {}",
                Wording("staging=True", "--for-staging"),
            ),
        )


def _without_branch(metadata: TableMetadata, name: str) -> dict[str, str | None]:
    """Return the properties that are about a branch, to be removed."""
    mark = marks.STAGING_PROPERTY + name
    staging = [mark] if mark in metadata.properties else []
    progress = marks.resolved_properties(metadata, name)
    return dict.fromkeys([*staging, *progress, *marks.txn_properties(metadata, name)])


def restart_branch(table: LoadedTable, branch: str, target: str, until: int) -> LoadedTable:
    """Move a branch to the newest snapshot of its target; return the table.

    Its own snapshots go when snapshots expire. Files that the target has taken over are the
    target's, and stay. A staging branch of delvec's stays one. Transactions that were committed to
    the branch stay known, so that streams do not repeat them.

    `until` is the newest snapshot of the branch: it has no changes that `target`, which has taken
    them over, lacks.
    """

    def change(newest: LoadedTable, transaction: Transaction) -> None:
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
        was_staging = marks.is_staging(metadata, branch)
        transaction.add(transaction.handle.manageSnapshots().replaceBranch(branch, goal.id))
        properties: dict[str, str | None] = {}
        for key in marks.txn_properties(metadata, branch):
            version = metadata.properties[key].partition("@")[0]
            properties[key] = f"{version}@{_GONE}"
        if was_staging:
            mark_branch(transaction, branch, staging=True)
            first = transaction.current.ref(branch).snapshotId()
            properties[marks.STAGING_PROPERTY + branch] = str(first)
        transaction.set_properties(properties)

    return _change(table, f"RESTART of {branch}", change)
