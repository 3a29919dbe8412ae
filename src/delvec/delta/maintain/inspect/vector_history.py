"""Deletion vectors over the newest versions of a table: how many there were, and how old each is.

The state of the newest version is known; the commits before it are undone, one after the other. A
commit that adds a file which is live already, as a recomputation of statistics does, changes
nothing. Reads each commit once, a few at a time; memory grows with the adds and removes in them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.action_columns import VECTOR
from delvec.delta.log.commit_times import info_of
from delvec.delta.log.history import as_string
from delvec.delta.log.paths import canonical
from delvec.delta.log.replay import vector_ids
from delvec.delta.maintain.recent_commits import read_commits
from delvec.inspection.figures import Moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from delvec.delta.log.commit_times import CommitTimes
    from delvec.delta.log.json_actions import JsonActions
    from delvec.delta.log.segment import LogFile
    from delvec.delta.log.snapshot import Snapshot

__all__ = ["VectorHistory", "vector_history"]

_ADD: Final = pa.struct(
    [("path", pa.string()), ("deletionVector", VECTOR), ("dataChange", pa.bool_())]
)
_REMOVE: Final = pa.struct([("path", pa.string()), ("deletionVector", VECTOR)])
_SCHEMA: Final = pa.schema([("add", _ADD), ("remove", _REMOVE)])


@dataclass(frozen=True)
class VectorHistory:
    """What the newest commits tell of vectors.

    Attributes:
        moments: The state after each commit, oldest first.
        times_ms: When the vector of each file that has one was committed; -1 if before all of
            these commits.
    """

    moments: tuple[Moment, ...]
    times_ms: NDArray[np.int64]


@dataclass
class _Events:
    """The adds and removes of commits, in columns."""

    keys: list[pa.Array] = field(default_factory=list)
    commit: list[NDArray[np.int64]] = field(default_factory=list)
    is_add: list[NDArray[np.bool_]] = field(default_factory=list)
    was_live: list[NDArray[np.bool_]] = field(default_factory=list)
    deleted: list[NDArray[np.int64]] = field(default_factory=list)
    has_vector: list[NDArray[np.bool_]] = field(default_factory=list)

    def take(self, number: int, actions: JsonActions, root: str) -> None:
        """Add those of one commit."""
        table = actions.columns(_SCHEMA)
        adds, removes = (
            table.column(name).combine_chunks().drop_null() for name in ("add", "remove")
        )
        # Such a commit moves no row, and takes no file away: its files have been there before.
        changes = pc.fill_null(pc.struct_field(adds, "dataChange"), True).to_numpy(False)
        again = ~changes & (len(removes) == 0)
        for found, is_add in ((removes, False), (adds, True)):
            if not len(found):
                continue
            vectors = pc.struct_field(found, "deletionVector")
            rows, size = (
                pc.fill_null(pc.struct_field(vectors, [name]), 0).to_numpy(zero_copy_only=False)
                for name in ("cardinality", "sizeInBytes")
            )
            self.keys.append(_keys(canonical(pc.struct_field(found, "path"), root), vectors))
            self.commit.append(np.full(len(found), number))
            self.is_add.append(np.full(len(found), is_add))
            self.was_live.append(again if is_add else np.ones(len(found), dtype=np.bool_))
            self.deleted.append(rows)
            self.has_vector.append((rows != 0) | (size != 0))


def vector_history(snapshot: Snapshot, times: CommitTimes, limit: int) -> VectorHistory:
    """Return the state after each of the newest commits up to a version.

    Args:
        snapshot: The version.
        times: The commits up to it.
        limit: How many commits are read at most.
    """
    files = snapshot.files
    unknown = np.full(int(files.has_vector.sum()), -1, dtype=np.int64)
    if not limit:
        return VectorHistory((), unknown)
    commits = _adjacent(times, snapshot.version)[-limit:]
    events, moments = _Events(), []
    read = read_commits(snapshot.storage, commits)
    for number, (commit, actions) in enumerate(zip(commits, read, strict=True)):
        info = info_of(actions)
        moments.append((commit.first, times.of_read(commit, info), _operation(info)))
        events.take(number, actions, snapshot.table)
    if not moments:
        return VectorHistory((), unknown)
    effect, codes = _effects(events)
    states = _states(snapshot, events, effect, len(commits))
    made = [
        Moment(*moment, *(int(number) for number in state))
        for moment, state in zip(moments, states, strict=True)
    ]
    stamps = np.array([moment for _, moment, _ in moments], dtype=np.int64)
    return VectorHistory(tuple(made), _births(snapshot, events, effect, codes, stamps))


def _adjacent(times: CommitTimes, version: int) -> Sequence[LogFile]:
    """Return the commits up to a version, from the first on after which none is missing."""
    found: list[LogFile] = []
    for commit in reversed(times.commits):
        if commit.first > version:
            continue
        if commit.first != version - len(found):
            break
        found.append(commit)
    return found[::-1]


def _operation(info: dict[str, object]) -> str:
    return as_string(info.get("operation")) or ""


def _keys(paths: pa.Array, vectors: pa.Array) -> pa.Array:
    ids = pc.fill_null(vector_ids(vectors), "")
    return pc.binary_join_element_wise(paths, ids, "\0")


def _effects(events: _Events) -> tuple[NDArray[np.int64], pa.DictionaryArray]:
    """Return what each event does to the number of live entries, and the key of each, encoded."""
    if not events.keys:
        return np.empty(0, dtype=np.int64), pa.array([], pa.string()).dictionary_encode()
    codes = pa.concat_arrays(events.keys).dictionary_encode()
    numbers = codes.indices.to_numpy()
    commit, is_add = np.concatenate(events.commit), np.concatenate(events.is_add)
    order = np.lexsort((commit, numbers))
    after = is_add[order].astype(np.int64)
    before = np.empty_like(after)
    before[1:] = after[:-1]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = numbers[order][1:] != numbers[order][:-1]
    before[first] = np.concatenate(events.was_live)[order][first]
    effect = np.empty_like(after)
    effect[order] = after - before
    return effect, codes


def _states(
    snapshot: Snapshot, events: _Events, effect: NDArray[np.int64], commits: int
) -> NDArray[np.int64]:
    """Return files, vectors and deleted rows after each commit."""
    files = snapshot.files
    newest = np.array([len(files), files.has_vector.sum(), files.deleted_rows.sum()])
    changes = np.zeros((commits, 3), dtype=np.int64)
    if len(effect):
        commit = np.concatenate(events.commit)
        np.add.at(changes[:, 0], commit, effect)
        np.add.at(changes[:, 1], commit, effect * np.concatenate(events.has_vector))
        np.add.at(changes[:, 2], commit, effect * np.concatenate(events.deleted))
    undone = np.cumsum(changes[::-1], axis=0)[::-1]
    later = np.vstack([undone[1:], np.zeros((1, 3), dtype=np.int64)])
    states: NDArray[np.int64] = newest - later
    return states


def _births(
    snapshot: Snapshot,
    events: _Events,
    effect: NDArray[np.int64],
    codes: pa.DictionaryArray,
    stamps: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return when the vector of each file that has one was committed; -1 if that is not known."""
    files = snapshot.files
    with_vector = pa.array(files.has_vector)
    live = _keys(files.paths.filter(with_vector), files.vectors.filter(with_vector))
    births = np.full(len(codes.dictionary), -1, dtype=np.int64)
    if len(effect):
        made = effect > 0
        # Later commits overwrite earlier ones: the last that made an entry live counts.
        births[codes.indices.to_numpy()[made]] = stamps[np.concatenate(events.commit)[made]]
    places = pc.fill_null(pc.index_in(live, codes.dictionary), -1).to_numpy(zero_copy_only=False)
    found = np.full(len(live), -1, dtype=np.int64)
    found[places >= 0] = births[places[places >= 0]]
    return found
