"""What a purge and a vacuum of a Delta table would free.

The folder is listed once. Files that no live entry refers to are either for a vacuum now, or still
retained: both sums are of files that are there. Memory: 8 bytes for each file that the log refers
to, and 100 for each listed file that no live entry refers to.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.maintain.compaction import live_bytes
from delvec.delta.maintain.references import KeySet, references
from delvec.delta.maintain.retention import HOUR_MS, retention_of
from delvec.delta.maintain.vacuum.candidates import folds_names
from delvec.delta.maintain.vacuum.listing import unreferenced_files
from delvec.delta.maintain.vacuum.search import without_recent
from delvec.delta.write.writable import require_writable
from delvec.errors import FormatError, UnsupportedFeatureError
from delvec.inspection.figures import Freed, Rewritten

if TYPE_CHECKING:
    from collections.abc import Callable

    from delvec.delta.log.commit_times import CommitTimes
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.maintain.retention import Retention

__all__ = ["LISTED", "freed"]

LISTED: Final = 100_000
"""The live files of a table whose folder is listed without being asked for it."""

_EVER: Final = 1 << 62


def freed(
    snapshot: Snapshot,
    times: CommitTimes,
    *,
    is_newest: bool,
    listing: bool | None,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Freed:
    """Return what a purge would free, by the log, and what a vacuum would, by a listing.

    Args:
        snapshot: The version.
        times: The commits up to it.
        is_newest: Whether it is the newest, which alone a vacuum looks at.
        listing: Whether to list the folder; None to do so if the table has few live files.
        on_progress: See `DeltaTable.vacuum`.
    """
    found = Freed(rewrite=_purged(snapshot))
    try:
        retention = retention_of(snapshot)
        require_writable(snapshot, "vacuum")
    except (FormatError, UnsupportedFeatureError) as error:
        return replace(found, why_unknown=error.message)
    found = replace(found, retention_hours=retention.length_ms / HOUR_MS)
    if not is_newest:
        return replace(found, why_unknown="it is about the newest version")
    if listing is None and len(snapshot.files) > LISTED:
        return replace(
            found, why_unknown=f"over {LISTED:,} files; listing=True, or --listing, lists them"
        )
    if listing is False:
        return replace(found, why_unknown="the folder was not to be listed")
    dead = _dead_files(snapshot, retention, on_progress)
    found = replace(found, vacuum=dead.bytes, vacuum_files=dead.files, later=dead.retained)
    return _with_first_kept(found, times, retention.before_ms) if dead.files else found


def _purged(snapshot: Snapshot) -> Rewritten:
    files = snapshot.files
    chosen = files.has_vector
    written = int(live_bytes(files)[chosen].sum())
    return Rewritten(int(chosen.sum()), int(files.sizes[chosen].sum()), written)


@dataclass(frozen=True)
class _Dead:
    """Files that no live entry refers to: what a vacuum deletes now, and what it keeps for now."""

    files: int
    bytes: int
    retained: int


def _dead_files(
    snapshot: Snapshot, retention: Retention, on_progress: Callable[[str, int, int], None] | None
) -> _Dead:
    """Find the files that a vacuum deletes, as it does, and those that it will delete later.

    Files that the log never named are not counted before a vacuum deletes them: they may be of a
    writer that has not committed yet.
    """
    folds = folds_names(snapshot.storage)
    # Those of live files come first, so each set is made while they are read.
    parts = groupby(references(snapshot, retention.before_ms), key=attrgetter("is_live"))
    sets = {live: KeySet((each.keys for each in part), folds=folds) for live, part in parts}
    live, retained = sets[True], sets.get(False, KeySet(()))
    found = unreferenced_files(snapshot.storage, snapshot.metadata, live, _EVER, on_progress)
    paths = found.files["path"]
    chunks = [retained.contains(chunk.to_pylist()) for chunk in paths.chunks]
    is_retained = np.concatenate([np.empty(0, dtype=np.bool_), *chunks])
    modified = found.files["modified"].cast(pa.int64()).to_numpy()
    old = replace(found, files=found.files.filter(~is_retained & (modified < retention.before_ms)))
    gone = without_recent(snapshot, old, retention)
    kept = pc.sum(found.files["bytes"].filter(pa.array(is_retained)), min_count=0).as_py()
    return _Dead(gone.files.num_rows, gone.bytes, int(kept) + old.bytes - gone.bytes)


def _with_first_kept(found: Freed, times: CommitTimes, before_ms: int) -> Freed:
    """Add the version that was current when the retention began; those before it lose files."""
    low, high = times.comparable(before_ms)
    place = bisect_right(times.commits, before_ms, low, high, key=times.of) - 1
    if place <= 0:
        return found
    first = times.commits[place]
    return replace(found, first_kept=first.first, first_kept_ms=times.of(first))
