"""LZ4 frames that tell the size of their content, as Puffin demands and Arrow does not write."""

from __future__ import annotations

import pyarrow as pa

_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def compress(content: bytes, claimed_size: int | None = None) -> bytes:
    """Compress; `claimed_size` puts a wrong size into the header, its checksum being right."""
    plain: bytes = pa.compress(content, codec="lz4", asbytes=True)
    size = len(content) if claimed_size is None else claimed_size
    descriptor = bytes([plain[4] | 8, plain[5]]) + size.to_bytes(8, "little")
    return plain[:4] + descriptor + bytes([_xxh32(descriptor) >> 8 & 0xFF]) + plain[7:]


def _xxh32(data: bytes) -> int:
    """XXH32 of fewer than 16 bytes."""
    one, two, three, four, five = _PRIMES
    value = five + len(data)
    words, rest = divmod(len(data), 4)
    for index in range(words):
        word = int.from_bytes(data[4 * index : 4 * index + 4], "little")
        value = _rotated(value + word * three, 17) * four
    for octet in data[len(data) - rest :]:
        value = _rotated(value + octet * five, 11) * one
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * two & 0xFFFFFFFF
    value = (value ^ value >> 13) * three & 0xFFFFFFFF
    return value ^ value >> 16


def _rotated(value: int, by: int) -> int:
    value &= 0xFFFFFFFF
    return value << by | value >> 32 - by
