"""The deletion vectors of a version: whether they exist, decode, and fit their data files.

Vectors that lie close together in one file are read by one request, 16 requests at a time; no more
than some 64 MiB of them are in memory, or the largest one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.maintain.check.report import finding_of
from delvec.delta.maintain.check.vector_content import VECTOR_GONE, form_finding, vector_findings
from delvec.errors import DelvecError, FormatError, ObjectNotFoundError, StorageError
from delvec.report.findings import Finding
from delvec.storage.listed_files import open_listed_file
from delvec.storage.parallel import in_order
from delvec.vector import Descriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.maintain.check.data_files import TableFolder
    from delvec.report.findings import Findings
    from delvec.storage import Storage

__all__ = ["CheckedVectors", "check_vectors"]

_READS_AT_ONCE: Final = 16
_READ_SIZE: Final = 8 << 20
_IN_FLIGHT: Final = 64 << 20
_ROWS_AT_ONCE: Final = 10_000


@dataclass
class CheckedVectors:
    """What was read.

    Attributes:
        count: How many vectors.
        files: How many files hold them.
        damaged: The numbers of the data files whose vectors cannot be used.
    """

    count: int = 0
    files: int = 0
    damaged: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class _Chunk:
    """Vectors that are read together: the numbers of their data files, and their descriptors."""

    home: str | None
    members: Sequence[tuple[int, Descriptor]]


def check_vectors(
    storage: Storage,
    files: FileSet,
    rows: NDArray[np.int64],
    folder: TableFolder,
    findings: Findings,
    progress: Callable[[str, int, int], None],
) -> CheckedVectors:
    """Read all vectors and compare them with their descriptors and data files.

    Args:
        storage: The table.
        files: Its live files.
        rows: The physical rows of each; -1 where they are not known.
        folder: The files of its folder.
        findings: Gets what is found.
        progress: Is called with how many were read, and of how many.
    """
    checked = CheckedVectors()
    total = len(files.vectors) - files.vectors.null_count

    def read(chunk: _Chunk) -> list[tuple[int, Finding]]:
        return list(_read_chunk(storage, files, rows, chunk))

    chunks = _chunks(storage, files, folder, checked, findings)
    for found in in_order(read, chunks, threads=_READS_AT_ONCE, budget=_IN_FLIGHT):
        progress("deletion vectors", checked.count, total)
        for index, finding in found:
            findings.add(finding)
            if finding.severity == "error":
                checked.damaged.add(index)
    return checked


def _chunks(
    storage: Storage,
    files: FileSet,
    folder: TableFolder,
    checked: CheckedVectors,
    findings: Findings,
) -> Iterator[tuple[_Chunk, int]]:
    """Yield vectors by file and offset, cut where one read would be too large, with its size."""
    home: str | None = None
    size: int | DelvecError = 0
    members: list[tuple[int, Descriptor]] = []
    start = end = 0
    for index, descriptor in _descriptors(files, checked, findings):
        checked.count += 1
        try:
            place = descriptor.file_path
            finding = form_finding(files.paths[index].as_py(), descriptor, files.root)
        except FormatError as error:
            _note(files, index, error, checked, findings)
            continue
        if finding is not None:
            findings.add(finding)
        first, length = descriptor.file_range if place is not None else (0, 0)
        if members and (place != home or first + length - start > _READ_SIZE):
            yield _Chunk(home, members), end - start
            members = []
        if place != home:
            size = 0 if place is None else _size_of(storage, folder, place)
            checked.files += place is not None
            home = place
        if isinstance(size, DelvecError) or (place is not None and first + length > size):
            checked.damaged.add(index)
            findings.add(_out_of_reach(files.paths[index].as_py(), place, size, first + length))
            continue
        if not members:
            start = end = first
        members.append((index, descriptor))
        end = max(end, first + length)
        if place is None and len(members) == _ROWS_AT_ONCE:
            yield _Chunk(home, members), 0
            members = []
    if members:
        yield _Chunk(home, members), end - start


def _descriptors(
    files: FileSet, checked: CheckedVectors, findings: Findings
) -> Iterator[tuple[int, Descriptor]]:
    """Yield the descriptors that are valid, by file and offset; some thousand are in memory."""
    vectors = files.vectors
    rows = np.flatnonzero(vectors.is_valid().to_numpy(zero_copy_only=False))
    names = ("storageType", "pathOrInlineDv", "offset")
    columns = {name: pc.struct_field(vectors, [name]).take(pa.array(rows)) for name in names}
    order = pc.sort_indices(
        pa.table(columns), sort_keys=[(name, "ascending") for name in names]
    ).to_numpy()
    for begin in range(0, len(rows), _ROWS_AT_ONCE):
        chosen = rows[order[begin : begin + _ROWS_AT_ONCE]]
        values = vectors.take(pa.array(chosen)).to_pylist()
        for index, value in zip(chosen.tolist(), values, strict=True):
            found = _parsed(value)
            if isinstance(found, Descriptor):
                yield index, found
            else:
                checked.count += 1
                _note(files, index, found, checked, findings)


def _parsed(value: Mapping[str, Any]) -> Descriptor | FormatError:
    try:
        return Descriptor.from_json(value)
    except FormatError as error:
        return error


def _note(
    files: FileSet, index: int, error: DelvecError, checked: CheckedVectors, findings: Findings
) -> None:
    checked.damaged.add(index)
    path = files.paths[index].as_py()
    findings.add(finding_of(error, "damaged-vector", path, hint=VECTOR_GONE))


def _size_of(storage: Storage, folder: TableFolder, path: str) -> int | DelvecError:
    """Return the size of a file of vectors, or why it is not known."""
    if path in folder.vector_sizes:
        return folder.vector_sizes[path]
    try:
        place, key = open_listed_file(storage, path)
        return place.size(key)
    except (FormatError, StorageError) as error:
        return error


def _out_of_reach(path: str, home: str | None, size: int | DelvecError, end: int) -> Finding:
    if isinstance(size, ObjectNotFoundError):
        message = f"the file of its deletion vector, {home}, is gone"
        return Finding("error", "missing-vector", path, message, VECTOR_GONE)
    if isinstance(size, FormatError):
        message = f"its deletion vector was not looked at: {size.describe()}"
        return Finding("warning", "other-store", path, message)
    if isinstance(size, DelvecError):
        return finding_of(size, "damaged-vector", path, hint=VECTOR_GONE)
    return Finding(
        "error",
        "damaged-vector",
        path,
        f"its deletion vector in {home} is cut short: expected {end} bytes or more in the file,"
        f" found {size}",
        VECTOR_GONE,
    )


def _read_chunk(
    storage: Storage, files: FileSet, rows: NDArray[np.int64], chunk: _Chunk
) -> Iterator[tuple[int, Finding]]:
    frames: Sequence[bytes | None] = [None] * len(chunk.members)
    if chunk.home is not None:
        try:
            place, key = open_listed_file(storage, chunk.home)
            frames = place.read_ranges(key, [each.file_range for _, each in chunk.members])
        except (FormatError, StorageError) as error:
            kind = "missing-vector" if isinstance(error, ObjectNotFoundError) else "damaged-vector"
            for index, _ in chunk.members:
                path = files.paths[index].as_py()
                yield index, finding_of(error, kind, path, hint=VECTOR_GONE)
            return
    for (index, descriptor), frame in zip(chunk.members, frames, strict=True):
        path = files.paths[index].as_py()
        for finding in vector_findings(path, int(rows[index]), descriptor, frame):
            yield index, finding
