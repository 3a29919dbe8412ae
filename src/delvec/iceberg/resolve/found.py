"""Rows with deleted keys, as far as they were searched for."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from delvec.iceberg.by_condition.places import bitmaps_by_path
from delvec.iceberg.resolve.plan import staged_searches, target_searches
from delvec.iceberg.search.find import count_keys, find_by_join
from delvec.iceberg.search.finder import find_rows_of
from delvec.iceberg.search.search import KEY_HASH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.resolve.choices import Choices
    from delvec.iceberg.resolve.plan import Work
    from delvec.iceberg.search.search import Search
    from delvec.iceberg.search.strategy import Choice
    from delvec.vector import Bitmap

__all__ = ["Found"]


@dataclass(eq=False)
class Found:
    """What was found for one piece of work, in more and more data files.

    Attributes:
        searched: Paths of data files of the target that were searched.
        hits: Positions of rows with deleted keys by path.
        keys: How many different keys the deletes have; None before the first search.
        matched: How many of them some row had.
        choices: How rows were found, and why so.
    """

    searched: set[str] = field(default_factory=set)
    hits: dict[str, Bitmap] = field(default_factory=dict)
    keys: int | None = None
    matched: int = 0
    choices: list[Choice] = field(default_factory=list)

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
        """Why so."""
        return "; ".join(dict.fromkeys(each.reason for each in self.choices))

    def search(
        self,
        table: LoadedTable,
        head: int | None,
        work: Work,
        choices: Choices,
        phase: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """Search the data files that were not searched before, and forget those that are gone.

        Args:
            table: The table.
            head: The newest snapshot of the target; None if it has none.
            work: What is looked for.
            choices: How.
            phase: Measures the time of a block.
        """
        is_first = self.keys is None
        live: frozenset[str] = frozenset()
        searches: list[Search] = []
        with phase("plan"):
            if head is not None:
                live, planned = target_searches(table, head, work, self.searched)
                searches += planned
            if work.staged is not None and is_first:
                searches += staged_searches(table, work.staged)
        staged = frozenset(() if work.staged is None else work.staged.data)
        self.hits = {path: hit for path, hit in self.hits.items() if path in live | staged}
        with phase("find"):
            if is_first:
                self.keys = _count(table, head, work)
            for ids in sorted({each.ids for each in searches}):
                self._find(head, [each for each in searches if each.ids == ids], choices)
        self.searched |= live

    def _find(self, head: int | None, searches: Sequence[Search], choices: Choices) -> None:
        """Find the rows of one set of key columns."""
        table = searches[0].table
        parts = [
            self._rows(search, choices, is_own=search.snapshot_id == head) for search in searches
        ]
        paths = [p for each in searches for p in each.files.files.column("path").to_pylist()]
        kept = reduce(DataFrame.unionAll, parts).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            for path, bitmap in bitmaps_by_path(table, kept, paths).items():
                before = self.hits.get(path)
                self.hits[path] = bitmap if before is None else before | bitmap
            self.matched += kept.select(KEY_HASH).distinct().count()
        finally:
            kept.unpersist()

    def _rows(self, search: Search, choices: Choices, *, is_own: bool) -> DataFrame:
        if not is_own:  # of a staging branch, whose files are not indexed yet
            return find_by_join(search)
        keys = choices.key_ids(search.table)
        made = find_rows_of(search, choices.index, keys, may_write=not choices.dry_run)
        self.choices.append(made.choice)
        return made.rows


def _count(table: LoadedTable, head: int | None, work: Work) -> int:
    """Return how many keys the deletes have."""
    snapshot_id = head if work.staged is None else work.staged.head.id
    if snapshot_id is None:  # a table without snapshots has no deletes
        return 0
    return count_keys(table, snapshot_id, work.deletes)
