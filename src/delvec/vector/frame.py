"""The frame: the encoding of a bitmap that Delta and Iceberg share, byte for byte.

    4 bytes   length of the payload, big-endian
    payload   4 bytes magic, then the bitmap in the portable 64-bit Roaring form
    4 bytes   CRC-32 of the payload, big-endian

Delta calls it an on-disk deletion vector
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-file-storage-format),
Iceberg a deletion-vector-v1 blob (https://iceberg.apache.org/puffin-spec/). Because they are the
same bytes, a frame is converted from one to the other by copying it: see `frame_batch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from struct import Struct
from typing import Final
from zlib import crc32

from delvec import errors
from delvec.vector import portable
from delvec.vector.bitmap import Bitmap

POSITIONS: Final = bytes.fromhex("d1d33964")
"""The magic of a bitmap of row positions, in both formats."""

KEYS: Final = b"EDV1"
"""The magic of a bitmap of key values. Not that of positions: stock Iceberg would take two such
blobs for position vectors, merge them and lose the deletes; it rejects this magic."""

FRAME_OVERHEAD: Final = 8
"""The bytes that a frame adds to its payload: length and CRC."""

EMPTY_PAYLOAD: Final = 12
"""The size of the smallest payload: magic and a bucket count of 0."""

MAX_POSITION: Final = (2**31 - 2) << 32 | 0x8000_0000
"""The largest row position that every engine supports (the limit is Iceberg's Java bitmap)."""

_NATIVE_MAGIC: Final = bytes.fromhex("d0d33964")
_MAX_PAYLOAD: Final = 2**31 - 1 - FRAME_OVERHEAD
_LARGE: Final = 1 << 20
_LENGTH: Final = Struct(">I")
_U32: Final = Struct("<I")
_MAGIC_SIZE: Final = 4


def encode_frame(bitmap: Bitmap, magic: bytes = POSITIONS) -> bytes:
    """Return a bitmap as a frame, run-optimised.

    >>> encode_frame(Bitmap([0, 9])).hex(" ", 4)[:35]
    '00000024 d1d33964 01000000 00000000'
    """
    if magic == POSITIONS and bitmap.max is not None and bitmap.max > MAX_POSITION:
        raise errors.InvalidArgumentError(
            f"row position {bitmap.max} is over {MAX_POSITION}, the largest that all engines read"
        )
    return _framed(magic, bitmap.to_bytes())


def frame_payload(payload: bytes | memoryview) -> bytes:
    """Return the frame of a payload without length and CRC, such as Delta's inline vectors.

    A payload in Delta's native layout is re-encoded: no engine reads it from a Puffin file.
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
    """Return the bitmap of one frame; checks length, CRC, magic, structure and cardinality.

    Args:
        data: The frame and nothing else.
        magic: The expected kind of bitmap.
        cardinality: The number of values by the descriptor, if known.
        allow_native: Also accept Delta's older native layout, which delta-spark still reads.

    Raises:
        FormatError: With the offset inside `data`; a `ChecksumError`, `MagicError` or
            `TruncatedError` where that is the cause.
    """
    payload, checksum = _split(memoryview(data))
    with _checksum_verified(payload, checksum):
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
    """Return the bitmap of a payload; arguments and errors as in `decode_frame`.

    `offset` is where the payload begins in the bytes of the caller, for errors.
    """
    view = memoryview(payload)
    found = _require_magic(view, magic, offset=offset, also=_NATIVE_MAGIC if allow_native else b"")
    body = view[_MAGIC_SIZE:]
    with errors.add_location(offset=offset + _MAGIC_SIZE):
        bitmap = Bitmap.from_bytes(body if found == magic else _native_to_portable(body))
    if cardinality is not None:
        message = "wrong number of values in the bitmap"
        errors.require_equal(message, cardinality, bitmap.cardinality, offset)
    return bitmap


def check_frame(data: bytes | memoryview) -> memoryview:
    """Return the payload of a frame; checks length, CRC and magic, not the bitmap itself."""
    payload, checksum = _split(memoryview(data))
    _require_checksum(checksum, crc32(payload))
    _require_magic(payload, POSITIONS, offset=_LENGTH.size)
    errors.require_bytes(
        len(payload), EMPTY_PAYLOAD, "vector without a bitmap", offset=_LENGTH.size
    )
    return payload


def portable_frame(frame: bytes | memoryview) -> bytes:
    """Return the frame as Iceberg reads it: itself, or re-encoded from Delta's native layout."""
    payload, checksum = _split(memoryview(frame))
    _require_checksum(checksum, crc32(payload))
    return frame_payload(payload)


def _framed(*parts: bytes | memoryview) -> bytes:
    size, checksum = 0, 0
    for part in parts:
        size += len(part)
        checksum = crc32(part, checksum)
    if size > _MAX_PAYLOAD:
        raise errors.InvalidArgumentError(
            f"a vector of {size} bytes is over {_MAX_PAYLOAD}, the most that a frame can hold"
        )
    return b"".join((_LENGTH.pack(size), *parts, _LENGTH.pack(checksum)))


def _split(view: memoryview) -> tuple[memoryview, int]:
    """Return the payload and its expected checksum."""
    errors.require_bytes(len(view), FRAME_OVERHEAD + _MAGIC_SIZE, "too short for a frame")
    (size,) = _LENGTH.unpack_from(view, 0)
    message = "length field does not match the size of the vector"
    errors.require_equal(message, len(view) - FRAME_OVERHEAD, size, 0)
    (checksum,) = _LENGTH.unpack_from(view, len(view) - _LENGTH.size)
    return view[_LENGTH.size : -_LENGTH.size], checksum


@contextmanager
def _checksum_verified(payload: memoryview, checksum: int) -> Iterator[None]:
    """Verify the CRC of a small payload before the block, of a large one in parallel to it.

    The CRC of a large payload takes a third of the time of decoding, and releases the GIL. Decoding
    is safe on any bytes; a wrong checksum takes precedence over any error of decoding.
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
        raise errors.ChecksumError(
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
    raise errors.MagicError(
        "not a vector of this kind",
        offset=offset,
        expected=f"magic {magic.hex()}",
        found=found.hex() or "no bytes",
    )


def _native_to_portable(body: memoryview) -> memoryview:
    """Return Delta's native layout (lengths before bitmaps, keys implicit) in the portable form.

    4 bytes count, then per bitmap 4 bytes length and a 32-bit Roaring bitmap, all little-endian.
    """
    if len(body) < _U32.size:
        raise errors.TruncatedError(
            "too short for a bitmap count", offset=0, expected=4, found=len(body)
        )
    (count,) = _U32.unpack_from(body, 0)
    portable.require_buckets(body, _U32.size, count)
    parts, position = [count.to_bytes(8, "little")], _U32.size
    for key in range(count):
        if position + _U32.size > len(body):
            raise errors.TruncatedError("input ends inside a bitmap length", offset=position)
        (length,) = _U32.unpack_from(body, position)
        start = position + _U32.size
        end = portable.roaring_end(body, start)
        errors.require_equal("wrong bitmap length", end - start, length, position)
        parts += [_U32.pack(key), bytes(body[start:end])]
        position = end
    message = "bytes after the last bitmap"
    errors.require_equal(message, f"{position} bytes", f"{len(body)} bytes", position)
    return memoryview(b"".join(parts))
