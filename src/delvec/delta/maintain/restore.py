"""RESTORE: a commit by which the newest version is again what an earlier one was.

The difference is by path and vector: files of the wanted version that are not live with that vector
come back with their whole entries, live files that it does not have go. No data is read or written.
Before the commit, every data file and every file of vectors that comes back has to exist, and their
tombstones must not have expired: a VACUUM may delete such files at any moment.

Requests: both versions are opened; one for each file that comes back, or a listing if these are
many. Memory grows with the files of both versions (some 200 bytes each), and with the entries that
differ (some kilobytes each).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.alter.restored_definition import restored_clustering, restored_definition
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.maintain.available_files import (
    add_again,
    file_keys,
    require_files,
    require_kept,
)
from delvec.delta.pruning.predicate import Always
from delvec.delta.schema.properties import ENABLE_ROW_TRACKING
from delvec.delta.write.change import Change, ReadSet
from delvec.delta.write.row_ids import ROW_TRACKING_DOMAIN, high_water_mark, with_row_ids
from delvec.delta.write.transaction import Outcome
from delvec.delta.write.writable import require_writable
from delvec.report.figures import counted, size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from delvec.delta.alter.table_state import TableState
    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.write.transaction import Attempt

__all__ = ["restore"]


def restore(version: int, parameters: Mapping[str, Any]) -> Callable[[Attempt], Outcome]:
    """Prepare the restoration of a version.

    Args:
        version: The version.
        parameters: What the user asked for, for the history: `version` or `timestamp`.
    """

    def prepare(attempt: Attempt) -> Outcome:
        newest = attempt.snapshot
        require_writable(newest, "restore")
        if version == newest.version:
            return Outcome(None, notes=(f"version {version} is the newest",))
        with attempt.phase("plan"):
            wanted = open_snapshot(attempt.storage, version)
            difference = _Difference.of(newest, wanted)
            state = restored_definition(newest, wanted)
            domains: dict[str, str] = restored_clustering(newest, wanted)
            added = difference.added
        if not difference.is_one and not domains and _is_same(state, newest):
            return Outcome(None, notes=(f"the table is as version {version} was",))
        with attempt.phase("check"):
            entries = wanted.files.entries(added)
            others = len(newest.files)
            require_files(attempt.storage, entries, version=version, others=others, what="restored")
            require_kept(newest, wanted, added)
        bodies = [add_again(entry, data_change=True) for entry in entries]
        mark = high_water_mark(wanted.domains.get(ROW_TRACKING_DOMAIN))
        if mark > high_water_mark(newest.domains.get(ROW_TRACKING_DOMAIN)):
            # Row tracking was dropped in between, and its mark with it.
            bodies, mark = with_row_ids(bodies, mark, newest.version + 1)
            domains[ROW_TRACKING_DOMAIN] = f'{{"rowIdHighWaterMark":{mark}}}'
        change = Change(
            "RESTORE",
            parameters=parameters,
            metrics=difference.metrics,
            reads=ReadSet(Always(), files=difference.kept_paths, row_wise=False),
            removed=tuple(newest.files.entries(difference.removed)),
            added=tuple(bodies),
            entered_anew=_with_ids(newest, wanted, difference),
            protocol=None if state.protocol == newest.protocol else state.protocol,
            # Always: a concurrent append is a conflict then, whatever the isolation level.
            metadata=state.metadata,
            transaction=attempt.options.transaction,
            user_metadata=attempt.options.commit_metadata,
            restores=True,
            domains=domains,
        )
        return Outcome(change, notes=(_note(wanted),))

    return prepare


@dataclass(frozen=True)
class _Difference:
    """The files of two versions, by path and vector.

    Attributes:
        newest: The files of the newest version.
        wanted: The files of the wanted version.
        removed: Rows of `newest` that the wanted version does not have.
        added: Rows of `wanted` that the newest version does not have.
    """

    newest: FileSet
    wanted: FileSet
    removed: NDArray[np.int64]
    added: NDArray[np.int64]

    @classmethod
    def of(cls, newest: Snapshot, wanted: Snapshot) -> _Difference:
        now, then = (file_keys(each.files.paths, each.files.vectors) for each in (newest, wanted))
        return cls(newest.files, wanted.files, _rows_not_in(now, then), _rows_not_in(then, now))

    @property
    def is_one(self) -> bool:
        return bool(len(self.removed) or len(self.added))

    @cached_property
    def kept_paths(self) -> frozenset[str]:
        """Paths of live files that stay; the others are in the commit itself."""
        stays = np.ones(len(self.newest), dtype=np.bool_)
        stays[self.removed] = False
        return frozenset(self.newest.paths.filter(pa.array(stays)).to_pylist())

    @property
    def metrics(self) -> dict[str, int]:
        """The counts of the history, by delta-spark's names."""
        return {
            "tableSizeAfterRestore": int(self.wanted.sizes.sum()),
            "numOfFilesAfterRestore": len(self.wanted),
            "numRemovedFiles": len(self.removed),
            "numRestoredFiles": len(self.added),
            "removedFilesSize": int(self.newest.sizes[self.removed].sum()),
            "restoredFilesSize": int(self.wanted.sizes[self.added].sum()),
        }


def _rows_not_in(keys: pa.Array, others: pa.Array) -> NDArray[np.int64]:
    there = pc.is_in(keys, value_set=others).to_numpy(zero_copy_only=False)
    return np.flatnonzero(~there)


def _is_same(state: TableState, newest: Snapshot) -> bool:
    return (state.protocol, state.metadata) == (newest.protocol, newest.metadata)


def _with_ids(
    newest: Snapshot, wanted: Snapshot, difference: _Difference
) -> tuple[dict[str, Any], ...]:
    """Return entries of files that stay, where only the wanted version has their row ids.

    Dropping row tracking removes the ids of all files; switching it on again needs them.
    """
    then, now = (each.metadata.is_on(ENABLE_ROW_TRACKING) for each in (wanted, newest))
    if now or not then:
        return ()
    kept = difference.kept_paths
    without = {each.path for each in newest.files.entries() if each.add.get("baseRowId") is None}
    return tuple(
        add_again(entry, data_change=False)
        for entry in wanted.files.entries()
        if entry.path in kept and entry.path in without
    )


def _note(wanted: Snapshot) -> str:
    files = wanted.files
    facts = [counted(len(files), "file"), size(int(files.sizes.sum()))]
    if not files.row_counts.null_count:
        facts.append(counted(pc.sum(files.live_rows).as_py() or 0, "row"))
    return f"version {wanted.version} has {', '.join(facts)}"
