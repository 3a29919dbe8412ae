"""The deletion vectors of a version: whether they exist, decode, and fit their data files.

What the log alone tells (row counts, bounds, shared and inline vectors) is read as Arrow columns:
some hundred bytes for each live file, and the largest piece of tombstones. Vectors that lie close
together in one file are read by one request, 16 at a time; no more than some 64 MiB of them are in
memory, or the largest one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.check.data_files import TableFolder
from delvec.delta.check.entries import where_repeated
from delvec.delta.check.report import finding_of
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.paths import inside_names
from delvec.delta.log.replay import vector_ids
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.metadata import removed_files_kept_ms
from delvec.errors import DelvecError, FormatError, ObjectNotFoundError, StorageError, add_location
from delvec.inspection.figures import moment
from delvec.report.findings import Finding, Findings
from delvec.report.hints import call, format_hint
from delvec.storage import Storage
from delvec.storage.listed_files import open_listed_file, store_of
from delvec.storage.parallel import map_in_order
from delvec.vector import Bitmap, Descriptor
from delvec.vector.frame import decode_frame, decode_payload

# Operations that may write tight bounds for files with vectors.
_RECOUNTED: Final = frozenset(
    {"COMPUTE STATS", "RESTORE", "CLONE", "Manual Update", "ROW TRACKING BACKFILL"}
)
_NATIVE: Final = bytes.fromhex("d0d33964")
VECTOR_GONE: Final = (
    "without it nobody can tell which rows are deleted, so it is never dropped: restore it from a"
    " copy, or restore the table to a version that does not need it"
)
_MISCOUNTED: Final = (
    "delta-spark refuses it, and counts by the log are wrong: restore the table to a version before"
)
_REWRITE: Final = format_hint("{} stores it again, with the same rows", call("check", repair=True))
_ODD: Final = {
    "inline-vector": "the vector is in the log itself: VACUUM of delta-spark fails",
    "hash-padded-vector": "the vector is in the log, padded by `#`: delta-spark reads other rows as"
    " deleted",
    "absolute-vector": "the vector is in the table's folder and has an absolute path: VACUUM of"
    " delta-spark deletes it",
    "vector-without-offset": "the entry of the vector has no offset: delta-spark cannot read it",
}
_READS_AT_ONCE: Final = 16
_READ_SIZE: Final = 8 << 20
_IN_FLIGHT: Final = 64 << 20
_ROWS_AT_ONCE: Final = 10_000


@dataclass
class CheckedVectors:
    """How many vectors were read, of how many files; numbers of data files with unusable ones."""

    count: int = 0
    files: int = 0
    damaged: set[int] = field(default_factory=set)


def check_vectors(
    storage: Storage,
    files: FileSet,
    rows: NDArray[np.int64],
    folder: TableFolder,
    findings: Findings,
    progress: Callable[[str, int, int], None],
) -> CheckedVectors:
    """Read all vectors and compare them with their descriptors and data files."""
    checked = CheckedVectors()
    total = len(files.vectors) - files.vectors.null_count

    def read(chunk: _Chunk) -> list[tuple[int, Finding]]:
        return list(_read_chunk(storage, files, rows, chunk))

    chunks = _chunks(storage, files, folder, checked, findings)
    for found in map_in_order(read, chunks, threads=_READS_AT_ONCE, budget=_IN_FLIGHT):
        progress("deletion vectors", checked.count, total)
        for index, finding in found:
            findings.add(finding)
            if finding.severity == "error":
                checked.damaged.add(index)
    return checked


def check_vector_entries(snapshot: Snapshot, files: FileSet, findings: Findings) -> None:
    """Check what the log alone tells of files with vectors: row counts, bounds, shared vectors."""
    has_vector = files.vectors.is_valid().to_numpy(zero_copy_only=False)
    without = has_vector & files.row_counts.is_null().to_numpy(zero_copy_only=False)
    message = "the log has no numRecords of it, which a file with a deletion vector needs"
    hint = format_hint("{} adds it from the footer", call("check", repair=True))
    for path in files.paths.filter(pa.array(without)).to_pylist():
        findings.add(Finding("error", "missing-row-count", path, message, hint))
    findings.extend(_tight_bounds(snapshot, files, has_vector))
    findings.extend(_shared_vectors(files))
    findings.extend(_inline_tombstones(snapshot))


def vector_findings(
    path: str, rows: int, descriptor: Descriptor, frame: bytes | None
) -> Iterator[Finding]:
    """Decode a vector, and compare it with its descriptor and its data file."""
    if descriptor.cardinality == 0 and descriptor.size_in_bytes == 0:
        message = "the deletion vector is empty: no engine expects that in a log"
        yield Finding("warning", "empty-vector", path, message)
        return
    try:
        vector = _decoded(descriptor, frame)
    except FormatError as error:
        yield finding_of(error, "damaged-vector", path, hint=VECTOR_GONE)
        return
    if vector.cardinality != descriptor.cardinality:
        message = (
            f"the log has a wrong cardinality of its vector: expected {vector.cardinality}, by the"
            f" vector in {descriptor.file_path or 'the log'}, found {descriptor.cardinality}"
        )
        yield Finding("error", "wrong-cardinality", path, message, _MISCOUNTED)
    elif rows >= 0 and vector.max is not None and vector.max >= rows:
        message = (
            f"its deletion vector in {descriptor.file_path or 'the log'} marks a row that it does"
            f" not have: expected rows below {rows}, found row {vector.max}"
        )
        why = "is it the vector of another file? Restore the table to a version before"
        yield Finding("error", "row-out-of-range", path, message, why)
    elif vector.cardinality == rows:
        message = f"its deletion vector deletes all {rows} rows: the file could be removed"
        hint = format_hint("{} removes the file", call("purge"))
        yield Finding("warning", "all-rows-deleted", path, message, hint)
    magic = descriptor.inline_payload()[:4] if frame is None else frame[4:8]
    if magic == _NATIVE:
        message = "its vector has Delta's old native layout, which delta-rs cannot read"
        hint = format_hint("{} rewrites the file", call("purge"))
        yield Finding("warning", "native-vector", path, message, hint)


def odd_form(descriptor: Descriptor, root: str) -> str | None:
    """Return the kind of finding if other engines trip over the form of a vector."""
    if descriptor.storage_type == "i":
        padded = descriptor.path_or_inline[-5:].startswith("#")
        return "hash-padded-vector" if padded else "inline-vector"
    inside = f"{store_of(root)}/"
    if descriptor.storage_type == "p" and store_of(str(descriptor.file_path)).startswith(inside):
        return "absolute-vector"
    return "vector-without-offset" if descriptor.offset is None else None


def _tight_bounds(
    snapshot: Snapshot, files: FileSet, has_vector: NDArray[np.bool_]
) -> Iterator[Finding]:
    """Yield one finding for all files whose bounds are said to be those of the live rows."""
    tight = files.statistic(("tightBounds",), pa.bool_())
    is_tight = has_vector.copy()
    if tight is not None:
        is_tight &= tight.fill_null(True).to_numpy(zero_copy_only=False)
    for number, (_, actions) in enumerate(snapshot.commits):
        infos = [each.get("commitInfo") for each in actions.others()]
        names = [str(each.get("operation")) for each in infos if isinstance(each, dict)]
        if _RECOUNTED.intersection(names):
            is_tight &= files.source != number
    count = int(is_tight.sum())
    if count:
        path = files.paths[int(np.argmax(is_tight))].as_py()
        message = (
            f"{count:,} files with deletion vectors, such as this one, claim to have tight bounds:"
            " delta-spark would not write that"
        )
        hint = format_hint("{} counts again", call("recompute_statistics"))
        yield Finding("info", "tight-bounds", path, message, hint)


def _shared_vectors(files: FileSet) -> Iterator[Finding]:
    """Yield vectors that two data files have: positions in one file say nothing of another."""
    ids = vector_ids(files.vectors)
    stored = pc.not_equal(pc.struct_field(files.vectors, "storageType"), "i")
    ids = pc.if_else(stored, ids, pa.scalar(None, pa.string()))
    first: dict[str, str] = {}
    paths = inside_names(files.paths, files.root)
    for index in where_repeated(ids):
        path = paths[index].as_py()
        other = first.setdefault(ids[index].as_py(), path)
        if other != path:
            message = f"it has the same deletion vector as {other}: one of them is probably wrong"
            yield Finding("warning", "shared-vector", path, message)


def _inline_tombstones(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield one finding for all unexpired tombstones with a vector in the log itself."""
    length = removed_files_kept_ms(snapshot.metadata.configuration)
    since = int(time.time() * 1000) - length
    count, last, path = 0, 0, ""
    for removes in snapshot.tombstones():
        kinds = pc.struct_field(pc.struct_field(removes, "deletionVector"), "storageType")
        when = pc.fill_null(pc.struct_field(removes, "deletionTimestamp"), 0)
        chosen = pc.and_(pc.fill_null(pc.equal(kinds, "i"), False), pc.greater_equal(when, since))
        found = removes.filter(chosen)
        if len(found):
            count += len(found)
            last = max(last, pc.max(when.filter(chosen)).as_py())
            path = path or pc.struct_field(found, "path")[0].as_py()
    if count:
        message = (
            f"{count:,} removed files, such as this one, had a vector in the log itself: VACUUM of"
            " delta-spark fails"
        )
        template, when = "{} works; that of delta-spark from {} on", moment(last + length)
        hint = format_hint(template, call("vacuum"), when)
        yield Finding("warning", "inline-tombstone", path, message, hint)


