"""Delta's vectors in the target: copied, referred to, or written as position deletes.

Into Puffin files frames are copied and checked; only those in Delta's native layout are encoded
again. In format 2 there is a Parquet file of row positions for each data file. Its name begins with
a digest of the vector's id, by which a later conversion recognises it without opening it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa

from delvec import errors
from delvec.conversion.files.vector_places import (
    SOURCE_ID,
    VectorPlaces,
    blamed,
    pieces,
    vector_places,
)
from delvec.delta.log.file_set import DataFile, FileSet
from delvec.delta.read.vectors import load_vectors
from delvec.iceberg.deletes.positions import write_positions
from delvec.report.hints import argument, format_hint
from delvec.storage.listed_files import spark_path
from delvec.storage.parallel import map_in_order
from delvec.vector import blobs
from delvec.vector.frame import check_frame, portable_frame
from delvec.vector.frame_batch import Frames, copy_frames, count_positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delvec.storage import Storage
    from delvec.storage.uncommitted import UncommittedFiles

    Rows = NDArray[np.int64]

REQUESTS_AT_ONCE: Final = 16
TARGET_SIZE: Final = 64 << 20
"""Bytes of vectors in one file."""
MOST_VECTORS: Final = 4096
"""Vectors in one file: a reader of one vector reads the footer of all."""
_PIECE: Final = 2 << 20
_PIECE_VECTORS: Final = 4096
_PIECE_HOMES: Final = 64
_READ_AHEAD: Final = 32 << 20
_DIGITS: Final = 32
_POSITION_PIECE: Final = 4 << 20
_POSITION_PIECE_VECTORS: Final = 256
_IN_FLIGHT: Final = 64 << 20


@dataclass(frozen=True, eq=False)
class StoredVectors:
    """Where vectors are in the target, one row for each data file, in the order given."""

    paths: pa.Array  # of the file that holds the vector, as the manifest is to name it
    sizes: NDArray[np.int64]  # bytes of that file
    offsets: NDArray[np.int64] | None  # in it; None for files of position deletes
    lengths: NDArray[np.int64] | None  # bytes of the vector in it; None likewise
    cardinalities: NDArray[np.int64]
    bytes_written: int = 0
    files_written: int = 0

    def __len__(self) -> int:
        return len(self.paths)


def repack(
    files: FileSet,
    data_paths: pa.Array,
    source: Storage,
    target: Storage,
    folder: str,
    uncommitted: UncommittedFiles,
    *,
    target_size: int = TARGET_SIZE,
    most_vectors: int = MOST_VECTORS,
) -> StoredVectors:
    """Copy the vectors of files, all of which have one, into Puffin files with random names.

    Length, magic, CRC and cardinality of each are checked. A vector in Delta's native layout,
    which other engines do not read, is encoded again. Memory is bounded by some five files of
    `target_size`, unless a single vector is larger, and some 100 bytes for each vector.
    """
    places = vector_places(files)
    number = np.empty(len(files), dtype=np.int64)
    offsets, lengths = np.empty_like(number), np.empty_like(number)
    start = f"{folder}/" if folder else ""
    keys: list[str] = []
    sizes: list[int] = []
    spread = len(places.homes) // (4 * REQUESTS_AT_ONCE)
    chosen = pieces(
        places,
        most_bytes=min(_PIECE, target_size),
        most_vectors=min(_PIECE_VECTORS, most_vectors),
        most_homes=min(max(spread, 1), _PIECE_HOMES),
    )
    loaded = map_in_order(
        lambda rows: (rows, _copied(places, source, rows)),
        chosen,
        threads=REQUESTS_AT_ONCE,
        budget=_READ_AHEAD,
    )

    def puffin_files() -> Iterator[tuple[tuple[str, bytes], int]]:
        for rows, frames in _filled(loaded, target_size, most_vectors):
            data, offsets[rows] = blobs.from_frames(
                frames,
                data_paths.take(rows),
                places.cardinalities[rows],
                properties={SOURCE_ID: places.ids.take(rows)},
            )
            lengths[rows], number[rows] = frames.lengths, len(keys)
            keys.append(f"{start}{uuid4()}-deletes.puffin")
            sizes.append(len(data))
            uncommitted.add(keys[-1])
            del frames
            yield (keys[-1], data), 1

    # One file is written while the next one is filled.
    writes = map_in_order(lambda file: target.write(*file), puffin_files(), threads=1, budget=1)
    with closing(loaded), closing(writes):
        for _ in writes:
            pass
    names = pa.array([spark_path(target.root, key) for key in keys], pa.string())
    return StoredVectors(
        names.take(number),
        np.array(sizes, dtype=np.int64)[number],
        offsets,
        lengths,
        places.cardinalities,
        sum(sizes),
        len(keys),
    )


def reference(files: FileSet, source: Storage) -> StoredVectors:
    """Refer to vectors in Delta's own files; nothing is written.

    Costs one HEAD for each `.bin` file, for its true size. The vectors themselves are not read.
    """
    places = vector_places(files)
    # A row for each file of vectors, so that errors can name a data file.
    firsts: list[int] = np.unique(places.home, return_index=True)[1].tolist()
    if "" in places.homes:
        row = firsts[places.homes.index("")]
        raise errors.UnsupportedFeatureError(
            f"the deletion vector of {files.paths[row].as_py()} in {files.root} is inline in the"
            " log, which Iceberg cannot refer to",
            feature="inline deletion vectors",
            hint=format_hint(
                "use {}, which copies vectors into Puffin files", argument(vectors="repack")
            ),
        )

    def measure(row: int) -> int:
        place, key = places.open_home(source, row)
        try:
            return place.size(key)
        except errors.ObjectNotFoundError as error:
            raise blamed(error, files, row) from None

    measured = map_in_order(
        measure, ((row, 1) for row in firsts), threads=REQUESTS_AT_ONCE, budget=len(firsts)
    )
    sizes = np.fromiter(measured, dtype=np.int64, count=len(firsts))[places.home]
    outside = np.flatnonzero(places.starts + places.lengths > sizes)
    if len(outside):
        row = int(outside[0])
        error = errors.TruncatedError(
            "vector lies outside its file",
            path=places.homes[int(places.home[row])],
            offset=int(places.starts[row]),
            expected=f"{places.lengths[row]} bytes",
            found=f"a file of {sizes[row]} bytes",
        )
        raise blamed(error, files, row)
    names = [spark_path(source.root, home) for home in places.homes]
    return StoredVectors(
        pa.array(names, pa.string()).take(places.home),
        sizes,
        places.starts,
        places.lengths,
        places.cardinalities,
    )


def _filled(
    loaded: Iterable[tuple[Rows, Frames]], target_size: int, most_vectors: int
) -> Iterator[tuple[Rows, Frames]]:
    rows: list[Rows] = []
    frames: list[Frames] = []
    size, count = 0, 0
    for piece, copied in loaded:
        if rows and (size + len(copied.data) > target_size or count + len(piece) > most_vectors):
            whole = Frames.concat(frames)
            frames.clear()
            yield np.concatenate(rows), whole
            rows, size, count = [], 0, 0
        rows.append(piece)
        frames.append(copied)
        size, count = size + len(copied.data), count + len(piece)
    if rows:
        yield np.concatenate(rows), Frames.concat(frames)


def _copied(places: VectorPlaces, source: Storage, rows: Rows) -> Frames:
    """Read the frames of one piece, file by file, and check them together."""
    ends = np.flatnonzero(np.diff(places.home[rows])) + 1
    frames: list[bytes] = []
    for part in np.split(rows, ends):
        frames += _read(places, source, part)
    joined = Frames.join(frames)
    try:
        copied = copy_frames(joined.data, joined.offsets, joined.lengths)
        counts = count_positions(copied)
    except errors.FormatError:
        # One by one: to name the files of the damaged vector, or to encode those in the native
        # layout again.
        each = zip(rows.tolist(), frames, strict=True)
        return Frames.join(_portable(places, row, frame) for row, frame in each)
    wrong = np.flatnonzero(counts != places.cardinalities[rows])
    if len(wrong):
        row = int(rows[wrong[0]])
        raise blamed(_miscounted(places, row, int(counts[wrong[0]])), places.files, row)
    return copied


def _read(places: VectorPlaces, source: Storage, rows: Rows) -> Iterable[bytes]:
    """Return the frames of one file, or inline ones."""
    if not places.homes[places.home[rows[0]]]:
        return [places.inline_frame(row) for row in rows.tolist()]
    place, key = places.open_home(source, int(rows[0]))
    ranges = zip(places.starts[rows].tolist(), places.lengths[rows].tolist(), strict=True)
    try:
        return place.read_ranges(key, ranges)
    except (errors.ObjectNotFoundError, errors.TruncatedError) as error:
        size = place.size(key) if place.exists(key) else 0
        outside = places.starts[rows] + places.lengths[rows] > size
        raise blamed(error, places.files, int(rows[np.argmax(outside)])) from None


def _portable(places: VectorPlaces, row: int, frame: bytes) -> bytes:
    try:
        with errors.add_location(places.homes[places.home[row]], int(places.starts[row])):
            readable = portable_frame(frame)
            check_frame(readable)
            count = int(count_positions(Frames.join([readable]))[0])
            if count != places.cardinalities[row]:
                raise _miscounted(places, row, count)
    except errors.FormatError as error:
        raise blamed(error, places.files, row) from None
    return readable


def _miscounted(places: VectorPlaces, row: int, found: int) -> errors.FormatError:
    """Return the error for a wrong cardinality, which Iceberg's readers would refuse as well."""
    return errors.FormatError(
        "a deletion vector does not have the cardinality that the log says",
        path=places.homes[places.home[row]] or None,
        offset=int(places.starts[row]),
        expected=int(places.cardinalities[row]),
        found=found,
    )


