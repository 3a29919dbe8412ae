"""Resolving equality deletes, one commit after the other, until none are left.

A commit resolves a fixed set of deletes. What was found stays right whatever others commit: a
position in a data file never changes its row. So after a lost race only data files that are new
are searched, vectors are united again, and data files that are gone drop out. Only if a branch was
rolled back, or a delete of the set is gone, all begins again.

New deleted rows are united with those that a data file has. Exactly one vector of a data file is
left, or, in tables of format 2, one position-delete file that is about it alone. A data file
without a row left is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import pyarrow as pa

from delvec import errors
from delvec.iceberg.client.catalog import LoadedTable, load_table
from delvec.iceberg.client.files import EqualityDeleteFile
from delvec.iceberg.client.metadata import branch_head
from delvec.iceberg.commit.branch_commit import commit_change, require_row_deletes, require_writable
from delvec.iceberg.commit.commit import Committed, RowChange
from delvec.iceberg.commit.marks import STAGING_SUMMARY, StagedProgress
from delvec.iceberg.commit.refs import restart_branch
from delvec.iceberg.deletes.positions import (
    MergedPositions,
    StoredPositions,
    merge_positions,
    write_position_vectors,
)
from delvec.iceberg.resolve.find import FoundRows, StagedPositions
from delvec.iceberg.resolve.plan import ResolveOptions, ResolvePlan, plan_resolve
from delvec.iceberg.resolve.report import ResolveReport
from delvec.iceberg.resolve.verify import (
    expected_sums,
    require_balance,
    require_deletes,
    require_sums,
    require_unique,
)
from delvec.iceberg.search.index_update import update_index
from delvec.iceberg.search.key_index import open_index
from delvec.report.rendering import Stopwatch
from delvec.spark.engine import open_storage
from delvec.spark.jobs import describe_jobs, interruptible
from delvec.storage.listed_files import local_path
from delvec.storage.uncommitted import UncommittedFiles
from delvec.vector import Bitmap

_ATTEMPTS: Final = 10
_COUNTED: Final = (
    "Rows were verified by counts only: the staging branch deletes rows of the target by position."
)


@dataclass(frozen=True, eq=False)
class MergedFiles:
    """The data files of a target, and those that it takes over, with their deleted rows."""

    target: MergedPositions = field(default_factory=MergedPositions)
    staged: MergedPositions = field(default_factory=MergedPositions)

    @property
    def taken(self) -> tuple[str, ...]:
        """The paths of data files that are taken over: those with rows left."""
        gone = set(self.staged.whole)
        return tuple(path for path in self.staged.files if path not in gone)

    @property
    def taken_rows(self) -> int:
        """How many live rows these have."""
        physical = sum(self.staged.files[path].row_count for path in self.taken)
        return physical - sum(each.cardinality for each in self.staged.vectors.values())

    def balance(self, resolved: Sequence[EqualityDeleteFile]) -> dict[str, int]:
        """Return how the totals of the target change, with the deletes by key that are removed."""
        target, staged = self.target, self.staged
        vectors = (*target.vectors.values(), *staged.vectors.values())
        replaced = (delete.record_count for delete in target.replaced)
        added = sum(staged.files[path].row_count for path in self.taken)
        removed = sum(target.files[path].row_count for path in target.whole)
        return {
            "total-records": added - removed,  # deleted rows included
            "total-position-deletes": sum(each.cardinality for each in vectors) - sum(replaced),
            "total-equality-deletes": -sum(each.record_count for each in resolved),
            "total-data-files": len(self.taken) - len(target.whole),
        }


class Step:
    """One commit; `left` tells afterwards how many staged snapshots wait for another."""

    def __init__(
        self,
        table: LoadedTable,
        choices: ResolveOptions,
        watch: Stopwatch,
        between: Callable[[], None],
        plan: ResolvePlan | None = None,
    ) -> None:
        self._table, self._choices = table, choices
        self._watch, self._between = watch, between
        self._work = plan
        self._found = FoundRows()
        self.left = 0

    def run(self) -> ResolveReport:
        """Resolve, and search again after concurrent commits."""
        lost: errors.DelvecError
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._table = load_table(self._table.spark, self._table.name)
            head = self._head
            try:
                return replace(self._resolve(), conflicts=attempt)
            except errors.LockedError:
                raise
            except (errors.ConflictError, errors.PlanError) as error:
                newest = load_table(self._table.spark, self._table.name)
                now = newest.metadata.head(self._choices.target)
                replaced = newest.metadata.uuid != self._table.metadata.uuid
                if replaced or (now and now.id) == head:
                    raise
                lost = error
        raise errors.ConflictError(
            f"others committed to {self._choices.target} of {self._table.name} at the same time,"
            f" {_ATTEMPTS} times in a row: {lost.describe()}",
            hint="run it again",
        ) from lost

    @property
    def _head(self) -> int | None:
        found = self._table.metadata.head(self._choices.target)
        return None if found is None else found.id

    def _resolve(self) -> ResolveReport:
        with self._phase("plan"):
            work = self._planned()
        self.left = work.waiting
        if work.is_empty:
            return self._report(work)
        self._found.search(self._table, self._head, work, self._choices, self._phase)
        with self._phase("merge"):
            merged = self._merge(work)
        report = self._counted(work, merged)
        if self._choices.dry_run:
            return report
        return self._store(work, merged, report)

    def _planned(self) -> ResolvePlan:
        """Return the work as it was begun, if it is still to be done."""
        choices = self._choices
        if self._work is None or not self._work.holds_for(self._table, choices.staging):
            self._work = plan_resolve(
                self._table, choices.target, choices.staging, choices.max_snapshots
            )
            self._found = FoundRows()
        return self._work

    def _merge(self, work: ResolvePlan) -> MergedFiles:
        staged, hits, head = work.staged, self._found.hits, self._head
        if staged is None:
            return MergedFiles(
                MergedPositions() if head is None else merge_positions(self._table, head, hits)
            )
        target = MergedPositions()
        if head is not None:
            own = {path: hit for path, hit in hits.items() if path not in staged.data}
            positions = StagedPositions(self._table, head, staged, self._choices)
            for path, deleted in positions.deleted().items():
                own[path] = own[path] | deleted if path in own else deleted
            removed = positions.removed(hits if work.own else ())
            target = merge_positions(self._table, head, own, whole=removed)
        if not staged.data:
            return MergedFiles(target)
        new = {path: hits.get(path, Bitmap()) for path in staged.data}
        return MergedFiles(target, merge_positions(self._table, staged.head.id, new, complete=True))

    def _store(
        self, work: ResolvePlan, merged: MergedFiles, report: ResolveReport
    ) -> ResolveReport:
        storage = open_storage(self._table.spark, local_path(self._table.metadata.location))
        with UncommittedFiles(storage) as uncommitted:
            with self._phase("write"):
                parts = (merged.target, merged.staged)
                files = [each.files[path] for each in parts for path in each.vectors]
                vectors = [vector for each in parts for vector in each.vectors.values()]
                stored = write_position_vectors(self._table, files, vectors, storage, uncommitted)
            self._between()
            uncommitted.keep()
            try:
                with self._phase("commit"):
                    done = self._commit(work, merged, stored)
            except (errors.ConflictError, errors.PlanError, errors.VerificationError):
                uncommitted.discard()
                raise
        return replace(report, snapshot_id=done.snapshot_id, commits=1, vector_bytes=stored.bytes)

    def _commit(self, work: ResolvePlan, merged: MergedFiles, stored: StoredPositions) -> Committed:
        staged, choices = work.staged, self._choices
        added = [] if staged is None else [staged.data[path] for path in merged.taken]
        replaced = [each.key for each in merged.target.replaced] + [each.path for each in work.own]
        change = RowChange(
            data_files=pa.array(added, pa.string()),
            delete_files=stored.delete_files,
            removed_data=pa.array(merged.target.whole, pa.string()),
            removed_deletes=pa.array(replaced, pa.string()),
            data_with_new_deletes=pa.array(merged.target.vectors, pa.string()),
            summary={
                "delvec.operation": "resolve",
                "delvec.resolved-equality-deletes": str(len(work.deletes)),
            },
        )
        resolved = None
        if staged is not None and choices.staging is not None:
            last = staged.head
            resolved = StagedProgress(
                choices.staging, last.id, last.sequence_number, staged.data_files
            )
        return commit_change(
            self._table,
            choices.target,
            change,
            computed_on=self._head,
            resolved=resolved,
            in_place=resolved is None,
            verify=self._verifier(work, merged),
        )

    def _verifier(
        self, work: ResolvePlan, merged: MergedFiles
    ) -> Callable[[LoadedTable, int], None]:
        """Return what looks at the new snapshot before it is published."""
        verified: set[int | None] = set()

        def verify(after: LoadedTable, snapshot_id: int) -> None:
            before = self._watch.seconds.get("verify", 0.0)
            parent = after.metadata.snapshots[snapshot_id].parent_id
            with self._phase("verify"):
                require_deletes(after, snapshot_id, {each.path for each in work.own})
                if self._choices.verify != "none":
                    require_balance(after, snapshot_id, merged.balance(work.own))
                # The same change of the same snapshot, after a lost race, has the same rows.
                if parent not in verified:
                    self._verify_rows(work, after, snapshot_id, parent)
                    verified.add(parent)
            # It is a part of the commit, and shown by itself.
            self._watch.add("commit", before - self._watch.seconds["verify"])

        return verify

    def _verify_rows(
        self, work: ResolvePlan, after: LoadedTable, snapshot_id: int, parent: int | None
    ) -> None:
        if self._choices.verify == "rows" and not _has_marks(work):
            require_sums(after, snapshot_id, expected_sums(after, parent, work.staged))
        if self._choices.unique_keys:
            require_unique(after, snapshot_id, self._choices.keys)

    def _report(self, work: ResolvePlan) -> ResolveReport:
        choices = self._choices
        return ResolveReport(
            str(self._table.name),
            choices.target,
            choices.staging,
            waiting_snapshots=work.waiting,
            dry_run=choices.dry_run,
        )

    def _counted(self, work: ResolvePlan, merged: MergedFiles) -> ResolveReport:
        found, staged, deletes = self._found, work.staged, work.deletes
        vectors = sum(each.is_vector for each in deletes)
        is_counted = self._choices.verify == "rows" and _has_marks(work)
        return replace(
            self._report(work),
            staged_snapshots=0 if staged is None else len(staged.snapshots),
            oldest_staged_ms=None if staged is None else staged.began_ms,
            delete_files=len(deletes) - vectors,
            key_vectors=vectors,
            keys=found.keys or 0,
            absent=found.absent,
            rows_deleted=merged.target.rows + merged.staged.rows,
            data_files_added=len(merged.taken),
            rows_added=merged.taken_rows,
            data_files_removed=len(merged.target.whole),
            vectors_added=len(merged.target.vectors) + len(merged.staged.vectors),
            vectors_replaced=merged.target.replaced_vectors + merged.staged.replaced_vectors,
            strategy=found.strategy,
            reason=found.reason,
            verified="counts" if is_counted else self._choices.verify,
            notes=(_COUNTED,) if is_counted else (),
        )

    def _phase(self, name: str) -> AbstractContextManager[None]:
        jobs = describe_jobs(self._table.spark, f"delvec: {name} RESOLVE on {self._table.name}")
        return self._watch.phase(name, jobs)


def _has_marks(work: ResolvePlan) -> bool:
    """Whether rows of the target are deleted by position on the staging branch."""
    return work.staged is not None and bool(work.staged.marked or work.staged.removed)


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

    with interruptible(table.spark), errors.committed_before(so_far):
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
        except errors.PlanError:  # others have committed to it just now
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
    except errors.DelvecError as error:
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
