"""The places of values in a log, without those that can be of other rows only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.names import LAST_CHECKPOINT, LOG, latest_version
from delvec.delta.maintain.traces.files import inside_names
from delvec.delta.maintain.traces.log import search_log
from delvec.delta.maintain.traces.report import TracePlace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.maintain.traces.files import StoredFiles
    from delvec.delta.maintain.traces.history import LogHistory
    from delvec.delta.maintain.traces.log import Mention
    from delvec.delta.maintain.traces.steps import Schedule
    from delvec.delta.maintain.traces.values import NamedValues

__all__ = ["log_places"]


def log_places(
    history: LogHistory,
    stored: StoredFiles,
    values: Sequence[NamedValues],
    places: Sequence[TracePlace],
    schedule: Schedule,
) -> list[TracePlace]:
    """Return the files of the log that mention a value of the condition.

    Statistics and partition values of a file that is there, and has no row that matches, are those
    of other rows: they count for nothing.

    Args:
        history: What the log says.
        stored: What is below the table's folder.
        values: What to look for; nothing is read if there is none.
        places: Where matching rows were found.
        schedule: When what may be removed.
    """
    if not values:
        return []
    storage, log = history.snapshot.storage, stored.of("log")
    sizes = {path: size for path, size, _ in log.entries() if path != LAST_CHECKPOINT}
    mentions = search_log(storage, list(sizes), values)
    innocent = _Innocent(stored, {place.path for place in places})
    is_live = _is_live(history.snapshot.files, values, innocent)
    has_live_rows = any(place.kind == "live" for place in places)
    times = _partition_times(history, values)
    found = []
    for each in mentions:
        what = {kind for path, kind in innocent.without(each.paths)} | _texts(each)
        if not what and not each.failure:
            continue
        version = _version(each.key)
        found.append(
            TracePlace(
                "unreadable" if each.failure else "log",
                each.key,
                None,
                sizes[each.key],
                None if version is None else (version, version),
                each.failure or ", ".join(sorted(what)),
                schedule.log(
                    version, is_live=is_live, has_live_rows=has_live_rows, removed_ms=times
                ),
            )
        )
    return found


def _texts(mention: Mention) -> set[str]:
    return set(mention.what - {kind for _, kind in mention.paths})


class _Innocent:
    """Files that are there and have no row that matches."""

    def __init__(self, stored: StoredFiles, guilty: set[str]) -> None:
        self._stored, self._guilty = stored, pa.array(sorted(guilty), pa.string())

    def without(self, paths: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the entries that are not of such files."""
        kept = ~self.are([path for path, _ in paths])
        return [each for each, is_kept in zip(paths, kept.tolist(), strict=True) if is_kept]

    def are(self, paths: Iterable[str]) -> NDArray[np.bool_]:
        """Return which of some files are such."""
        names = pa.array(list(paths), pa.string())
        there = pc.is_in(names, value_set=self._stored.paths)
        mask = pc.and_not(there, pc.is_in(names, value_set=self._guilty))
        innocent: NDArray[np.bool_] = mask.to_numpy(zero_copy_only=False)
        return innocent


def _is_live(files: FileSet, values: Sequence[NamedValues], innocent: _Innocent) -> bool:
    """Return whether entries of live files mention a value."""
    partitions = {field.physical_name for field in files.metadata.partition_fields}
    mentioned = np.zeros(len(files), dtype=np.bool_)
    for each in values:
        if each.physical[0] in partitions:
            mentioned |= each.among_partitions(files.partition_strings(each.physical[0]))
            continue
        bounds = {(name, *each.physical): each.arrow for name in ("minValues", "maxValues")}
        for column in files.statistics(bounds).values():
            if column is not None:
                mentioned |= each.among(column)
    names = inside_names(files.paths.filter(pa.array(mentioned)), files.root)
    return bool((~innocent.are(names.to_pylist())).any())


def _partition_times(history: LogHistory, values: Sequence[NamedValues]) -> int | None:
    """Return when the last file was removed that has a value as its partition value.

    Checkpoints keep its tombstone, and the value in it, until that expires. None without such a
    file; the present if one is still live.
    """
    names = {field.physical_name for field in history.snapshot.metadata.partition_fields}
    removes = history.actions.filter(pc.equal(history.actions["kind"], "remove"))
    times = []
    for each in values:
        if each.physical[0] not in names:
            continue
        maps = removes["partitionValues"].combine_chunks()
        found = each.among_partitions(pc.map_lookup(maps, each.physical[0], "first"))
        times += removes["time"].filter(pa.array(found)).drop_null().to_pylist()
        live = history.snapshot.files.partition_strings(each.physical[0])
        times += [int(time.time() * 1000)] if each.among_partitions(live).any() else []
    return max(times, default=None)


def _version(key: str) -> int | None:
    """Return the last version that a file of the log is about; None for a sidecar."""
    folder, _, name = key.rpartition("/")
    return latest_version(name) if folder in (LOG, f"{LOG}/_staged_commits") else None
