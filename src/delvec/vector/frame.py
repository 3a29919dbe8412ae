"""The frame: how Delta files and Iceberg Puffin files both hold a bitmap, byte for byte alike.

    4 bytes   length of the payload, big-endian
    payload   4 bytes magic, then the bitmap in the portable 64-bit Roaring form
    4 bytes   CRC-32 of the payload, big-endian

Delta calls it an on-disk deletion vector
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-file-storage-format),
Iceberg a deletion-vector-v1 blob (https://iceberg.apache.org/puffin-spec/). Because they are the
same bytes, a frame is carried from one to the other by copying it: `copy_frames`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np

from delvec.errors import (
    ChecksumError,
    FormatError,
    InvalidArgumentError,
    MagicError,
    TruncatedError,
    located,
)
from delvec.vector import portable
from delvec.vector.bitmap import Bitmap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "FRAME_OVERHEAD",
    "KEYS",
    "MAX_POSITION",
    "POSITIONS",
    "Frames",
    "check_frame",
    "copy_frames",
    "decode_frame",
    "decode_payload",
    "encode_frame",
    "frame_payload",
    "portable_frame",
]

POSITIONS: Final = bytes.fromhex("d1d33964")
"""The magic of a bitmap of row positions, in both formats."""

KEYS: Final = b"EDV1"
"""The magic of a bitmap of key values. Not that of positions: stock Iceberg would take two such
blobs for position vectors, merge them and lose the deletes; this way it refuses them."""

FRAME_OVERHEAD: Final = 8
"""What a frame adds to its payload: length and CRC."""

MAX_POSITION: Final = (2**31 - 2) << 32 | 0x8000_0000
"""The largest row position that every engine can hold (Iceberg's Java bitmap sets the limit)."""

_NATIVE_MAGIC: Final = bytes.fromhex("d0d33964")
_MAX_PAYLOAD: Final = 2**31 - 1 - FRAME_OVERHEAD
_LARGE: Final = 1 << 20
_LENGTH: Final = Struct(">I")
_U32: Final = Struct("<I")
_MAGIC_SIZE: Final = 4
_EMPTY_PAYLOAD: Final = _MAGIC_SIZE + 8  # magic and a bucket count of 0


def encode_frame(bitmap: Bitmap, magic: bytes = POSITIONS) -> bytes:
    """Encode a bitmap as a frame, run-optimised.

    >>> encode_frame(Bitmap([0, 9])).hex(" ", 4)[:35]
    '00000024 d1d33964 01000000 00000000'
    """
    if magic == POSITIONS and bitmap.max is not None and bitmap.max > MAX_POSITION:
        raise InvalidArgumentError(
            f"row position {bitmap.max} is over {MAX_POSITION}, the largest that all engines read"
        )
    return _framed(magic, bitmap.to_bytes())


def frame_payload(payload: bytes | memoryview) -> bytes:
    """Put length and CRC around a payload that has neither, such as Delta's inline vectors.

    A payload in Delta's native layout is encoded anew, since nobody reads that from a Puffin file.
    """
    view = memoryview(payload)
    if bytes(view[:_MAGIC_SIZE]) == _NATIVE_MAGIC:
        return encode_frame(decode_payload(view, allow_native=True))
    _require_magic(view, POSITIONS, offset=0)
    return _framed(view)


def decode_frame(
    data: bytes | memoryview,
    *,
    magic: bytes = POSITIONS,
    cardinality: int | None = None,
    allow_native: bool = False,
) -> Bitmap:
    """Decode one frame after checking length, CRC, magic, structure and cardinality.

    Args:
        data: The frame and nothing else.
        magic: Which kind of bitmap is expected.
        cardinality: How many values the frame's descriptor promises, if it does.
        allow_native: Also accept the older Delta layout, which delta-spark still reads.

    Raises:
        FormatError: With the offset inside `data`; `ChecksumError`, `MagicError` and
            `TruncatedError` where these are the cause.
    """
    payload, checksum = _taken_apart(memoryview(data))
    with _checksum_held_against(payload, checksum):
        return decode_payload(
            payload,
            magic=magic,
            cardinality=cardinality,
            allow_native=allow_native,
            offset=_LENGTH.size,
        )


def decode_payload(
    payload: bytes | memoryview,
    *,
    magic: bytes = POSITIONS,
    cardinality: int | None = None,
    allow_native: bool = False,
    offset: int = 0,
) -> Bitmap:
    """Decode magic and bitmap; arguments and errors as in `decode_frame`.

    `offset` is where the payload begins in what the caller holds, for the errors.
    """
    view = memoryview(payload)
    found = _require_magic(view, magic, offset=offset, also=_NATIVE_MAGIC if allow_native else b"")
    body = view[_MAGIC_SIZE:]
    with located(offset=offset + _MAGIC_SIZE):
        bitmap = Bitmap.from_bytes(body if found == magic else _native_to_portable(body))
    if cardinality is not None and bitmap.cardinality != cardinality:
        raise FormatError(
            "wrong number of values in the bitmap",
            offset=offset,
            expected=cardinality,
            found=bitmap.cardinality,
        )
    return bitmap


def check_frame(data: bytes | memoryview, *, magic: bytes = POSITIONS) -> memoryview:
    """Check length, CRC and magic, give the payload; the bitmap itself is not looked at."""
    payload, checksum = _taken_apart(memoryview(data))
    _require_checksum(checksum, crc32(payload))
    _require_magic(payload, magic, offset=_LENGTH.size)
    if len(payload) < _EMPTY_PAYLOAD:
        raise TruncatedError(
            "vector without a bitmap",
            offset=_LENGTH.size,
            expected=f"at least {_EMPTY_PAYLOAD} bytes",
            found=f"{len(payload)} bytes",
        )
    return payload


@dataclass(frozen=True, eq=False)
class Frames:
    """Frames back to back in one buffer.

    `offsets` and `lengths` span whole frames: length field to CRC.
    """

    data: bytes
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def join(cls, frames: Iterable[bytes]) -> Frames:
        """Put frames together that are encoded already."""
        parts = list(frames)
        lengths = np.array([len(part) for part in parts], dtype=np.int64)
        return cls(b"".join(parts), np.cumsum(lengths) - lengths, lengths)

    @classmethod
    def concat(cls, many: Iterable[Frames]) -> Frames:
        """Put frames of several files together, in order."""
        parts = list(many)
        lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])
        data = b"".join(part.data for part in parts)
        return cls(data, np.cumsum(lengths) - lengths, lengths)


