"""The places of matching rows: whether they are live, and which versions still have them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from delvec.delta.maintain.traces.report import TracePlace
from delvec.delta.read.load_vectors import load_vectors
from delvec.errors import DelvecError
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delvec.delta.log.file_set import DataFile
    from delvec.delta.maintain.traces.history import FileFacts, LogHistory
    from delvec.delta.maintain.traces.steps import Schedule
    from delvec.delta.maintain.traces.suspects import Suspect
    from delvec.storage import Storage

__all__ = ["row_places"]


def row_places(
    history: LogHistory, hits: Sequence[tuple[Suspect, Bitmap]], schedule: Schedule
) -> Iterator[TracePlace]:
    """Yield the places of matching rows.

    Only vectors of files with matching rows are loaded.

    Args:
        history: What the log says.
        hits: Files, and the positions of their matching rows.
        schedule: When what may be removed.
    """
    storage = history.snapshot.storage
    paths = pa.array([suspect.file.path for suspect, _ in hits], pa.string())
    files = [replace(suspect.file, descriptor=suspect.descriptor) for suspect, _ in hits]
    loaded = _vectors(storage, files)
    for (suspect, rows), vector, actions in zip(hits, loaded, history.of(paths), strict=True):
        is_live = suspect.version == history.snapshot.version and suspect.kind != "change"
        facts = history.facts(actions, is_live=is_live)
        if suspect.kind == "live":
            yield from _in_live_file(history, suspect, rows, vector, facts, schedule)
            continue
        versions = facts.versions
        if suspect.kind == "change" and suspect.version is not None:
            versions = (suspect.version, suspect.version)
        elif suspect.version is None:
            versions = None
        steps = schedule.of(suspect.kind, suspect.modified_ms, facts.removed_ms)
        file = suspect.file
        yield TracePlace(
            suspect.kind, file.path, rows.cardinality, file.size, versions, steps=steps
        )


def _in_live_file(
    history: LogHistory,
    suspect: Suspect,
    rows: Bitmap,
    vector: Bitmap | DelvecError | None,
    facts: FileFacts,
    schedule: Schedule,
) -> Iterator[TracePlace]:
    file, detail, deleted = suspect.file, "", Bitmap()
    if isinstance(vector, DelvecError):
        detail = f"its vector cannot be read, so rows may be deleted: {vector.describe()}"
    elif vector is not None:
        deleted = rows & vector
    if live := rows.cardinality - deleted.cardinality:
        steps = schedule.of("live", suspect.modified_ms)
        yield TracePlace("live", file.path, live, file.size, facts.versions, detail, steps)
    if deleted.cardinality:
        last = _last_with(history.snapshot.storage, file, facts, deleted)
        versions = None
        if last is not None and facts.versions is not None and facts.versions[0] <= last:
            versions = (facts.versions[0], last)
        steps = schedule.of("deleted", suspect.modified_ms)
        yield TracePlace(
            "deleted", file.path, deleted.cardinality, file.size, versions, steps=steps
        )


def _last_with(storage: Storage, file: DataFile, facts: FileFacts, rows: Bitmap) -> int | None:
    """Return the last version in which one of some rows was live; None if none can be read."""
    until: int | None = None
    for version, descriptor in reversed(facts.vectors):
        [vector] = _vectors(storage, [replace(file, descriptor=descriptor)])
        # A version whose vector is gone cannot be read.
        if not isinstance(vector, DelvecError) and not rows.issubset(vector or Bitmap()):
            return until
        until = version - 1
    return None


def _vectors(storage: Storage, files: Sequence[DataFile]) -> list[Bitmap | DelvecError | None]:
    """Load vectors; for one that cannot be read, why."""
    try:
        return list(load_vectors(storage, files))
    except DelvecError as error:
        if len(files) == 1:
            return [error]
        return [_vectors(storage, [file])[0] for file in files]
