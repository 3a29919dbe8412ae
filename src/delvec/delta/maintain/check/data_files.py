"""The data files of a version: whether they exist, with the size and the rows that the log says.

Sizes come from one listing of the table's folder, which also finds orphan files; files elsewhere,
as in shallow clones, cost a HEAD request each. The footer of each file is read: one GET each, 32 at
a time. Memory grows with the names in the folder, some 100 bytes each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.segment import LOG
from delvec.delta.maintain.check.entries import one_name
from delvec.delta.maintain.check.report import finding_of
from delvec.delta.schema.partition_values import parse_partition_value
from delvec.errors import (
    FormatError,
    InvalidArgumentError,
    ObjectNotFoundError,
    StorageError,
)
from delvec.parquet.readable import read_footer
from delvec.report.findings import Finding
from delvec.report.wordings import call, worded
from delvec.storage.listed_files import open_listed_file
from delvec.storage.parallel import in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.schema.types import DataType
    from delvec.report.findings import Findings, Severity
    from delvec.storage import FileInfo, Storage

__all__ = ["FILE_GONE", "FoundFiles", "TableFolder", "check_data_files", "list_folder"]

_AT_ONCE: Final = 32
_IN_FLIGHT: Final = 1_000
_LISTED_AT_ONCE: Final = 10_000
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


@dataclass(frozen=True)
class TableFolder:
    """The files below a table's root, those of the log excepted.

    Attributes:
        root: The table.
        keys: Their names, relative to the root.
        sizes: Their bytes.
        modified_ms: When each was changed, in milliseconds since 1970.
    """

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
        places = pc.index_in(one_name(paths, self.root), value_set=self.keys)
        there = places.is_valid().to_numpy(zero_copy_only=False)
        found[there] = self.sizes[places.drop_null().to_numpy()]
        return found


@dataclass(frozen=True)
class FoundFiles:
    """What is known of the data files of a version, in their order.

    Attributes:
        rows: The rows of each by its footer; -1 where it cannot be read.
        wrong_counts: Which have another number of rows than the log says, and its size.
    """

    rows: NDArray[np.int64]
    wrong_counts: NDArray[np.bool_]


def list_folder(storage: Storage, findings: Findings) -> TableFolder:
    """List all files below a table's root; entries that are none are findings."""
    keys, sizes, times = [], [], []
    odd: list[str] = []
    for batch in _batches(storage, odd.append):
        keys.append(pa.array([info.key for info in batch], pa.string()))
        sizes.append(np.array([info.size for info in batch], dtype=np.int64))
        times.append(np.array([info.modified_ms for info in batch], dtype=np.int64))
    findings.extend(map(_odd, odd))
    none = np.empty(0, dtype=np.int64)
    return TableFolder(
        storage.root,
        pa.concat_arrays([pa.array([], pa.string()), *keys]),
        np.concatenate([none, *sizes]),
        np.concatenate([none, *times]),
    )


def _batches(storage: Storage, on_odd: Callable[[str], None]) -> Iterator[list[FileInfo]]:
    batch: list[FileInfo] = []
    for info in storage.list(recursive=True, on_odd=on_odd):
        if not _has_plain_name(info.key):
            on_odd(info.key)
            continue
        if info.key.startswith(f"{LOG}/"):
            continue
        batch.append(info)
        if len(batch) == _LISTED_AT_ONCE:
            yield batch
            batch = []
    yield batch


def _has_plain_name(key: str) -> bool:
    """Return whether a name on disk is text; no log can refer to one that is not."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _odd(key: str) -> Finding:
    shown = key.encode(errors="backslashreplace").decode()
    # In the log it may be there instead of a file.
    severity: Severity = "warning" if key.startswith(f"{LOG}/") else "info"
    return Finding(severity, "odd-entry", shown, _ODD, _ODD_HINT)


def check_data_files(
    storage: Storage,
    files: FileSet,
    folder: TableFolder,
    findings: Findings,
    progress: Callable[[str, int, int], None],
) -> FoundFiles:
    """Look for each live file, read its footer, and compare both with the log."""
    listed = folder.sizes_of(files.paths)
    counts = files.row_counts.fill_null(_UNKNOWN).to_numpy()
    found = FoundFiles(
        np.full(len(files), _UNKNOWN, dtype=np.int64), np.zeros(len(files), dtype=np.bool_)
    )

    def look(index: int) -> tuple[int, int | Finding]:
        path, size = files.paths[index].as_py(), int(files.sizes[index])
        return index, _looked_at(storage, path, size, int(listed[index]))

    items = ((index, 1) for index in range(len(files)))
    for index, result in in_order(look, items, threads=_AT_ONCE, budget=_IN_FLIGHT):
        progress("data files", index + 1, len(files))
        if isinstance(result, Finding):
            findings.add(result)
            continue
        found.rows[index] = result
        if counts[index] not in (_UNKNOWN, result):
            found.wrong_counts[index] = True
            findings.add(_wrong_count(files.paths[index].as_py(), int(counts[index]), result))
    findings.extend(_wrong_partition_values(files))
    return found


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
            return Finding(
                "error",
                "wrong-size",
                path,
                f"the data file has another size: expected {logged} bytes, found {size}",
                "somebody has changed it: restore it from a copy",
            )
        return _footer_rows(place, key, size)
    except ObjectNotFoundError:
        return Finding("error", "missing-file", path, "the data file is gone", FILE_GONE)
    except (FormatError, StorageError, InvalidArgumentError) as error:  # the last for its name
        return finding_of(error, "unreadable-file", path, hint="restore it from a copy")


def _footer_rows(place: Storage, key: str, size: int) -> int:
    """Return the rows of a file by its footer; lengths in it are compared with the file's size."""
    with place.open_input(key, size) as source:
        footer = read_footer(source, place.uri_of(key))
    groups = sum(footer.row_group(n).num_rows for n in range(footer.num_row_groups))
    if groups != footer.num_rows:
        raise FormatError(
            "the row groups do not add up to the rows of the file",
            path=place.uri_of(key),
            expected=f"{footer.num_rows} rows",
            found=f"{groups} rows",
        )
    return int(footer.num_rows)


def _wrong_count(path: str, logged: int, found: int) -> Finding:
    return Finding(
        "error",
        "wrong-row-count",
        path,
        f"the log has a wrong row count: expected {found} rows, by the footer, found numRecords"
        f" {logged}",
        worded("{} writes the count of the footer", call("check", repair=True)),
    )


def _wrong_partition_values(files: FileSet) -> Iterator[Finding]:
    """Yield partition values that are no values of their columns; each distinct one once."""
    for field in files.metadata.partition_fields:
        strings = files.partition_strings(field.physical_name)
        for text in strings.unique().to_pylist():
            error = _refused(text, field.type)
            if error is not None:
                index = pc.index(strings, text).as_py()
                yield finding_of(error, "wrong-partition-value", files.paths[index].as_py())


def _refused(text: str | None, kind: DataType) -> FormatError | None:
    try:
        parse_partition_value(text, kind)
    except FormatError as error:
        return error
    return None
