"""COMPUTE STATS: statistics of files that have none, or whose bounds are wide, from their rows.

A deletion vector makes the bounds of its file wide: they hold for deleted rows as well, so that a
query reads files in which nothing is left to find. Here the live rows are read, of the indexed
columns alone, and the files are entered again with tight bounds. No data file is written.

Eight files are read at once. Memory holds the indexed columns of one row group of each, and the new
entries (some kilobytes each), formatted as those from footers. After a conflict only files that
have changed are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.log.file_set import DataFile
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.maintain.available_files import add_again
from delvec.delta.read.data_file import ParquetData, open_data_file
from delvec.delta.read.footer_statistics import NULLS, Form, as_logged, form_of
from delvec.delta.read.vectors import load_vectors
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.traversal import walk
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.delta.skipping.predicate import Always, Predicate, columns_of, parse_filters
from delvec.delta.skipping.statistics import indexed_columns, prefix_length, statistics_json
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


def measured_columns(metadata: Metadata) -> StructType:
    """Return the indexed columns that have statistics: no arrays, maps and variants."""
    return StructType(_measured(indexed_columns(metadata).fields))


def _measured(fields: Sequence[Field]) -> tuple[Field, ...]:
    kept = []
    for field in fields:
        if isinstance(field.type, StructType):
            inner = _measured(field.type.fields)
            kept += [replace(field, type=StructType(inner))] if inner else []
        elif isinstance(field.type, PrimitiveType) and field.type.name != "variant":
            kept.append(field)
    return tuple(kept)


def compute_statistics(
    data: ParquetData, vector: Bitmap | None, metadata: Metadata, *, tight_bounds: bool
) -> dict[str, Any]:
    """Return the statistics of the live rows of a file, by physical names.

    The number of records is that of all rows; null counts and bounds are those of live rows.
    """
    rows = data.row_starts[-1]
    data.check_vector(vector)
    prefix = prefix_length(metadata)
    leaves = [
        (
            path,
            _Leaf(
                data.schema.names.index(path[0].name),
                [each.name for each in path[1:]],
                form_of(kind, prefix),
            ),
        )
        for path in walk(data.schema, structs_only=True)
        if isinstance(kind := path[-1].type, PrimitiveType)
    ]
    for group in range(len(data.row_starts) - 1):
        for _, columns in data.read_group(group, vector):
            for _, leaf in leaves:
                leaf.measure(columns)
    found = ((path, leaf.statistics()) for path, leaf in leaves)
    return as_logged(rows, found, tight_bounds=tight_bounds)


@dataclass
class _Leaf:
    """A column of a primitive type, and what its values have been so far."""

    place: int  # the position of its outermost column; `inner` is the path from there
    inner: Sequence[str]
    form: Form | None  # how its bounds are shown; None if it has none
    nulls: int = 0
    low: Any = None
    high: Any = None
    has_nan: bool = False

    def measure(self, columns: Sequence[pa.Array]) -> None:
        values = columns[self.place]
        values = pc.struct_field(values, self.inner) if self.inner else values
        self.nulls += values.null_count
        if self.form is None:
            return
        values = self._comparable(values)
        low, high = (each.as_py() for each in pc.min_max(values).values())
        if low is not None:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)

    def _comparable(self, values: pa.Array) -> pa.Array:
        """Return values in the form that bounds are shown from, without NaN."""
        if pa.types.is_floating(values.type):
            is_nan = pc.is_nan(values)
            self.has_nan |= bool(pc.any(is_nan).as_py())
            return values.filter(pc.invert(is_nan)) if self.has_nan else values
        if pa.types.is_string(values.type):
            return values.cast(pa.binary())
        if pa.types.is_date(values.type):
            return values.view(pa.int32())
        return values.view(pa.int64()) if pa.types.is_timestamp(values.type) else values

    def statistics(self) -> dict[str, Any]:
        """Return the number of nulls, and the bounds of all values; a NaN is above all others."""
        high = None if self.has_nan else self.high
        return {NULLS: self.nulls} | (self.form.shown(self.low, high) if self.form else {})
