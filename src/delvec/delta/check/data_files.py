"""Data files compared with the log: those of a version, and orphans that nothing refers to.

    sizes, orphans    one listing of the folder; files elsewhere, as in shallow clones, a HEAD each
    rows              the footer of each file: one GET each, 32 at a time
    references        tombstones, and the commits within the retention of removed files
    statistics        of some files, which are read as a whole, four at a time: queries skip files
                      by bounds, so a live value outside of them is never found

Memory: 100 bytes for each name in the folder, and 8 for each file that the log refers to.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.check.report import LOG_DAMAGE, finding_of, log_damage
from delvec.delta.log.actions import JsonActions
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.paths import LOG, NameRules, inside_names
from delvec.delta.log.replay import read_added_files
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.footer_statistics import read_parquet_footer
from delvec.delta.read.scan import Scan, read_file
from delvec.delta.read.vectors import load_vector
from delvec.delta.schema.metadata import Metadata, removed_files_kept_ms
from delvec.delta.schema.partition_values import parse_partition_value
from delvec.delta.schema.traversal import walk
from delvec.delta.schema.types import PrimitiveType
from delvec.delta.vacuum.candidates import folds_names, kind_of, table_of
from delvec.delta.vacuum.references import KeySet, commit_references, references
from delvec.delta.vacuum.retention import commits_since, read_commits
from delvec.delta.write.commit_actions import encode_lines
from delvec.errors import (
    FormatError,
    InvalidArgumentError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from delvec.report.findings import Finding, Findings, Severity
from delvec.report.format import format_count, format_size
from delvec.report.hints import call, format_hint
from delvec.storage import FileInfo, Storage
from delvec.storage.listed_files import file_columns, open_listed_file
from delvec.storage.parallel import gather, map_in_order

_AT_ONCE: Final = 32
_IN_FLIGHT: Final = 1_000
_NAMES_AT_ONCE: Final = 10_000
_UNKNOWN: Final = -1
FILE_GONE: Final = (
    "restore it from a copy, or restore the table to a version without it; nothing else can bring"
    " its rows back"
)
_ODD: Final = (
    "no file that a table can have: a link to a folder, to nothing or in circles, a pipe, or a name"
    " that is not UTF-8"
)
_ODD_HINT: Final = "no reader needs it: remove it, if nobody else does"
_RECOUNT: Final = format_hint("{} writes the count of the footer", call("check", repair=True))
_SAMPLED_AT_ONCE: Final = 4
_WRONG: Final = format_hint(
    "queries do not find these rows: {} corrects this file, {} all files",
    call("check", repair=True),
    call("recompute_statistics"),
)


@dataclass(frozen=True)
class TableFolder:
    """The files below a table's root, those of the log excepted; `keys` are relative to it."""

    root: str
    keys: pa.Array
    sizes: NDArray[np.int64]
    modified_ms: NDArray[np.int64]

    @cached_property
    def vector_sizes(self) -> dict[str, int]:
        """The sizes of the files that are named as those of vectors are."""
        chosen = np.flatnonzero(pc.ends_with(self.keys, ".bin").to_numpy(zero_copy_only=False))
        keys = self.keys.take(pa.array(chosen)).to_pylist()
        return dict(zip(keys, self.sizes[chosen].tolist(), strict=True))

    def sizes_of(self, paths: pa.Array) -> NDArray[np.int64]:
        """Return the sizes of files by their paths; -1 for those that are not there."""
        found = np.full(len(paths), _UNKNOWN, dtype=np.int64)
        places = pc.index_in(inside_names(paths, self.root), value_set=self.keys)
        there = places.is_valid().to_numpy(zero_copy_only=False)
        found[there] = self.sizes[places.drop_null().to_numpy()]
        return found


def list_folder(storage: Storage, findings: Findings) -> TableFolder:
    """List all files below a table's root; entries that are none are findings."""
    odd: list[str] = []
    files = file_columns(_plain_files(storage, odd.append))
    findings.extend(map(_odd, odd))
    return TableFolder(
        storage.root,
        files["path"].combine_chunks(),
        files["bytes"].to_numpy(),
        files["modified"].cast(pa.int64()).to_numpy(),
    )


def check_data_files(
    storage: Storage,
    files: FileSet,
    folder: TableFolder,
    findings: Findings,
    progress: Callable[[str, int, int], None],
) -> tuple[NDArray[np.int64], list[str]]:
    """Look for each live file, read its footer, and compare both with the log.

    Returns:
        The rows of each by its footer, -1 where it cannot be read; and the paths of those of which
        the log says another number.
    """
    listed = folder.sizes_of(files.paths)
    counts = files.row_counts.fill_null(_UNKNOWN).to_numpy()
    rows = np.full(len(files), _UNKNOWN, dtype=np.int64)
    miscounted: list[str] = []

    def look(index: int) -> tuple[int, int | Finding]:
        path, size = files.paths[index].as_py(), int(files.sizes[index])
        return index, _looked_at(storage, path, size, int(listed[index]))

    items = ((index, 1) for index in range(len(files)))
    for index, result in map_in_order(look, items, threads=_AT_ONCE, budget=_IN_FLIGHT):
        progress("data files", index + 1, len(files))
        if isinstance(result, Finding):
            findings.add(result)
            continue
        rows[index] = result
        if counts[index] not in (_UNKNOWN, result):
            miscounted.append(files.paths[index].as_py())
            message = (
                f"the log has a wrong row count: expected {result} rows, by the footer, found"
                f" numRecords {int(counts[index])}"
            )
            findings.add(Finding("error", "wrong-row-count", miscounted[-1], message, _RECOUNT))
    findings.extend(_wrong_partition_values(files))
    return rows, miscounted


