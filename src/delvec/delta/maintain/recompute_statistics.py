"""COMPUTE STATS: statistics of files that have none, or whose bounds are wide, from their rows.

A deletion vector makes the bounds of its file wide: they hold for deleted rows as well, so that a
query reads files in which nothing is left to find. Here the live rows are read, of the indexed
columns alone, and the files are entered again with tight bounds. No data file is written.

Eight files are read at once. Memory holds the indexed columns of one row group of each, and the new
entries (some kilobytes each). After a conflict only files that have changed are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from delvec.delta.log.file_set import DataFile
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.maintain.available_files import add_again
from delvec.delta.read.data_file import open_data_file
from delvec.delta.read.row_statistics import compute_statistics, measured_columns
from delvec.delta.read.vectors import load_vectors
from delvec.delta.schema.traversal import walk
from delvec.delta.schema.types import PrimitiveType
from delvec.delta.skipping.predicate import Always, Predicate, columns_of, parse_filters
from delvec.delta.skipping.statistics import statistics_json
from delvec.delta.write.change import Change, Operation
from delvec.delta.write.transaction import Attempt, Outcome
from delvec.delta.write.writable import require_writable
from delvec.errors import InvalidArgumentError
from delvec.storage.parallel import gather
from delvec.vector import Bitmap

_Key: TypeAlias = tuple[str, str | None]


_AT_ONCE: Final = 8
_WINDOW: Final = 64
_TIGHT: Final = ("tightBounds",)


def recompute_statistics(
    where: Sequence[object] | None, time_zone: str
) -> Callable[[Attempt], Outcome]:
    """Prepare new statistics for files without, and for those with wide bounds."""
    known: dict[_Key, str] = {}
    computed_for: list[object] = []

    def prepare(attempt: Attempt) -> Outcome:
        snapshot = attempt.snapshot
        require_writable(snapshot, "alter")
        predicate = _partition_predicate(snapshot, where)
        with attempt.phase("plan"):
            chosen = _chosen(snapshot, predicate, time_zone)
        pruned = len(snapshot.files) - len(chosen)
        figures = {"files_scanned": len(chosen), "files_pruned": pruned}
        if not len(chosen):
            return Outcome(None, figures, ("all files have statistics with tight bounds",))
        if attempt.options.dry_run:
            note = f"the live rows of {len(chosen):,} files would be read"
            return Outcome(None, figures, (note,))
        if computed_for != (now := [snapshot.metadata, snapshot.protocol.has_vectors]):
            known.clear()  # other columns, or other types
            computed_for[:] = now
        with attempt.phase("find"):
            files = snapshot.files.data_files(chosen)
            _compute(snapshot, [file for file in files if _key(file) not in known], known)
        bodies = tuple(
            add_again(entry, data_change=False) | {"stats": known[_key(file)]}
            for entry, file in zip(snapshot.files.entries(chosen), files, strict=True)
        )
        shown = ["true"] if where is None else [str(each) for each in where]
        operation = Operation("COMPUTE STATS", {"predicate": shown}, {"numFiles": len(bodies)})
        return Outcome(Change(operation, re_added=bodies, data_change=False), figures)

    return prepare


def _partition_predicate(snapshot: Snapshot, where: Sequence[object] | None) -> Predicate:
    if where is None:
        return Always()
    names = snapshot.metadata.partition_columns
    hint = f"the table is partitioned by {', '.join(names)}" if names else None
    if not isinstance(where, list | tuple):
        raise InvalidArgumentError(
            f"recompute_statistics() takes tuples such as [('day', '=', '2026-01-31')], not"
            f" {where!r}",
            hint=hint,
        )
    predicate = parse_filters(where, snapshot.metadata.schema)
    partitions = {field.name for field in snapshot.metadata.partition_fields}
    others = sorted({".".join(each) for each in columns_of(predicate)} - partitions)
    if others:
        raise InvalidArgumentError(
            f"recompute_statistics() chooses files by partition columns, and {others[0]} is none",
            hint=hint or "the table has no partitions: leave `where` out",
        )
    return predicate


def _chosen(snapshot: Snapshot, predicate: Predicate, time_zone: str) -> NDArray[np.int64]:
    """Return the files that need statistics: those with wide bounds, and those without any."""
    files, schema = snapshot.files, measured_columns(snapshot.metadata)
    paths = [
        tuple(field.physical_name for field in path)
        for path in walk(schema, structs_only=True)
        if isinstance(path[-1].type, PrimitiveType)
    ]
    # The null count of one column tells whether a file has statistics of columns at all.
    counted = [("nullCount", *paths[0])] if paths else []
    found = files.statistics({_TIGHT: pa.bool_(), **dict.fromkeys(counted, pa.int64())})
    said = found[_TIGHT]
    flags = [None] * len(files) if said is None else said.to_pylist()
    is_tight, is_wide = (
        np.array([flag is value for flag in flags], dtype=np.bool_) for value in (True, False)
    )
    needed = is_wide | (files.has_vector & ~is_tight)
    for column in (files.row_counts, *(found[name] for name in counted)):
        unknown = True if column is None else column.is_null().to_numpy(zero_copy_only=False)
        needed |= unknown
    return np.flatnonzero(needed & files.may_match(predicate, time_zone))


def _key(file: DataFile) -> _Key:
    return file.path, None if file.descriptor is None else file.descriptor.unique_id


def _compute(snapshot: Snapshot, files: Sequence[DataFile], known: dict[_Key, str]) -> None:
    """Compute the statistics of files as JSON, and add them to those that are known."""
    storage, metadata = snapshot.storage, snapshot.metadata
    schema, tight = measured_columns(metadata), snapshot.protocol.has_vectors

    def compute(pair: tuple[DataFile, Bitmap | None]) -> str:
        file, vector = pair
        with open_data_file(storage, file, schema, mapping_mode=metadata.mapping_mode) as data:
            found = compute_statistics(data, vector, metadata, tight_bounds=tight)
        return statistics_json(found)

    for start in range(0, len(files), _WINDOW):
        # Without the count of the log: some writers count live rows, which is corrected here.
        window = [replace(file, row_count=None) for file in files[start : start + _WINDOW]]
        pairs = zip(window, load_vectors(storage, window), strict=True)
        texts = gather(compute, pairs, threads=_AT_ONCE)
        known |= zip(map(_key, window), texts, strict=True)
