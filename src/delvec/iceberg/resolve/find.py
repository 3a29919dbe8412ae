"""The rows of a target that a commit deletes: found by key, or named by the staging branch.

What the branch deletes by position, or by rewriting data files, is named by data file: the target
must still have that file. Keys are found wherever rows have moved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from delvec.errors import PlanError
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.files import find_position_deletes
from delvec.iceberg.deletes.positions import collect_positions, read_earlier_positions
from delvec.iceberg.resolve import plan
from delvec.iceberg.resolve.staged import Staged
from delvec.iceberg.resolve.verify import live_rows
from delvec.iceberg.search.finder import Choice, find_rows_of
from delvec.iceberg.search.search import KEY_HASH, Search, count_keys, find_by_join
from delvec.spark.engine import open_storage
from delvec.storage.listed_files import local_path
from delvec.vector import Bitmap


@dataclass(eq=False)
class FoundRows:
    """What was found for one piece of work, in more and more data files."""

    searched: set[str] = field(default_factory=set)  # paths of data files of the target
    hits: dict[str, Bitmap] = field(default_factory=dict)  # rows with deleted keys by path
    keys: int | None = None  # how many different ones; None before the first search
    matched: int = 0  # how many of them some row had
    choices: list[Choice] = field(default_factory=list)  # how rows were found, and why so

    @property
    def absent(self) -> int:
        """How many keys no row had; after concurrent commits at least so many."""
        return max(0, (self.keys or 0) - self.matched)

    @property
    def strategy(self) -> str:
        """How rows were found: by the index if any were."""
        found = {each.strategy for each in self.choices}
        return "index" if "index" in found else "join" if self.keys is not None else ""

    @property
    def reason(self) -> str:
        return "; ".join(dict.fromkeys(each.reason for each in self.choices))

    def search(
        self,
        table: LoadedTable,
        head: int | None,
        work: plan.ResolvePlan,
        choices: plan.ResolveOptions,
        phase: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """Search the data files that were not searched before, and forget those that are gone."""
        is_first = self.keys is None
        live: frozenset[str] = frozenset()
        searches: list[Search] = []
        with phase("plan"):
            if head is not None:
                live, planned = plan.target_searches(table, head, work, self.searched)
                searches += planned
            if work.staged is not None and is_first:
                searches += plan.staged_searches(table, work.staged)
        staged = frozenset(() if work.staged is None else work.staged.data)
        self.hits = {path: hit for path, hit in self.hits.items() if path in live | staged}
        with phase("find"):
            if is_first:
                read = head if work.staged is None else work.staged.head.id
                # A table without snapshots has no deletes.
                self.keys = 0 if read is None else count_keys(table, read, work.deletes)
            for ids in sorted({each.ids for each in searches}):
                self._find(head, [each for each in searches if each.ids == ids], choices)
        self.searched |= live

    def _find(
        self, head: int | None, searches: Sequence[Search], choices: plan.ResolveOptions
    ) -> None:
        table = searches[0].table
        parts = [
            self._rows(search, choices, is_own=search.snapshot_id == head) for search in searches
        ]
        paths = [p for each in searches for p in each.files.files.column("path").to_pylist()]
        kept = reduce(DataFrame.unionAll, parts).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            for path, bitmap in collect_positions(table, kept, paths).items():
                before = self.hits.get(path)
                self.hits[path] = bitmap if before is None else before | bitmap
            self.matched += kept.select(KEY_HASH).distinct().count()
        finally:
            kept.unpersist()

    def _rows(self, search: Search, choices: plan.ResolveOptions, *, is_own: bool) -> DataFrame:
        if not is_own:  # of a staging branch, whose files are not indexed yet
            return find_by_join(search)
        keys = choices.key_ids(search.table)
        made = find_rows_of(search, choices.index, keys, may_write=not choices.dry_run)
        self.choices.append(made.choice)
        return made.rows


@dataclass(frozen=True, eq=False)
class StagedPositions:
    """What a staging branch says of data files of the target, whose newest snapshot is `head`."""

    table: LoadedTable
    head: int
    staged: Staged
    choices: plan.ResolveOptions

    def deleted(self) -> dict[str, Bitmap]:
        staged = self.staged
        marked = self._live(staged.marked, "has deletes by position")
        files = find_position_deletes(self.table, staged.head.id, marked)
        new = [
            replace(file, deletes=tuple(each for each in file.deletes if each.key in staged.marks))
            for file in files.values()
        ]
        storage = open_storage(self.table.spark, local_path(self.table.metadata.location))
        return read_earlier_positions(self.table, staged.head.id, storage, new, complete=True)

    def removed(self, hits: Collection[str]) -> tuple[str, ...]:
        removed = self._live(self.staged.removed, "was removed")
        self._require_same_rows(hits, set(removed))
        return removed

    def _require_same_rows(self, hits: Collection[str], live: Collection[str]) -> None:
        """Refuse a rewrite of a data file that rows were deleted of meanwhile: they would be back.

        A rewrite reads what the staging branch knows. Other deletes of the target are new to it.
        """
        rewritten = [path for path in self.staged.rewritten if path in live]
        if not rewritten:
            return
        base = self._base
        known = {} if base is None else find_position_deletes(self.table, base, rewritten)
        for path, file in find_position_deletes(self.table, self.head, rewritten).items():
            before = {each.key for each in known[path].deletes} if path in known else set()
            if path in hits or any(each.key not in before for each in file.deletes):
                raise PlanError(
                    f"{path} was rewritten on branch {self.choices.staging} of {self.table.name},"
                    f" and {self.choices.target} has deleted rows of it, which would be there"
                    " again",
                    hint="write deletes by key, or by position (merge-on-read), to staging"
                    " branches",
                )

    def _live(self, paths: Sequence[str], what: str) -> tuple[str, ...]:
        """Return those of some data files that the target has.

        Others must have no row left on the staging branch: then the target has no row of theirs
        either, since data files without rows are not taken over. Else their rows have moved to
        other files of the target, and are not known there by position.
        """
        if not paths:
            return ()
        live = find_position_deletes(self.table, self.head, paths, require=False)
        gone = [path for path in paths if path not in live]
        if gone and not self._are_empty(gone):
            raise PlanError(
                f"{gone[0]} {what} on branch {self.choices.staging} of {self.table.name}, and"
                f" {self.choices.target} has rewritten or removed it",
                hint="write deletes by key to staging branches, or resolve before compaction",
            )
        return tuple(path for path in paths if path in live)

    def _are_empty(self, paths: Sequence[str]) -> bool:
        """Whether data files had no live row before the staged snapshots; their keys are read."""
        if self._base is None:
            return False
        known = find_position_deletes(self.table, self._base, paths, require=False)
        if len(known) < len(set(paths)):
            return False
        return all(part.isEmpty() for part in live_rows(self.table, self._base, paths, ()))

    @property
    def _base(self) -> int | None:
        """The snapshot before the staged ones, if there is one and it has not expired."""
        base = self.staged.snapshots[0].parent_id
        return base if base in self.table.metadata.snapshots else None
