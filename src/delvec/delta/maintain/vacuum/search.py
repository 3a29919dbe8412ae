"""What a vacuum deletes: what the newest version does not refer to, and no recent commit either."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.maintain.recent_commits import commits_since, commits_until, read_commits
from delvec.delta.maintain.references import KeySet, commit_references
from delvec.delta.maintain.vacuum.candidates import folds_names
from delvec.delta.maintain.vacuum.listing import unreferenced_files
from delvec.delta.maintain.vacuum.lite import removed_files, vacuumed_until
from delvec.delta.schema.hidden_names import CHANGES
from delvec.delta.schema.properties import ENABLE_CHANGE_DATA_FEED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.maintain.retention import Retention
    from delvec.delta.maintain.vacuum.candidates import Candidates

__all__ = ["search", "without_recent"]


def search(
    snapshot: Snapshot,
    kept: KeySet,
    retention: Retention,
    *,
    lite: bool,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> tuple[Candidates, int | None]:
    """Return the files to delete, and the last version whose removed files are among them.

    The version is None if the record of it, from which a lite vacuum starts, is to stay.
    """
    before = retention.before_ms
    if lite:
        found, last = removed_files(snapshot, kept, before)
    else:
        found = unreferenced_files(snapshot.storage, snapshot.metadata, kept, before, on_progress)
        last = _covered_until(snapshot, found, before)
    return without_recent(snapshot, found, retention), last


def _covered_until(snapshot: Snapshot, found: Candidates, before_ms: int) -> int | None:
    """Return the last version whose removed files a listing has found for sure.

    A lite vacuum goes on from there. In a copy of a table, files may be younger than their
    tombstones: a listing leaves those.
    """
    if found.files_young:
        return None
    expired = commits_until(snapshot, before_ms)
    known = vacuumed_until(snapshot.storage)
    last = expired[-1].last if expired else -1
    return last if last > (-1 if known is None else known) else None


def without_recent(snapshot: Snapshot, found: Candidates, retention: Retention) -> Candidates:
    """Keep files that only recent commits refer to, if there may be some; reads these commits.

    Change files are in no checkpoint. Tombstones are, for as long as the table says: a caller who
    asks for a longer retention gets it, as far as the log reaches back.
    """
    paths = found.files["path"]
    is_longer = retention.length_ms > retention.table_ms
    has_changes = snapshot.metadata.is_on(ENABLE_CHANGE_DATA_FEED) or bool(
        pc.any(pc.starts_with(paths, f"{CHANGES}/")).as_py()
    )
    if not len(paths) or not (is_longer or has_changes):
        return found
    recent = KeySet(
        _recent_keys(snapshot, retention.before_ms), folds=folds_names(snapshot.storage)
    )
    is_recent = np.concatenate([recent.contains(chunk.to_pylist()) for chunk in paths.chunks])
    if not is_recent.any():
        return found
    files = found.files.filter(pa.array(~is_recent))
    return replace(found, files=files, files_kept=found.files_kept + int(is_recent.sum()))


def _recent_keys(snapshot: Snapshot, since_ms: int) -> Iterator[pa.Array]:
    commits = commits_since(snapshot, since_ms)
    for actions in read_commits(snapshot.storage, commits):
        for each in commit_references(actions, snapshot.table, since_ms):
            yield each.keys
