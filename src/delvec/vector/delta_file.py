"""Delta's container of vectors: `deletion_vector_<uuid>.bin`.

    1 byte    version, 1
    frames    concatenated; the offset of a descriptor is that of a frame's length field

The log, not the file, decides which frames are live: a file may contain unused frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from delvec.errors import FormatError, InvalidArgumentError, TruncatedError, add_location
from delvec.vector.bitmap import Bitmap
from delvec.vector.descriptor import Descriptor
from delvec.vector.frame import FRAME_OVERHEAD, encode_frame
from delvec.vector.frame_batch import Frames

TARGET_SIZE: Final = 2 * 1024 * 1024
"""The size from which the next file is begun, as in delta-spark."""

MAX_FILE_SIZE: Final = 2**31 - 1
"""Offsets in the log are signed 32-bit integers."""

_VERSION: Final = 1


@dataclass(frozen=True)
class VectorFile:
    """A file ready to be written: its path below the table's root, its bytes, its vectors."""

    path: str
    data: bytes
    descriptors: tuple[Descriptor, ...]


def pack(
    vectors: Iterable[Bitmap], *, target_size: int = TARGET_SIZE, prefix: str = ""
) -> Iterator[VectorFile]:
    """Yield files of about `target_size` with the encoded vectors, in order.

    Lazy: one file is in memory at a time. A vector larger than `target_size` gets a file of its
    own; an empty one is rejected: no engine expects it in a log.

    >>> from delvec.vector import Bitmap
    >>> [file] = pack([Bitmap([0, 9]), Bitmap([5])])
    >>> len(file.data), [d.offset for d in file.descriptors]
    (87, [1, 45])
    """
    frames: list[bytes] = []
    cardinalities: list[int] = []
    size, target_size = 1, min(target_size, MAX_FILE_SIZE)
    for vector in vectors:
        if not vector:
            raise InvalidArgumentError(
                "an empty vector cannot be stored", hint="commit the data file without one"
            )
        frame = encode_frame(vector)
        if frames and size + len(frame) > target_size:
            yield from_frames(Frames.join(frames), cardinalities, prefix=prefix)
            frames, cardinalities, size = [], [], 1
        frames.append(frame)
        cardinalities.append(vector.cardinality)
        size += len(frame)
    if frames:
        yield from_frames(Frames.join(frames), cardinalities, prefix=prefix)


def from_frames(
    frames: Frames, cardinalities: Sequence[int] | NDArray[np.int64], *, prefix: str = ""
) -> VectorFile:
    """Return a file of encoded frames, such as frames copied from Puffin."""
    if len(cardinalities) != len(frames.offsets):
        raise InvalidArgumentError(
            f"{len(frames.offsets)} frames but {len(cardinalities)} cardinalities"
        )
    if 1 + len(frames.data) > MAX_FILE_SIZE:
        raise InvalidArgumentError(
            f"{len(frames.data)} bytes of vectors do not fit one file of {MAX_FILE_SIZE} bytes"
        )
    first = Descriptor.relative(uuid4(), prefix=prefix, offset=1, size_in_bytes=0, cardinality=0)
    offsets, sizes = 1 + frames.offsets, frames.lengths - FRAME_OVERHEAD
    counts = np.asarray(cardinalities, dtype=np.int64)  # JSON takes Python's integers only
    columns = zip(offsets.tolist(), sizes.tolist(), counts.tolist(), strict=True)
    descriptors = tuple(Descriptor("u", first.path_or_inline, *column) for column in columns)
    return VectorFile(str(first.file_path), bytes([_VERSION]) + frames.data, descriptors)


def frame_ranges(data: bytes | memoryview, *, path: str | None = None) -> Iterator[tuple[int, int]]:
    """Yield offset and length of each frame of a file, without checking the frames."""
    view = memoryview(data)
    with add_location(path):
        if not view or view[0] != _VERSION:
            raise FormatError(
                "not a deletion vector file",
                offset=0,
                expected=f"version {_VERSION}",
                found=view[0] if view else "an empty file",
            )
        position = 1
        while position < len(view):
            length = int.from_bytes(view[position : position + 4], "big") + FRAME_OVERHEAD
            if position + length > len(view):
                raise TruncatedError(
                    "file ends inside a vector",
                    offset=position,
                    expected=f"{length} bytes",
                    found=f"{len(view) - position} bytes",
                )
            yield position, length
            position += length
