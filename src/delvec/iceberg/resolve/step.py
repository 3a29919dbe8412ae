"""One commit that resolves equality deletes: plan, find, merge, write, verify, commit.

A commit resolves a fixed set of deletes. What was found stays right whatever others commit: a
position in a data file never changes its row. So after a lost race only data files that are new
are searched, vectors are united anew, and data files that are gone drop out. Only if the branch was
rolled back, or a delete of the set is gone, all begins again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from delvec.errors import ConflictError, LockedError, PlanError, VerificationError
from delvec.iceberg.by_condition.places import bitmaps_by_path
from delvec.iceberg.by_condition.position_vectors import earlier_positions, write_vectors
from delvec.iceberg.client.catalog import load_table
from delvec.iceberg.client.position_deletes import find_position_deletes
from delvec.iceberg.commits.branch_commit import commit_change
from delvec.iceberg.commits.changes import RowChange
from delvec.iceberg.commits.progress import Resolved
from delvec.iceberg.resolve.merge import Merged, merge
from delvec.iceberg.resolve.plan import Work, begin, staged_searches, target_searches
from delvec.iceberg.resolve.report import ResolveReport
from delvec.iceberg.resolve.verify import (
    Balance,
    expected_sums,
    require_balance,
    require_sums,
    require_unique,
)
from delvec.iceberg.search.find import count_keys, find_by_join
from delvec.iceberg.search.finder import find_rows_of
from delvec.iceberg.search.search import KEY_HASH
from delvec.spark.progress import described
from delvec.spark.storage import open_storage
from delvec.storage.listed_files import local_path
from delvec.storage.uncommitted import UncommittedFiles
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from delvec.iceberg.by_condition.position_vectors import StoredPositions
    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.commits.attempts import Committed
    from delvec.iceberg.resolve.choices import Choices
    from delvec.iceberg.resolve.staged import Staged
    from delvec.iceberg.search.search import Search
    from delvec.report.phases import Stopwatch
    from delvec.storage import Storage

__all__ = ["Step"]

_ATTEMPTS: Final = 10
_COUNTED: Final = (
    "Rows were verified by counts only: the staging branch deletes rows of the target by position."
)


@dataclass(eq=False)
class _Found:
    """Rows with deleted keys, as far as they were searched for."""

    searched: set[str] = field(default_factory=set)
    hits: dict[str, Bitmap] = field(default_factory=dict)
    keys: int | None = None
    matched: int = 0
    strategy: str = ""
    reason: str = ""


@dataclass(frozen=True, eq=False)
class _Merged:
    """The data files of the target, and those that it takes over, with their deleted rows."""

    target: Merged = field(default_factory=Merged)
    staged: Merged = field(default_factory=Merged)


class Step:
    """One commit; `left` tells afterwards how many staged snapshots wait for another."""

    def __init__(
        self,
        table: LoadedTable,
        choices: Choices,
        watch: Stopwatch,
        between: Callable[[], None],
    ) -> None:
        self._table, self._choices = table, choices
        self._watch, self._between = watch, between
        self._work: Work | None = None
        self._found = _Found()
        self.left = 0

    def run(self) -> ResolveReport:
        """Resolve, and search again after concurrent commits."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._table = load_table(self._table.spark, self._table.name)
            head = self._head
            try:
                return replace(self._resolve(), conflicts=attempt)
            except LockedError:
                raise
            except (ConflictError, PlanError):
                newest = load_table(self._table.spark, self._table.name)
                now = newest.metadata.head(self._choices.target)
                moved = newest.metadata.uuid != self._table.metadata.uuid
                if moved or attempt == _ATTEMPTS - 1 or (now and now.id) == head:
                    raise
        raise AssertionError("the last attempt returns or raises")

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
        self._search(work)
        with self._phase("merge"):
            merged = self._merge(work)
        report = self._counted(work, merged)
        if self._choices.dry_run:
            return report
        return self._store(work, merged, report)

    def _planned(self) -> Work:
        """Return the work as it was begun, if it is still to be done."""
        choices = self._choices
        if self._work is None or not self._work.holds_for(self._table, choices.staging):
            self._work = begin(self._table, choices.target, choices.staging, choices.max_snapshots)
            self._found = _Found()
        return self._work

    def _search(self, work: Work) -> None:
        """Search the data files that were not searched before."""
        found, head, is_first = self._found, self._head, self._found.keys is None
        searches: list[Search] = []
        with self._phase("plan"):
            live: frozenset[str] = frozenset()
            if head is not None:
                live, planned = target_searches(self._table, head, work, found.searched)
                searches += planned
            if work.staged is not None and is_first:
                searches += staged_searches(self._table, work.staged)
        staged = work.staged.data.keys() if work.staged is not None else set()
        found.hits = {path: hit for path, hit in found.hits.items() if path in live | staged}
        with self._phase("find"):
            if is_first:
                found.keys = self._count(work)
            for ids in sorted({each.ids for each in searches}):
                self._find([each for each in searches if each.ids == ids])
        found.searched |= live

    def _count(self, work: Work) -> int:
        """Return how many keys the deletes have."""
        snapshot_id = work.staged.head.id if work.staged is not None else self._head
        assert snapshot_id is not None  # noqa: S101 - a table without snapshots has no deletes
        return count_keys(self._table, snapshot_id, work.deletes)

    def _find(self, searches: Sequence[Search]) -> None:
        """Find the rows of one set of key columns."""
        found = self._found
        parts = [self._rows(search) for search in searches]
        paths = [p for each in searches for p in each.files.files.column("path").to_pylist()]
        kept = reduce(DataFrame.unionAll, parts).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            for path, bitmap in bitmaps_by_path(self._table, kept, paths).items():
                before = found.hits.get(path)
                found.hits[path] = bitmap if before is None else before | bitmap
            found.matched += kept.select(KEY_HASH).distinct().count()
        finally:
            kept.unpersist()

    def _rows(self, search: Search) -> DataFrame:
        found, choices = self._found, self._choices
        if search.snapshot_id != self._head:  # of a staging branch: its files are not indexed yet
            found.strategy = found.strategy or "join"
            return find_by_join(search)
        made = find_rows_of(
            search, choices.index, choices.key_ids(self._table), may_write=not choices.dry_run
        )
        found.strategy, found.reason = made.choice.strategy, made.choice.reason
        return made.rows

    def _merge(self, work: Work) -> _Merged:
        staged, hits, head = work.staged, self._found.hits, self._head
        own = hits if staged is None else {p: h for p, h in hits.items() if p not in staged.data}
        target = Merged()
        if head is not None:
            own = {**own}
            if staged is not None:
                for path, positions in self._marked(staged, head).items():
                    own[path] = own[path] | positions if path in own else positions
            removed = () if staged is None else self._removed(work, staged, head)
            target = merge(self._table, head, own, whole=removed)
        if staged is None or not staged.data:
            return _Merged(target)
        new = {path: hits.get(path, Bitmap()) for path in staged.data}
        return _Merged(target, merge(self._table, staged.head.id, new, complete=True))

    def _marked(self, staged: Staged, head: int) -> dict[str, Bitmap]:
        """Return the rows of the target's data files that a staged snapshot deletes by position."""
        if not staged.marked:
            return {}
        self._require_live(staged.marked, head, "has deletes by position")
        files = find_position_deletes(self._table, staged.head.id, staged.marked)
        new = [
            replace(file, deletes=tuple(each for each in file.deletes if each.key in staged.marks))
            for file in files.values()
        ]
        return earlier_positions(self._table, staged.head.id, self._storage(), new, complete=True)

    def _removed(self, work: Work, staged: Staged, head: int) -> tuple[str, ...]:
        if staged.removed:
            self._require_live(staged.removed, head, "was removed")
            self._require_same_rows(work, staged, head)
        return staged.removed

    def _require_same_rows(self, work: Work, staged: Staged, head: int) -> None:
        """Refuse a rewrite of a data file that rows were deleted of meanwhile: they would be back.

        A rewrite reads what the staging branch knows. Other deletes of the target are new to it.
        """
        if not staged.rewritten:
            return
        base = staged.snapshots[0].parent_id
        known = (
            find_position_deletes(self._table, base, staged.rewritten)
            if base is not None and base in self._table.metadata.snapshots
            else {}
        )
        for path, file in find_position_deletes(self._table, head, staged.rewritten).items():
            before = {each.key for each in known[path].deletes} if path in known else set()
            is_hit = bool(work.own) and bool(self._found.hits.get(path))
            if is_hit or any(each.key not in before for each in file.deletes):
                choices = self._choices
                raise PlanError(
                    f"{path} was rewritten on branch {choices.staging} of {self._table.name}, and"
                    f" {choices.target} has deleted rows of it, which would be there again",
                    hint="write deletes by key, or by position (merge-on-read), to staging"
                    " branches",
                )

    def _require_live(self, paths: Sequence[str], head: int, what: str) -> None:
        """Refuse staged deletes of rows that have moved to other files of the target."""
        try:
            find_position_deletes(self._table, head, paths)
        except PlanError as error:
            choices = self._choices
            raise PlanError(
                f"a data file {what} on branch {choices.staging} of {self._table.name}, and"
                f" {choices.target} has rewritten or removed it: {error.describe()}",
                hint="write deletes by key to staging branches, or resolve before compaction",
            ) from error

    def _store(self, work: Work, merged: _Merged, report: ResolveReport) -> ResolveReport:
        storage = self._storage()
        with UncommittedFiles(storage) as uncommitted:
            with self._phase("write"):
                stored = self._write(merged, storage, uncommitted)
            verify = self._verify(work, merged)
            if _has_marks(work) and self._choices.verify == "rows":
                report = replace(report, notes=(*report.notes, _COUNTED))
            self._between()
            uncommitted.keep()
            try:
                with self._phase("commit"):
                    done = self._commit(work, merged, stored, verify)
            except (ConflictError, PlanError, VerificationError):
                uncommitted.discard()
                raise
        return replace(report, snapshot_id=done.snapshot_id, commits=1, vector_bytes=stored.bytes)

    def _write(
        self, merged: _Merged, storage: Storage, uncommitted: UncommittedFiles
    ) -> StoredPositions:
        parts = (merged.target, merged.staged)
        files = [each.files[path] for each in parts for path in each.vectors]
        vectors = [vector for each in parts for vector in each.vectors.values()]
        return write_vectors(self._table, files, vectors, storage, uncommitted)

    def _commit(
        self,
        work: Work,
        merged: _Merged,
        stored: StoredPositions,
        verify: Callable[[LoadedTable, int], None] | None,
    ) -> Committed:
        staged = work.staged
        added = [] if staged is None else _taken(staged, merged.staged)
        replaced = [*merged.target.replaced(), *(each.path for each in work.own)]
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
        if staged is not None and self._choices.staging is not None:
            head = staged.head
            resolved = Resolved(
                self._choices.staging, head.id, head.sequence_number, staged.data_files
            )
        return commit_change(
            self._table,
            self._choices.target,
            change,
            computed_on=self._head,
            resolved=resolved,
            verify=verify,
        )

    def _verify(self, work: Work, merged: _Merged) -> Callable[[LoadedTable, int], None] | None:
        choices = self._choices
        if choices.verify == "none" and not choices.unique_keys:
            return None
        balance = _balance(work, merged)
        sums: tuple[int, ...] | None = None
        if choices.verify == "rows" and not _has_marks(work):
            with self._phase("verify"):
                sums = expected_sums(self._table, self._head, work.staged)

        def verify(after: LoadedTable, snapshot_id: int) -> None:
            before = self._watch.seconds.get("verify", 0.0)
            with self._phase("verify"):
                if choices.verify != "none":
                    require_balance(after, snapshot_id, balance)
                if sums is not None:
                    require_sums(after, snapshot_id, sums)
                if choices.unique_keys:
                    require_unique(after, snapshot_id, choices.keys)
            # It is a part of the commit, and shown by itself.
            self._watch.add("commit", before - self._watch.seconds["verify"])

        return verify

    def _report(self, work: Work) -> ResolveReport:
        choices = self._choices
        return ResolveReport(
            str(self._table.name),
            choices.target,
            choices.staging,
            waiting_snapshots=work.waiting,
            dry_run=choices.dry_run,
        )

    def _counted(self, work: Work, merged: _Merged) -> ResolveReport:
        found, staged = self._found, work.staged
        keys = found.keys or 0
        deletes = work.deletes
        vectors = sum(each.is_vector for each in deletes)
        files = () if staged is None else _taken(staged, merged.staged)
        physical = sum(each.row_count for each in merged.staged.files.values())
        live = physical - _deleted(merged.staged)
        return replace(
            self._report(work),
            staged_snapshots=0 if staged is None else len(staged.snapshots),
            oldest_staged_ms=None if staged is None else staged.snapshots[0].timestamp_ms,
            delete_files=len(deletes) - vectors,
            key_vectors=vectors,
            keys=keys,
            absent=max(0, keys - found.matched),
            rows_deleted=merged.target.rows + merged.staged.rows,
            data_files_added=len(files),
            rows_added=live,
            data_files_removed=len(merged.target.whole),
            vectors_added=len(merged.target.vectors) + len(merged.staged.vectors),
            vectors_replaced=merged.target.replaced_vectors + merged.staged.replaced_vectors,
            strategy=found.strategy,
            reason=found.reason,
        )

    def _storage(self) -> Storage:
        return open_storage(self._table.spark, local_path(self._table.metadata.location))

    def _phase(self, name: str) -> AbstractContextManager[None]:
        jobs = described(self._table.spark, f"delvec: {name} RESOLVE on {self._table.name}")
        return self._watch.phase(name, jobs)