def copy_frames(source: bytes | memoryview, offsets: ArrayLike, lengths: ArrayLike) -> Frames:
    """Copy frames out of a file's bytes, each checked as by `check_frame`, none decoded.

    Works on whole columns: one CRC call per frame is the only step that is not vectorised, and
    neighbours are copied together.

    Args:
        source: The bytes that hold the frames.
        offsets: Where each frame begins, as `Descriptor.file_range` and Puffin's footer say.
        lengths: How long each whole frame is, as they say, too.

    Raises:
        FormatError: For the first frame that is wrong, with its offset in `source`.
    """
    view = memoryview(source)
    starts, sizes = _integers(offsets, "offsets"), _integers(lengths, "lengths")
    _check_frames(view, starts, sizes)
    return Frames(_gather(view, starts, sizes), np.cumsum(sizes) - sizes, sizes)


def portable_frame(frame: bytes | memoryview) -> bytes:
    """Give the frame as Iceberg reads it: itself, or anew if it is in Delta's native layout."""
    payload, checksum = _taken_apart(memoryview(frame))
    _require_checksum(checksum, crc32(payload))
    return frame_payload(payload)


def _integers(values: ArrayLike, what: str) -> NDArray[np.int64]:
    numbers = np.asarray(values)
    if numbers.size and (numbers.ndim != 1 or numbers.dtype.kind not in "iu"):
        raise InvalidArgumentError(f"{what} must be a flat sequence of integers")
    return numbers.reshape(-1).astype(np.int64)


def _framed(*parts: bytes | memoryview) -> bytes:
    size, checksum = 0, 0
    for part in parts:
        size += len(part)
        checksum = crc32(part, checksum)
    if size > _MAX_PAYLOAD:
        raise InvalidArgumentError(
            f"a vector of {size} bytes is over {_MAX_PAYLOAD}, the most that a frame can hold"
        )
    return b"".join((_LENGTH.pack(size), *parts, _LENGTH.pack(checksum)))


def _taken_apart(view: memoryview) -> tuple[memoryview, int]:
    """The payload and the checksum that it should have."""
    if len(view) < FRAME_OVERHEAD + _MAGIC_SIZE:
        raise TruncatedError(
            "too short for a frame",
            offset=0,
            expected=f"at least {FRAME_OVERHEAD + _MAGIC_SIZE} bytes",
            found=f"{len(view)} bytes",
        )
    (size,) = _LENGTH.unpack_from(view, 0)
    if size != len(view) - FRAME_OVERHEAD:
        raise FormatError(
            "length field does not match the size of the vector",
            offset=0,
            expected=len(view) - FRAME_OVERHEAD,
            found=size,
        )
    (checksum,) = _LENGTH.unpack_from(view, len(view) - _LENGTH.size)
    return view[_LENGTH.size : -_LENGTH.size], checksum


