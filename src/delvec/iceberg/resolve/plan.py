"""What one commit resolves, and where rows with deleted keys may be.

In place: the equality deletes of the newest snapshot of a branch, wherever they come from; no
history is read. From a staging branch: those of its snapshots as well, which are later than
anything that the target has, so they apply to all its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.iceberg.client.chosen_files import DataFilesWithKeys, plan_snapshot
from delvec.iceberg.client.delete_files import equality_deletes, from_content_file
from delvec.iceberg.client.named_snapshots import branch_head
from delvec.iceberg.commits.progress import resolved_until
from delvec.iceberg.deletes.key_filter import ScopedDelete
from delvec.iceberg.deletes.read_schema import with_dropped_keys
from delvec.iceberg.resolve.staged import Staged, read_staged, waiting_snapshots
from delvec.iceberg.search.search import Search

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.delete_files import EqualityDeleteFile
    from delvec.iceberg.client.metadata import IcebergSnapshot
    from delvec.iceberg.commits.progress import Resolved

__all__ = ["Work", "begin", "staged_searches", "target_searches"]

_LATER: Final = (1 << 63) - 1  # the sequence number of staged deletes: later than any


@dataclass(frozen=True, eq=False)
class Work:
    """What one commit resolves.

    Attributes:
        target: The branch.
        base: Its newest snapshot when the work began; None if it had none.
        own: The equality deletes of that snapshot.
        staged: What is taken over from a staging branch.
        done: What was taken over from it before.
        waiting: Snapshots of the staging branch that are left for a later commit.
    """

    target: str
    base: IcebergSnapshot | None
    own: tuple[EqualityDeleteFile, ...]
    staged: Staged | None = None
    done: Resolved | None = None
    waiting: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.own and (self.staged is None or self.staged.is_empty)

    @property
    def deletes(self) -> tuple[EqualityDeleteFile, ...]:
        """All equality deletes that are resolved."""
        texts = () if self.staged is None else self.staged.deletes
        return (*self.own, *(from_content_file(text, _LATER) for text in texts))

    def holds_for(self, table: LoadedTable, staging: str | None) -> bool:
        """Whether the work is still to be done, after others have committed to the table."""
        metadata = table.metadata
        if staging is not None and resolved_until(metadata, self.target, staging) != self.done:
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


def begin(table: LoadedTable, target: str, staging: str | None, most: int | None) -> Work:
    """Plan what the next commit resolves; reads manifests only.

    Args:
        table: The table.
        target: The branch that is to hold no equality deletes.
        staging: The branch whose changes are taken over, if any.
        most: How many snapshots of it at most.

    Raises:
        InvalidArgumentError: There is no such branch.
        PlanError: See `waiting_snapshots` and `read_staged`.
    """
    base = branch_head(table.metadata, str(table.name), target)
    own = () if base is None else equality_deletes(table, base.id)
    if staging is None:
        return Work(target, base, own)
    chain = waiting_snapshots(table, staging, target)
    some = chain.first(most)
    staged = read_staged(table, staging, some) if some.snapshots else None
    # Snapshots that change nothing are no commit of their own, and must not end the work.
    while staged is not None and staged.is_empty and len(staged.snapshots) < len(chain.snapshots):
        chain = replace(chain, snapshots=chain.snapshots[len(staged.snapshots) :])
        staged = read_staged(table, staging, chain.first(most))
    left = len(chain.snapshots) - (0 if staged is None else len(staged.snapshots))
    done = resolved_until(table.metadata, target, staging)
    return Work(target, base, own, staged, done, left)


def target_searches(
    table: LoadedTable, snapshot_id: int, work: Work, searched: Collection[str]
) -> tuple[frozenset[str], tuple[Search, ...]]:
    """Plan where in the target rows with deleted keys may be.

    Args:
        table: The table.
        snapshot_id: The newest snapshot of the target.
        work: The deletes.
        searched: Paths of data files that need not be searched.

    Returns:
        The paths of all data files that may have such rows; and a search for each set of key
        columns.
    """
    further = () if work.staged is None else work.staged.deletes
    schema = table.metadata.schema
    added = () if work.staged is None else tuple(work.staged.data)
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
    return frozenset(paths.to_pylist()), _by_key(table, snapshot_id, schema, files, found)


def staged_searches(table: LoadedTable, staged: Staged) -> tuple[Search, ...]:
    """Plan where rows with deleted keys may be in staged data files.

    Sequence numbers of the staging branch tell which deletes are later than which rows.
    """
    schema = table.metadata.schema
    planned = plan_snapshot(table, staged.head.id, schema)
    paths = planned.files.column("path")
    is_staged = pc.is_in(paths, value_set=pa.array(staged.data, pa.string()))
    files = replace(planned, files=planned.files.filter(is_staged))
    found = [ScopedDelete(_parsed(text, number), scope) for number, scope, text in planned.deletes]
    return _by_key(table, staged.head.id, schema, files, found)


def _by_key(
    table: LoadedTable,
    snapshot_id: int,
    schema: Mapping[str, Any],
    files: DataFilesWithKeys,
    deletes: list[ScopedDelete],
) -> tuple[Search, ...]:
    if not files.files.num_rows:
        return ()
    by_ids: dict[tuple[int, ...], list[ScopedDelete]] = {}
    for each in deletes:
        by_ids.setdefault(each.file.equality_ids, []).append(each)
    searches = []
    for ids, some in sorted(by_ids.items()):
        wide = with_dropped_keys(table.metadata, schema, ids, str(table.name))
        searches.append(Search(table, snapshot_id, wide, files, tuple(some)))
    return tuple(searches)


def _parsed(text: str, sequence_number: int) -> EqualityDeleteFile:
    """Parse a delete file; the order of key columns is not of its meaning."""
    found = from_content_file(text, sequence_number)
    return replace(found, equality_ids=tuple(sorted(found.equality_ids)))