def _has_marks(work: Work) -> bool:
    """Whether rows of the target are deleted by position on the staging branch."""
    return work.staged is not None and bool(work.staged.marked or work.staged.removed)


def _taken(staged: Staged, merged: Merged) -> list[str]:
    """Return the data files that are taken over: those with rows left."""
    gone = set(merged.whole)
    return [text for path, text in staged.data.items() if path not in gone]


def _deleted(merged: Merged) -> int:
    """Return how many rows of data files are deleted."""
    whole = sum(merged.files[path].row_count for path in merged.whole)
    return whole + sum(vector.cardinality for vector in merged.vectors.values())


def _balance(work: Work, merged: _Merged) -> Balance:
    target, staged = merged.target, merged.staged
    rows = {path: file.row_count for path, file in {**staged.files, **target.files}.items()}
    added = [path for path in staged.files if path not in set(staged.whole)]
    vectors = (*target.vectors.values(), *staged.vectors.values())
    replaced = [
        delete.record_count
        for file in target.files.values()
        for delete in file.deletes
        if delete.is_file_scoped
    ]
    return Balance(
        sum(rows[path] for path in added) - sum(rows[path] for path in target.whole),
        sum(vector.cardinality for vector in vectors) - sum(replaced),
        -sum(each.record_count for each in work.own),
        len(added) - len(target.whole),
        frozenset(each.path for each in work.own),
    )