def check_orphans(
    snapshot: Snapshot, files: FileSet, folder: TableFolder, findings: Findings
) -> tuple[int, int]:
    """Find orphan files; return how many there are, and their bytes.

    Hidden names and folders of other tables are left alone, as by a vacuum.
    """
    since_ms = int(time.time() * 1000) - removed_files_kept_ms(snapshot.metadata.configuration)
    try:
        folds = folds_names(snapshot.storage)
        kept = KeySet(_referred(snapshot, files, since_ms), folds=folds)
    except LOG_DAMAGE as error:
        # What the log refers to cannot be told; other checks say why.
        found = log_damage(error)
        findings.add(replace(found, severity="info", kind="orphans-unknown"))
        return 0, 0
    orphans = _unreferred(snapshot, folder, kept)
    by_kind: dict[str, list[int]] = defaultdict(list)
    for index in orphans:
        by_kind[kind_of(folder.keys[index].as_py())].append(index)
    for kind, members in by_kind.items():
        old = sum(int(folder.modified_ms[index]) < since_ms for index in members)
        total = format_size(int(folder.sizes[members].sum()))
        path, name = folder.keys[members[0]].as_py(), f"orphan-{kind.replace(' ', '-')}"
        message = f"nobody refers to {format_count(len(members), kind)}, such as this one: {total}"
        hint = format_hint(
            "{} removes {} of them now, and others when they are older than the retention:"
            " they may be those of a write that is still running",
            call("vacuum"),
            f"{old:,}",
        )
        findings.add(Finding("info", name, path, message, hint))
    return len(orphans), int(folder.sizes[orphans].sum())


def _plain_files(storage: Storage, on_odd: Callable[[str], None]) -> Iterator[FileInfo]:
    for info in storage.list(recursive=True, on_odd=on_odd):
        if info.key.encode(errors="replace").decode() != info.key:
            on_odd(info.key)  # not UTF-8: no log can refer to it
        elif not info.key.startswith(f"{LOG}/"):
            yield info


def _odd(key: str) -> Finding:
    shown = key.encode(errors="backslashreplace").decode()
    # In the log it may be there instead of a file.
    severity: Severity = "warning" if key.startswith(f"{LOG}/") else "info"
    return Finding(severity, "odd-entry", shown, _ODD, _ODD_HINT)


def _looked_at(storage: Storage, path: str, logged: int, listed: int) -> int | Finding:
    """Return the rows of a data file, or what is wrong with it."""
    try:
        place, key = open_listed_file(storage, path)
    except InvalidArgumentError as error:
        return finding_of(error, "unreadable-file", path)
    except FormatError as error:
        return Finding("warning", "other-store", path, f"not looked at: {error.describe()}")
    try:
        size = place.size(key) if listed == _UNKNOWN else listed
        if size != logged:
            message = f"the data file has another size: expected {logged} bytes, found {size}"
            hint = "somebody has changed it: restore it from a copy"
            return Finding("error", "wrong-size", path, message, hint)
        return _footer_rows(place, key, size)
    except ObjectNotFoundError:
        return Finding("error", "missing-file", path, "the data file is gone", FILE_GONE)
    except (FormatError, StorageError, InvalidArgumentError) as error:  # the last for its name
        return finding_of(error, "unreadable-file", path, hint="restore it from a copy")


def _footer_rows(place: Storage, key: str, size: int) -> int:
    """Return the rows of a file by its footer; lengths in it are compared with the file's size."""
    footer = read_parquet_footer(place, key, size)
    groups = sum(footer.row_group(n).num_rows for n in range(footer.num_row_groups))
    if groups != footer.num_rows:
        raise FormatError(
            "the row groups do not add up to the rows of the file",
            path=place.uri_of(key),
            expected=f"{footer.num_rows} rows",
            found=f"{groups} rows",
        )
    return int(footer.num_rows)


def _wrong_partition_values(files: FileSet) -> Iterator[Finding]:
    """Yield partition values that are no values of their columns; each distinct one once."""
    for field in files.metadata.partition_fields:
        strings = files.partition_strings(field.physical_name)
        for text in strings.unique().to_pylist():
            try:
                parse_partition_value(text, field.type)
            except FormatError as error:  # noqa: PERF203 - for distinct values only
                index = pc.index(strings, text).as_py()
                yield finding_of(error, "wrong-partition-value", files.paths[index].as_py())


def _referred(snapshot: Snapshot, files: FileSet, since_ms: int) -> Iterator[pa.Array]:
    """Yield the keys of files that live entries, tombstones and recent commits refer to."""
    for each in references(snapshot, files=files):
        yield each.keys
    for actions in read_commits(snapshot.storage, commits_since(snapshot, since_ms)):
        yield from (each.keys for each in commit_references(actions, snapshot.table))


def _unreferred(snapshot: Snapshot, folder: TableFolder, kept: KeySet) -> list[int]:
    rules = NameRules.of(snapshot.metadata)
    orphans: list[int] = []
    inner: set[str] = set()
    for start in range(0, len(folder.keys), _NAMES_AT_ONCE):
        keys = folder.keys.slice(start, _NAMES_AT_ONCE).to_pylist()
        inner |= {table for key in keys if (table := table_of(key)) is not None}
        orphans += [
            start + at
            for at in np.flatnonzero(~kept.contains(keys)).tolist()
            # A folder in a bucket may be listed as an empty file.
            if not rules.is_hidden(keys[at]) and folder.sizes[start + at]
        ]
    within = tuple(f"{each}/" for each in inner)
    return [each for each in orphans if not folder.keys[each].as_py().startswith(within)]


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
    results = gather(compare, [each.add for each in entries], _SAMPLED_AT_ONCE)
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
