"""Many frames at once, as columns: how vectors are copied between Delta and Iceberg."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

from delvec.errors import InvalidArgumentError, TruncatedError, add_location
from delvec.vector.frame import EMPTY_PAYLOAD, FRAME_OVERHEAD, POSITIONS, check_frame, decode_frame
from delvec.vector.portable import COOKIE_WITH_RUNS, COOKIE_WITHOUT_RUNS

_FIELD = 4  # bytes of a length, a magic number and a CRC
# The offsets of the number of 32-bit bitmaps in a frame, and of the first bitmap.
_BUCKETS_AT, _BITMAP_AT = 8, 20
_PAIR = 4  # bytes of a container's key and of its cardinality minus one


@dataclass(frozen=True, eq=False)
class Frames:
    """Frames, concatenated in one buffer.

    `offsets` and `lengths` span whole frames: length field to CRC.
    """

    data: bytes
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def join(cls, frames: Iterable[bytes]) -> Frames:
        """Concatenate encoded frames."""
        parts = list(frames)
        lengths = np.array([len(part) for part in parts], dtype=np.int64)
        return cls(b"".join(parts), np.cumsum(lengths) - lengths, lengths)

    @classmethod
    def concat(cls, many: Iterable[Frames]) -> Frames:
        """Concatenate frames of several files, in order."""
        parts = list(many)
        lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])
        data = b"".join(part.data for part in parts)
        return cls(data, np.cumsum(lengths) - lengths, lengths)


def copy_frames(source: bytes | memoryview, offsets: ArrayLike, lengths: ArrayLike) -> Frames:
    """Return frames copied from the bytes of a file, checked as by `check_frame`, not decoded.

    Works on whole columns: the CRC of each frame is the only step that is not vectorised. Adjacent
    frames are copied together.

    Args:
        source: The bytes that contain the frames.
        offsets: The offset of each frame, by `Descriptor.file_range` or a Puffin footer.
        lengths: The length of each whole frame, from the same place.

    Raises:
        FormatError: For the first invalid frame, with its offset in `source`.
    """
    view = memoryview(source)
    starts, sizes = _integers(offsets, "offsets"), _integers(lengths, "lengths")
    _check_frames(view, starts, sizes)
    return Frames(_gather(view, starts, sizes), np.cumsum(sizes) - sizes, sizes)


def count_positions(frames: Frames) -> NDArray[np.int64]:
    """Return the cardinality of each checked frame, by the headers of its bitmap.

    Only frames with positions of 2^32 and more are decoded. Frames of files with at most 65,536
    rows are counted all at once.
    """
    data, starts = frames.data, frames.offsets
    counts = np.full(len(starts), -1, dtype=np.int64)
    if not len(starts):
        return counts
    # A little-endian number at every byte, aligned or not; only those indexed below are read.
    longs = np.ndarray((max(0, len(data) - 7),), dtype="<u8", buffer=data, strides=(1,))
    words = np.ndarray((len(data) - 3,), dtype="<u4", buffer=data, strides=(1,))
    halves = np.ndarray((len(data) - 1,), dtype="<u2", buffer=data, strides=(1,))
    long = np.flatnonzero(frames.lengths >= _BITMAP_AT + 3 * _FIELD + _PAIR)
    begin = starts[long]
    single = long[
        (longs[begin + _BUCKETS_AT] == 1)
        & (words[begin + _BITMAP_AT] == COOKIE_WITHOUT_RUNS)
        & (words[begin + _BITMAP_AT + _FIELD] == 1)
    ]
    counts[single] = halves[starts[single] + _BITMAP_AT + 2 * _FIELD + 2].astype(np.int64) + 1
    view = memoryview(data)
    for row in np.flatnonzero(counts < 0).tolist():
        start = int(starts[row])
        with add_location(offset=start):
            counts[row] = _count_one(view[start : start + int(frames.lengths[row])])
    return counts


def _count_one(frame: memoryview) -> int:
    """Return the sum of the cardinalities in the bitmap's header; decode several bitmaps."""
    buckets = int.from_bytes(frame[_BUCKETS_AT : _BUCKETS_AT + 8], "little")
    if buckets != 1 or len(frame) < _BITMAP_AT + 3 * _FIELD:
        return decode_frame(frame).cardinality
    cookie = int.from_bytes(frame[_BITMAP_AT : _BITMAP_AT + _FIELD], "little")
    after = _BITMAP_AT + _FIELD
    if cookie == COOKIE_WITHOUT_RUNS:
        containers = int.from_bytes(frame[after : after + _FIELD], "little")
        pairs = after + _FIELD
    elif cookie & 0xFFFF == COOKIE_WITH_RUNS:
        containers = (cookie >> 16) + 1
        pairs = after + (containers + 7) // 8
    else:
        return decode_frame(frame).cardinality  # raises the error
    if pairs + containers * _PAIR + _FIELD > len(frame):
        return decode_frame(frame).cardinality
    header = np.frombuffer(frame, dtype="<u2", count=2 * containers, offset=pairs)
    return int(header[1::2].astype(np.int64).sum()) + containers