def digest(unique_ids: pa.Array) -> pa.Array:
    """Return the digest of each vector's id for the name of its file; null for null.

    >>> digest(pa.array(["uab^-aqEH.-t@S}K{vb[*k^@1"]))[0].as_py()
    '66e49ccb193a466aec2420aefec6aa10'
    """
    ids = unique_ids.to_pylist()
    return pa.array(
        [None if each is None else sha256(each.encode()).hexdigest()[:_DIGITS] for each in ids],
        pa.string(),
    )


def write_position_deletes(
    files: FileSet,
    data_paths: pa.Array,
    source: Storage,
    target: Storage,
    folder: str,
    uncommitted: UncommittedFiles,
) -> StoredVectors:
    """Write the vectors of files, all of which have one, as Parquet files of row positions.

    Positions are streamed: memory grows with the size of the vectors that are written in parallel
    (64 MiB, unless a single one is larger), not with the number of deleted rows. A file of more
    than some hundred thousand positions goes through a temporary file on local disk.
    """
    places = vector_places(files)
    sizes = np.empty(len(files), dtype=np.int64)
    start = f"{folder}/" if folder else ""
    keys = [f"{start}{each}-{uuid4()}.parquet" for each in digest(places.ids).to_pylist()]
    chosen = pieces(
        places,
        most_bytes=_POSITION_PIECE,
        most_vectors=min(max(len(files) // (4 * REQUESTS_AT_ONCE), 1), _POSITION_PIECE_VECTORS),
        most_homes=1,
    )

    def remembered() -> Iterator[tuple[NDArray[np.int64], int]]:
        for rows, weight in chosen:
            uncommitted.add(*(keys[row] for row in rows.tolist()))
            yield rows, weight

    def written(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[int]]:
        chosen_rows = rows.tolist()
        vectors = load_vectors(source, [_data_file(files, row) for row in chosen_rows])
        return rows, [
            write_positions(target, keys[row], data_paths[row].as_py(), vector)
            for row, vector in zip(chosen_rows, vectors, strict=True)
            if vector is not None
        ]

    results = map_in_order(written, remembered(), threads=REQUESTS_AT_ONCE, budget=_IN_FLIGHT)
    with closing(results):
        for rows, bytes_of_each in results:
            sizes[rows] = bytes_of_each
    names = pa.array([spark_path(target.root, key) for key in keys], pa.string())
    return StoredVectors(
        names, sizes, None, None, places.cardinalities, int(sizes.sum()), len(files)
    )


def _data_file(files: FileSet, row: int) -> DataFile:
    return DataFile(
        files.paths[row].as_py(),
        int(files.sizes[row]),
        {},
        files.descriptor(row),
        files.row_counts[row].as_py(),
        int(files.modification_times[row]),
    )
