"""The statistics of the log against the rows of some files: a wrong bound makes rows vanish.

Queries skip files by these bounds, so a live value outside of them is never found. The chosen files
are read as a whole, four at a time; in memory is a row group of each, and of the log the entries of
the chosen files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.check.report import finding_of
from delvec.delta.log.actions import JsonActions
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.replay import read_added_files
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.scan import Scan, read_file
from delvec.delta.read.vectors import load_vector
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.traversal import walk
from delvec.delta.schema.types import PrimitiveType
from delvec.delta.write.commit_actions import encode_lines
from delvec.errors import FormatError, StorageError, UnsupportedFeatureError
from delvec.report.findings import Finding, Findings
from delvec.report.hints import call, format_hint
from delvec.storage import Storage
from delvec.storage.parallel import gather

_AT_ONCE: Final = 4
_WRONG: Final = format_hint(
    "queries do not find these rows: {} corrects this file, {} all files",
    call("check", repair=True),
    call("recompute_statistics"),
)


def check_statistics(
    snapshot: Snapshot, files: FileSet, usable: NDArray[np.bool_], sample: int, findings: Findings
) -> tuple[int, list[str]]:
    """Compare some files with their statistics; return how many, and paths of those that differ."""
    chosen = _chosen(files, usable, sample)
    entries = files.entries(chosen)

    def compare(body: Mapping[str, Any]) -> list[str] | Finding:
        path = body["path"]
        try:
            return list(faults_of(snapshot.storage, snapshot.metadata, body))
        except UnsupportedFeatureError as error:
            return finding_of(error, "not-compared", path, severity="info")
        except (FormatError, StorageError) as error:
            return finding_of(error, "unreadable-file", path, hint="restore it from a copy")
        except (pa.ArrowException, UnicodeDecodeError) as error:
            message = f"the data file cannot be read ({' '.join(str(error).split())[:200]})"
            return Finding("error", "unreadable-file", path, message, "restore it from a copy")

    wrong = []
    results = gather(compare, [each.add for each in entries], _AT_ONCE)
    for entry, found in zip(entries, results, strict=True):
        if isinstance(found, Finding):
            findings.add(replace(found, path=entry.path))
        elif found:
            wrong.append(entry.path)
            message = f"its statistics in the log are wrong: {'; '.join(found)}"
            findings.add(Finding("error", "wrong-statistics", entry.path, message, _WRONG))
    return len(chosen), wrong


def _chosen(files: FileSet, usable: NDArray[np.bool_], sample: int) -> list[int]:
    """Return the numbers of files at equal distances: of those with vectors, then of all."""
    marked = np.flatnonzero(usable & files.has_vector)
    first = _spread(marked, -(-sample // 2))
    others = np.setdiff1d(np.flatnonzero(usable), first)
    return sorted([*first.tolist(), *_spread(others, sample - len(first)).tolist()])


def _spread(numbers: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    if count >= len(numbers):
        return numbers
    return numbers[np.linspace(0, len(numbers) - 1, count).astype(np.int64)]


@dataclass(frozen=True)
class _Column:
    """A column with statistics, and what they say of one file; None where they say nothing."""

    path: tuple[str, ...]
    low: pa.Scalar | None
    high: pa.Scalar | None
    nulls: int | None

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        found = batch.column(self.path[0])
        for name in self.path[1:]:
            found = pc.struct_field(found, [name])
        return found


def faults_of(storage: Storage, metadata: Metadata, body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the statistics of one file; all its rows are read."""
    root = storage.root
    files = read_added_files(metadata, root, JsonActions(root, encode_lines([{"add": body}])))
    columns = list(_columns(files))
    if not columns:
        return
    [file] = files.data_files()
    vector = load_vector(storage, file.path, file.descriptor) if file.descriptor else None
    names = tuple(dict.fromkeys(column.path[0] for column in columns))
    scan = Scan(
        metadata.schema, metadata.partition_columns, names, mapping_mode=metadata.mapping_mode
    )
    rows, nulls, faults = 0, [0] * len(columns), dict[tuple[int, str], str]()
    for batch in read_file(storage, replace(file, row_count=None), scan, vector=vector):
        rows += batch.num_rows
        for number, column in enumerate(columns):
            values = column.values(batch)
            nulls[number] += values.null_count
            for side, fault in _outside(column, values):
                faults.setdefault((number, side), fault)
    yield from faults.values()
    physical = files.row_counts[0].as_py()
    for column, count in zip(columns, nulls, strict=True):
        yield from _null_faults(column, count, rows, physical)


def _columns(files: FileSet) -> Iterator[_Column]:
    partitions = {field.name for field in files.metadata.partition_fields}
    for fields in walk(files.metadata.schema, structs_only=True):
        kind = fields[-1].type
        is_skipped = fields[0].name in partitions or fields[0].char_type
        if is_skipped or not isinstance(kind, PrimitiveType) or kind.name in ("variant", "void"):
            continue
        path = tuple(field.name for field in fields)
        physical = tuple(field.physical_name for field in fields)
        bounds = files.bounds(path, "UTC")
        counts = files.statistic(("nullCount", *physical), pa.int64())
        both = (None, None) if bounds is None else (bounds.minimum, bounds.maximum)
        low, high, nulls = (
            None if each is None or not each[0].is_valid else each[0] for each in (*both, counts)
        )
        if low is not None or high is not None or nulls is not None:
            yield _Column(path, low, high, None if nulls is None else nulls.as_py())


def _outside(column: _Column, values: pa.Array) -> Iterator[tuple[str, str]]:
    """Yield a value below the minimum, and one above the maximum; NaN is neither."""
    name = ".".join(column.path)
    sides = ("minimum", column.low, pc.less), ("maximum", column.high, pc.greater)
    for side, limit, is_outside in sides:
        if limit is None:
            continue
        outside = values.filter(is_outside(values, limit))
        if len(outside):
            found = f"{side} of {name} is {limit.as_py()!r}, and a row has {outside[0].as_py()!r}"
            yield side, found


def _null_faults(column: _Column, nulls: int, rows: int, physical: int | None) -> Iterator[str]:
    """Yield what queries for null, or for anything else, would conclude wrongly."""
    name = ".".join(column.path)
    if column.nulls == 0 and nulls:
        yield f"nullCount of {name} is 0, and {nulls:,} rows are null"
    # Without tight bounds only "all rows of the file" means something.
    if column.nulls is not None and column.nulls == physical and nulls < rows:
        yield f"nullCount of {name} is that of all rows, and {rows - nulls:,} rows are not null"