def _integers(values: ArrayLike, what: str) -> NDArray[np.int64]:
    numbers = np.asarray(values)
    if numbers.size and (numbers.ndim != 1 or numbers.dtype.kind not in "iu"):
        raise InvalidArgumentError(f"{what} must be a flat sequence of integers")
    return numbers.reshape(-1).astype(np.int64)


def _check_frames(view: memoryview, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
    """Check many frames of one buffer; the first invalid one is checked again for its error."""
    if starts.shape != lengths.shape:
        raise InvalidArgumentError(f"{len(starts)} offsets but {len(lengths)} lengths")
    size = len(view)
    inside = (starts >= 0) & (lengths >= FRAME_OVERHEAD + EMPTY_PAYLOAD) & (lengths <= size)
    inside &= starts <= size - lengths
    _refuse_first(view, starts, lengths, ~inside)
    if len(starts) == 0:
        return
    begins, ends = starts + _FIELD, starts + lengths - _FIELD
    spans = zip(begins.tolist(), ends.tolist(), strict=True)
    found = [crc32(view[begin:end]) for begin, end in spans]
    # A big-endian number at every byte, aligned or not; only those indexed below are read.
    numbers = np.ndarray((size - 3,), dtype=">u4", buffer=view, strides=(1,))
    wrong = numbers[starts] != lengths - FRAME_OVERHEAD
    wrong |= numbers[begins] != int.from_bytes(POSITIONS, "big")
    wrong |= numbers[ends] != np.array(found, dtype=np.uint32)
    _refuse_first(view, starts, lengths, wrong)


def _refuse_first(
    view: memoryview,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    wrong: NDArray[np.bool_],
) -> None:
    if not wrong.any():
        return
    index = int(np.argmax(wrong))
    start, length = int(starts[index]), int(lengths[index])
    if start < 0 or length < FRAME_OVERHEAD or start + length > len(view):
        raise TruncatedError(
            "vector lies outside its file",
            offset=start,
            expected=f"{length} bytes",
            found=f"{max(0, len(view) - max(start, 0))} bytes",
        )
    with add_location(offset=start):
        check_frame(view[start : start + length])
    raise AssertionError(f"frame at {start} is valid after all")


def _gather(view: memoryview, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> bytes:
    if len(starts) == 0:
        return b""
    breaks = np.flatnonzero(starts[1:] != (starts + lengths)[:-1]) + 1
    firsts = starts[np.concatenate(([0], breaks))].tolist()
    lasts = (starts + lengths)[np.concatenate((breaks - 1, [len(starts) - 1]))].tolist()
    return b"".join([view[first:last] for first, last in zip(firsts, lasts, strict=True)])