@contextmanager
def _checksum_held_against(payload: memoryview, checksum: int) -> Iterator[None]:
    """Check the CRC of a small payload before the block, of a large one beside it.

    The CRC of a large payload takes a third of the time that decoding does, and needs no lock of
    Python's. Decoding is safe on any bytes; a wrong checksum wins over whatever it says of them.
    """
    if len(payload) < _LARGE:
        _require_checksum(checksum, crc32(payload))
        yield
        return
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(crc32, payload)
        try:
            yield
        finally:
            _require_checksum(checksum, found.result())


def _require_checksum(expected: int, found: int) -> None:
    if found != expected:
        raise ChecksumError(
            "checksum of the vector does not match",
            offset=0,
            expected=f"CRC {expected:08x}",
            found=f"{found:08x}",
            hint="the file was damaged after it was written; restore it from a copy",
        )


def _require_magic(view: memoryview, magic: bytes, *, offset: int, also: bytes = b"") -> bytes:
    found = bytes(view[:_MAGIC_SIZE])
    if found in (magic, also) and len(found) == _MAGIC_SIZE:
        return found
    raise MagicError(
        "not a vector of this kind",
        offset=offset,
        expected=f"magic {magic.hex()}",
        found=found.hex() or "no bytes",
    )


def _native_to_portable(body: memoryview) -> memoryview:
    """Rewrite Delta's native layout: lengths before the bitmaps, keys by their place.

    4 bytes count, then per bitmap 4 bytes length and a 32-bit Roaring bitmap, all little-endian.
    """
    if len(body) < _U32.size:
        raise TruncatedError("too short for a bitmap count", offset=0, expected=4, found=len(body))
    (count,) = _U32.unpack_from(body, 0)
    if _U32.size + count * portable.MIN_BUCKET_SIZE > len(body):
        raise TruncatedError(
            f"bitmap too short for its {count} buckets",
            offset=0,
            expected=f"at least {_U32.size + count * portable.MIN_BUCKET_SIZE} bytes",
            found=f"{len(body)} bytes",
        )
    parts, position = [count.to_bytes(8, "little")], _U32.size
    for key in range(count):
        if position + _U32.size > len(body):
            raise TruncatedError("input ends inside a bitmap length", offset=position)
        (length,) = _U32.unpack_from(body, position)
        start = position + _U32.size
        end = portable.roaring_end(body, start)
        if end - start != length:
            raise FormatError(
                "wrong bitmap length", offset=position, expected=end - start, found=length
            )
        parts += [_U32.pack(key), bytes(body[start:end])]
        position = end
    if position != len(body):
        raise FormatError(
            "bytes after the last bitmap",
            offset=position,
            expected=f"{position} bytes",
            found=f"{len(body)} bytes",
        )
    return memoryview(b"".join(parts))


def _check_frames(view: memoryview, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
    """Check many frames of one buffer; the first wrong one is checked again to name its fault."""
    if starts.shape != lengths.shape:
        raise InvalidArgumentError(f"{len(starts)} offsets but {len(lengths)} lengths")
    size = len(view)
    inside = (starts >= 0) & (lengths >= FRAME_OVERHEAD + _EMPTY_PAYLOAD) & (lengths <= size)
    inside &= starts <= size - lengths
    _refuse_first(view, starts, lengths, ~inside)
    if len(starts) == 0:
        return
    begins, ends = starts + _LENGTH.size, starts + lengths - _LENGTH.size
    spans = zip(begins.tolist(), ends.tolist(), strict=True)
    found = [crc32(view[begin:end]) for begin, end in spans]
    # The big-endian number at every byte, aligned or not; only those asked for are looked at.
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
    with located(offset=start):
        check_frame(view[start : start + length])
    raise AssertionError(f"frame at {start} is sound after all")


def _gather(view: memoryview, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> bytes:
    if len(starts) == 0:
        return b""
    breaks = np.flatnonzero(starts[1:] != (starts + lengths)[:-1]) + 1
    firsts = starts[np.concatenate(([0], breaks))].tolist()
    lasts = (starts + lengths)[np.concatenate((breaks - 1, [len(starts) - 1]))].tolist()
    return b"".join([view[first:last] for first, last in zip(firsts, lasts, strict=True)])
