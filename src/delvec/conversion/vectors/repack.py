"""Delta's vectors in Puffin files: frames are copied and checked, no bitmap is decoded."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa

from delvec.conversion.vectors.places import blamed, pieces, vector_places
from delvec.conversion.vectors.reference import REQUESTS_AT_ONCE, StoredVectors
from delvec.errors import FormatError, ObjectNotFoundError, TruncatedError, located
from delvec.storage.listed_files import spark_path
from delvec.storage.parallel import in_order
from delvec.vector import blobs
from delvec.vector.frame import check_frame, portable_frame
from delvec.vector.frames import Frames, copy_frames, count_positions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from delvec.conversion.vectors.places import VectorPlaces
    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage
    from delvec.storage.uncommitted import UncommittedFiles

    Rows = NDArray[np.int64]

__all__ = ["MOST_VECTORS", "SOURCE_ID", "TARGET_SIZE", "repack"]

SOURCE_ID: Final = "delvec-source-id"
"""The blob property with the unique id of Delta's vector."""

TARGET_SIZE: Final = 64 << 20
"""Bytes of vectors in one file."""

MOST_VECTORS: Final = 4096
"""Vectors in one file: a reader of one vector reads the footer of all."""

_PIECE: Final = 2 << 20
_PIECE_VECTORS: Final = 4096
_PIECE_HOMES: Final = 64
_READ_AHEAD: Final = 32 << 20


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
    which other engines do not read, is encoded anew. Memory is bounded by some five files of
    `target_size`, unless a single vector is larger, and some 100 bytes for each vector.

    Args:
        files: The data files.
        data_paths: Their paths, exactly as the manifest has them.
        source: The Delta table.
        target: The Iceberg table's location.
        folder: Where in the target to write.
        uncommitted: Is told of each file before it is written.
        target_size: Bytes of vectors in one file.
        most_vectors: Vectors in one file.

    Raises:
        FormatError: A vector is damaged or does not match its data file; the error names both.
        ObjectNotFoundError: The file of a vector is gone; the error names the data file too.
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
    loaded = in_order(
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
    writes = in_order(lambda file: target.write(*file), puffin_files(), threads=1, budget=1)
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


def _filled(
    loaded: Iterable[tuple[Rows, Frames]], target_size: int, most_vectors: int
) -> Iterator[tuple[Rows, Frames]]:
    """Combine pieces until a file is full."""
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
    except FormatError:
        # One by one: to name the files of the damaged vector, or to encode those in the native
        # layout anew.
        each = zip(rows.tolist(), frames, strict=True)
        return Frames.join(_portable(places, row, frame) for row, frame in each)
    wrong = np.flatnonzero(counts != places.cardinalities[rows])
    if len(wrong):
        row = int(rows[wrong[0]])
        raise blamed(_miscounted(places, row, int(counts[wrong[0]])), places.files, row)
    return copied


def _miscounted(places: VectorPlaces, row: int, found: int) -> FormatError:
    """Return the error for a wrong cardinality, which Iceberg's readers would refuse as well."""
    return FormatError(
        "a deletion vector does not have the cardinality that the log says",
        path=places.homes[places.home[row]] or None,
        offset=int(places.starts[row]),
        expected=int(places.cardinalities[row]),
        found=found,
    )


def _read(places: VectorPlaces, source: Storage, rows: Rows) -> Iterable[bytes]:
    """Return the frames of one file, or inline ones."""
    if not places.homes[places.home[rows[0]]]:
        return [places.inline_frame(row) for row in rows.tolist()]
    place, key = places.open_home(source, int(rows[0]))
    ranges = zip(places.starts[rows].tolist(), places.lengths[rows].tolist(), strict=True)
    try:
        return place.read_ranges(key, ranges)
    except (ObjectNotFoundError, TruncatedError) as error:
        size = place.size(key) if place.exists(key) else 0
        outside = places.starts[rows] + places.lengths[rows] > size
        raise blamed(error, places.files, int(rows[np.argmax(outside)])) from None


def _portable(places: VectorPlaces, row: int, frame: bytes) -> bytes:
    try:
        with located(places.homes[places.home[row]], int(places.starts[row])):
            readable = portable_frame(frame)
            check_frame(readable)
            count = int(count_positions(Frames.join([readable]))[0])
            if count != places.cardinalities[row]:
                raise _miscounted(places, row, count)
    except FormatError as error:
        raise blamed(error, places.files, row) from None
    return readable
