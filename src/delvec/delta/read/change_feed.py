"""Which rows the versions of a table inserted, updated and deleted: the files to read for them.

A version with change data files (`cdc`) is described by these alone. In others, every row of a file
that was added is an insert, and every row left in a file that was removed is a delete. Of a file
that was removed and added again with another vector, the changed rows are those where the two
vectors differ.

Only the commits of the range are read. Memory grows with the files that these name, and with the
vectors of those among them that already had one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.commit_times import commit_times
from delvec.delta.log.json_actions import JsonActions
from delvec.delta.log.segment import find_segment
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.read.change_feed_actions import FeedCommit, batched, changed_files_of
from delvec.delta.read.change_feed_parts import PartBuilder
from delvec.delta.read.change_feed_schema import COMMIT_VERSION, require_recorded
from delvec.delta.read.load_vectors import LazyVectors, load_vectors
from delvec.errors import FormatError, InvalidArgumentError
from delvec.storage.listed_files import open_listed_file
from delvec.storage.parallel import gather
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.delta.log.action_columns import Kind
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.read.change_feed_parts import FeedPart
    from delvec.storage import Storage

__all__ = ["ChangeFeed", "change_feed"]

_KINDS: Final[tuple[Kind, ...]] = ("cdc", "add", "remove")


@dataclass(frozen=True)
class ChangeFeed:
    """The changes of some versions.

    Attributes:
        snapshot: The last version, by whose columns all files are read.
        whole: Files of which all rows that no vector has were inserted or deleted.
        partial: Files of which the rows that a vector has were inserted or deleted.
        recorded: Files that hold changes, with the type of each in the column `_change_type`.
    """

    snapshot: Snapshot
    whole: FeedPart
    partial: FeedPart
    recorded: FeedPart


def change_feed(storage: Storage, start: int, end: int | None = None) -> ChangeFeed:
    """Plan the reading of the changes that versions made, both ends included.

    Args:
        storage: The table.
        start: The first version.
        end: The last one, by default the newest; one that does not exist yet means the newest.

    Raises:
        InvalidArgumentError: The range is empty or not there any more, a version of it did not
            record its changes, or its columns cannot be read as those of the last.
        FormatError: The log is damaged.
    """
    newest = find_segment(storage)
    last = newest.version if end is None else min(end, newest.version)
    if start > newest.version:
        raise InvalidArgumentError(
            f"{storage.root} has no version {start}; the newest is {newest.version}",
            hint="`delvec history` lists the versions",
        )
    if end is not None and end < start:
        raise InvalidArgumentError(f"the range of versions ends before it starts: {start} to {end}")
    first = open_snapshot(storage, start)
    snapshot = open_snapshot(storage, last)
    times = commit_times(snapshot, start, last)
    commits = [commit for commit in times.commits if commit.first >= start]
    known = {commit.first for commit in commits}
    missing = next((version for version in range(start, last + 1) if version not in known), None)
    if missing is not None:
        raise InvalidArgumentError(
            f"the changes of version {missing} of {storage.root} cannot be read any more: its"
            " commit was cleaned up",
            hint="start at a later version; `delvec history` lists those that are there",
        )
    read = gather(lambda file: JsonActions(times.uri_of(file), storage.read(file.key)), commits)
    require_recorded(storage.root, first, snapshot, read)
    collector = _Collector(snapshot)
    for batch in batched([FeedCommit.of(*each, times) for each in zip(commits, read, strict=True)]):
        collector.take(batch)
    return collector.feed()


class _Collector:
    """The changed files of all versions, by how they are read."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._whole, self._recorded = PartBuilder(snapshot), PartBuilder(snapshot)
        # Files whose only vector came or went, and the two sides of those that changed theirs.
        self._gone, self._back = PartBuilder(snapshot), PartBuilder(snapshot)
        self._before, self._after = PartBuilder(snapshot), PartBuilder(snapshot)

    def take(self, commits: Sequence[FeedCommit]) -> None:
        """Take the changes of some versions."""
        recorded, adds, removes = (
            changed_files_of(commits, kind, self._snapshot) for kind in _KINDS
        )
        self._recorded.add(recorded, None)
        unchanged = [commit.version for commit in commits if not commit.changes_rows]
        done = pa.array([*unchanged, *recorded[COMMIT_VERSION].to_pylist()], pa.int64())
        adds, removes = (
            side.filter(pc.invert(pc.is_in(side[COMMIT_VERSION], value_set=done)))
            for side in (adds, removes)
        )
        in_adds = pc.index_in(_keys(removes), value_set=_keys(adds))
        again = in_adds.is_valid()
        pairs_of = in_adds.drop_null()
        alone = np.ones(adds.num_rows, dtype=np.bool_)
        alone[pairs_of.to_numpy()] = False
        self._whole.add(adds.filter(pa.array(alone)), "insert")
        self._whole.add(self._sized(removes.filter(pc.invert(again))), "delete")
        self._take_pairs(removes.filter(again), adds.take(pairs_of))

    def _take_pairs(self, removes: pa.Table, after: pa.Table) -> None:
        """Take files that were removed and added again, side by side."""
        # Statistics and the size are those of the add; a remove need not have any.
        place = after.column_names.index("deletionVector")
        before = after.set_column(place, "deletionVector", removes["deletionVector"])
        had, has = (side["deletionVector"].combine_chunks().is_valid() for side in (before, after))
        neither = after.filter(pc.invert(pc.or_(had, has)))
        if neither.num_rows:
            raise FormatError(
                f"version {neither[COMMIT_VERSION][0]} adds and removes the same file with the"
                " same vector",
                path=self._snapshot.table,
                found=repr(neither["path"][0].as_py()),
            )
        self._gone.add(after.filter(pc.invert(had)), "delete")
        self._back.add(before.filter(pc.invert(has)), "insert")
        both = pc.and_(had, has)
        self._before.add(before.filter(both), "insert")
        self._after.add(after.filter(both), "delete")

    def _sized(self, entries: pa.Table) -> pa.Table:
        """Ask the store for the sizes that the log lacks; removes need not have any."""
        sizes = entries["size"].to_pylist()
        if None not in sizes:
            return entries
        for number, path in enumerate(entries["path"].to_pylist()):
            if sizes[number] is None:
                storage, key = open_listed_file(self._snapshot.storage, path)
                sizes[number] = storage.size(key)
        place = entries.column_names.index("size")
        return entries.set_column(place, "size", pa.array(sizes, pa.int64()))

    def feed(self) -> ChangeFeed:
        """Return all that was taken."""
        storage, whole = self._snapshot.storage, self._whole.part()
        numbers = np.flatnonzero(whole.files.has_vector).tolist()
        whole = replace(whole, marks=LazyVectors(storage, whole.files, numbers))
        return ChangeFeed(self._snapshot, whole, self._partial(), self._recorded.part())

    def _partial(self) -> FeedPart:
        """Join the entries of vectors that came, went or changed.

        Where both sides have one, both are loaded now: as a rule one side of the difference is
        empty, and finding that out costs less than reading the file in vain.
        """
        storage = self._snapshot.storage
        old, new = (
            [vector or Bitmap() for vector in load_vectors(storage, side.part().files.data_files())]
            for side in (self._before, self._after)
        )
        gone = [later - earlier for earlier, later in zip(old, new, strict=True)]
        back = [earlier - later for earlier, later in zip(old, new, strict=True)]
        joined = PartBuilder(self._snapshot)
        for side in (self._gone, self._back):
            joined.extend(side)
        lazy = len(joined)
        marks: list[Bitmap] = []
        for side, vectors in ((self._after, gone), (self._before, back)):
            marked = [bool(vector) for vector in vectors]
            joined.extend(side, pa.array(marked, pa.bool_()))
            marks += [vector for vector in vectors if vector]
        part = joined.part()
        known = {lazy + number: vector for number, vector in enumerate(marks)}
        return replace(part, marks=LazyVectors(storage, part.files, range(lazy), known))


def _keys(entries: pa.Table) -> pa.Array:
    """Return the keys of files of several versions: version and path."""
    version = entries[COMMIT_VERSION].combine_chunks().cast(pa.string())
    return pc.binary_join_element_wise(version, entries["path"].combine_chunks(), "\0")