def _decoded(descriptor: Descriptor, frame: bytes | None) -> Bitmap:
    """Decode a vector; its cardinality is compared by the caller."""
    if frame is None:
        with add_location("the log"):
            return decode_payload(descriptor.inline_payload(), allow_native=True)
    try:
        return decode_frame(frame, allow_native=True)
    except FormatError:
        with add_location(descriptor.file_path, descriptor.file_range[0]):
            raise


@dataclass(frozen=True)
class _Chunk:
    """Vectors that are read together: the numbers of their data files, and their descriptors."""

    home: str | None
    members: Sequence[tuple[int, Descriptor]]


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
    for index, value in _logged_vectors(files):
        checked.count += 1
        path = files.paths[index].as_py()
        try:
            descriptor = Descriptor.from_json(value)
            place, kind = descriptor.file_path, odd_form(descriptor, files.root)
        except FormatError as error:
            checked.damaged.add(index)
            findings.add(finding_of(error, "damaged-vector", path, hint=VECTOR_GONE))
            continue
        if kind is not None:
            findings.add(Finding("warning", kind, path, _ODD[kind], _REWRITE))
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
            findings.add(_out_of_reach(path, place, size, first + length))
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


def _logged_vectors(files: FileSet) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield vectors as the log has them, by file and offset; some thousand are in memory."""
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
        yield from zip(chosen.tolist(), values, strict=True)


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
    message = (
        f"its deletion vector in {home} is cut short: expected {end} bytes or more in the file,"
        f" found {size}"
    )
    return Finding("error", "damaged-vector", path, message, VECTOR_GONE)


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
