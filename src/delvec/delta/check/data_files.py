"""Data files compared with the log: those of a version, and orphans that nothing refers to.

    sizes, orphans    one listing of the folder; files elsewhere, as in shallow clones, a HEAD each
    rows              the footer of each file: one GET each, 32 at a time
    references        tombstones, and the commits within the retention of removed files

Memory: 100 bytes for each name in the folder, and 8 for each file that the log refers to.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.check.report import LOG_DAMAGE, finding_of, log_damage
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.paths import LOG, NameRules, inside_names
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.footer_statistics import read_parquet_footer
from delvec.delta.schema.metadata import removed_files_kept_ms
from delvec.delta.schema.partition_values import parse_partition_value
from delvec.delta.vacuum.candidates import folds_names, kind_of, table_of
from delvec.delta.vacuum.references import KeySet, commit_references, references
from delvec.delta.vacuum.retention import commits_since, read_commits
from delvec.errors import FormatError, InvalidArgumentError, ObjectNotFoundError, StorageError
from delvec.report.findings import Finding, Findings, Severity
from delvec.report.format import format_count, format_size
from delvec.report.hints import call, format_hint
from delvec.storage import FileInfo, Storage
from delvec.storage.listed_files import file_columns, open_listed_file
from delvec.storage.parallel import map_in_order

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
