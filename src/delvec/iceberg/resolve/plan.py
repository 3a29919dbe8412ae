"""What one commit resolves, and where rows with deleted keys may be.

In place: the equality deletes of the newest snapshot of a branch, wherever they come from; no
history is read. From a staging branch: those of its snapshots as well, which are later than
anything that the target has, so they apply to all its rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.file_scan import DataFilesWithKeys, plan_snapshot
from delvec.iceberg.client.files import EqualityDeleteFile, equality_deletes, from_content_file
from delvec.iceberg.client.metadata import IcebergSnapshot, branch_head
from delvec.iceberg.commit.marks import StagedProgress, read_progress
from delvec.iceberg.deletes.key_columns import add_dropped_key_columns, key_columns
from delvec.iceberg.deletes.key_filter import ScopedDelete
from delvec.iceberg.resolve.staged import CHANGES, Staged, find_unresolved, read_staged
from delvec.iceberg.search.finder import Strategy
from delvec.iceberg.search.search import Search

_LATER: Final = (1 << 63) - 1  # the sequence number of staged deletes: later than any
Verify: TypeAlias = Literal["counts", "rows", "none"]


@dataclass(frozen=True)
class ResolveOptions:
    """How to resolve, see `IcebergTable.resolve`."""

    target: str = "main"
    staging: str | None = None
    keys: tuple[str, ...] = ()
    index: Strategy = "auto"
    verify: Verify = "counts"
    unique_keys: bool = False
    max_snapshots: int | None = None
    dry_run: bool = False

    def key_ids(self, table: LoadedTable) -> frozenset[int]:
        if not self.keys:
            return frozenset()
        found = key_columns(table.metadata.schema, self.keys, str(table.name))
        return frozenset(each.id for each in found)


@dataclass(frozen=True, eq=False)
class ResolvePlan:
    """What one commit resolves."""

    target: str
    base: IcebergSnapshot | None  # the newest of the target when the work began, if it had any
    own: tuple[EqualityDeleteFile, ...]  # the equality deletes of that snapshot
    staged: Staged | None = None  # what is taken over from a staging branch
    done: StagedProgress | None = None  # what was taken over from it before
    waiting: int = 0  # snapshots of the staging branch that are left for a later commit
    tip: IcebergSnapshot | None = None  # the newest of all its snapshots

    @property
    def is_empty(self) -> bool:
        return not self.own and (self.staged is None or self.staged.is_empty)

    @property
    def deletes(self) -> tuple[EqualityDeleteFile, ...]:
        texts = () if self.staged is None else self.staged.deletes
        return (*self.own, *(from_content_file(text, _LATER) for text in texts))

    def is_newest(self, table: LoadedTable, staging: str | None) -> bool:
        """Whether nobody has committed to the branches since, so that planning gives the same."""
        metadata = table.metadata
        tip = None if staging is None else metadata.head(staging)
        return (metadata.head(self.target), tip) == (self.base, self.tip)

    def holds_for(self, table: LoadedTable, staging: str | None) -> bool:
        """Whether the work is still to be done, after others have committed to the table."""
        if self.is_newest(table, staging):
            return True
        metadata = table.metadata
        if staging is not None and read_progress(metadata, self.target, staging) != self.done:
            return False
        if staging is not None and self.staged is not None:
            staged = {each.id for each in metadata.ancestors(staging)}
            if self.staged.head.id not in staged:
                return False
        head = metadata.head(self.target)
        if self.base is None or head is None:
            return self.base is None and head is None
        if self.base.id not in {each.id for each in metadata.ancestors(self.target)}:
            return False
        live = {each.path for each in equality_deletes(table, head.id)} if self.own else set()
        return all(each.path in live for each in self.own)


def plan_resolve(
    table: LoadedTable, target: str, staging: str | None, most: int | None
) -> ResolvePlan:
    """Plan what the next commit resolves; reads manifests only."""
    base = branch_head(table.metadata, str(table.name), target)
    own = () if base is None else equality_deletes(table, base.id)
    if staging is None:
        return ResolvePlan(target, base, own)
    chain = find_unresolved(table, staging, target)
    some = chain.first(most)
    staged = read_staged(table, staging, some) if some.snapshots else None
    # Snapshots that change nothing are no commit of their own, and must not end the work.
    while staged is not None and staged.is_empty and len(staged.snapshots) < len(chain.snapshots):
        chain = replace(chain, snapshots=chain.snapshots[len(staged.snapshots) :])
        staged = read_staged(table, staging, chain.first(most))
    left = len(chain.snapshots) - (0 if staged is None else len(staged.snapshots))
    done = read_progress(table.metadata, target, staging)
    return ResolvePlan(target, base, own, staged, done, left, table.metadata.head(staging))


def oldest_unresolved_ms(table: LoadedTable, target: str, staging: str | None) -> int | None:
    """Return when the oldest change was committed that is to be resolved; None if there is none.

    Reads metadata only, and the delete manifests if the target has equality deletes.
    """
    metadata, name = table.metadata, str(table.name)
    base = branch_head(metadata, name, target)
    times = {each.sequence_number: each.timestamp_ms for each in metadata.snapshots.values()}
    found: list[int] = []
    if base is not None and base.summary.get("total-equality-deletes") != "0":
        # A snapshot that has expired is older than all that are left.
        own = equality_deletes(table, base.id)
        found += [times.get(each.sequence_number, min(times.values())) for each in own]
    if staging is not None:
        waiting = find_unresolved(table, staging, target).snapshots
        found += [each.timestamp_ms for each in waiting if not CHANGES.isdisjoint(each.summary)]
    return min(found, default=None)


def target_searches(
    table: LoadedTable, snapshot_id: int, work: ResolvePlan, searched: Collection[str]
) -> tuple[frozenset[str], tuple[Search, ...]]:
    """Plan where in the target rows with deleted keys may be.

    Returns the paths of all data files that may have such rows, and a search for each set of keys.
    """
    further = () if work.staged is None else work.staged.deletes
    added = () if work.staged is None else tuple(work.staged.data)
    schema = table.metadata.schema
    planned = plan_snapshot(table, snapshot_id, schema, further=further, absent=added)
    own = {each.path for each in work.own}
    found = [
        ScopedDelete(file, scope)
        for sequence, scope, text in planned.deletes
        if (file := _parsed(text, sequence)).path in own or sequence == _LATER
    ]
    paths = planned.files.column("path")
    kept = pc.invert(pc.is_in(paths, value_set=pa.array(searched, pa.string())))
    files = replace(planned, files=planned.files.filter(kept))
    return frozenset(paths.to_pylist()), _by_key(table, snapshot_id, files, found)


def staged_searches(table: LoadedTable, staged: Staged) -> tuple[Search, ...]:
    """Plan where rows with deleted keys may be in staged data files."""
    planned = plan_snapshot(table, staged.head.id, table.metadata.schema)
    paths = planned.files.column("path")
    is_staged = pc.is_in(paths, value_set=pa.array(staged.data, pa.string()))
    files = replace(planned, files=planned.files.filter(is_staged))
    found = [ScopedDelete(_parsed(text, number), scope) for number, scope, text in planned.deletes]
    return _by_key(table, staged.head.id, files, found)


def _by_key(
    table: LoadedTable, snapshot_id: int, files: DataFilesWithKeys, deletes: list[ScopedDelete]
) -> tuple[Search, ...]:
    if not files.files.num_rows:
        return ()
    by_ids: dict[tuple[int, ...], list[ScopedDelete]] = {}
    for each in deletes:
        by_ids.setdefault(each.file.equality_ids, []).append(each)
    searches, metadata = [], table.metadata
    for ids, some in sorted(by_ids.items()):
        wide = add_dropped_key_columns(metadata, metadata.schema, ids, str(table.name))
        searches.append(Search(table, snapshot_id, wide, files, tuple(some)))
    return tuple(searches)


def _parsed(text: str, sequence_number: int) -> EqualityDeleteFile:
    """Parse a delete file; the order of key columns is not of its meaning."""
    found = from_content_file(text, sequence_number)
    return replace(found, equality_ids=tuple(sorted(found.equality_ids)))
