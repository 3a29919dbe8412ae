"""Thrift's compact protocol, as far as Parquet footers need it: a cursor, and field headers.

Specification: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

I32, BINARY, LIST, _SET, _MAP, STRUCT = 5, 8, 9, 10, 11, 12
_BOOLEANS: Final = (1, 2)
_WIDTHS: Final = {3: 1, 7: 8, 13: 16}  # bytes, doubles, UUIDs
_LONGEST_NUMBER: Final = 63


class Compact:
    """A cursor over bytes of the compact protocol; reading beyond the end raises IndexError."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self) -> int:
        """Return the next zigzag-encoded integer."""
        value, self.at = number_at(self.data, self.at)
        return value

    def binary(self) -> bytes:
        """Return the next length-prefixed bytes."""
        length, start = _varint_at(self.data, self.at)
        self.at = start + length
        if self.at > len(self.data):
            raise IndexError(self.at)
        return self.data[start : self.at]

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a struct; the caller reads or skips its value."""
        number = 0
        while True:
            number, kind, self.at = field_at(self.data, self.at, number)
            if not kind:
                return
            yield number, kind

    def list_header(self) -> tuple[int, int]:
        kind, count, self.at = list_at(self.data, self.at)
        return kind, count

    def skip(self, kind: int) -> None:
        self.at = skipped(self.data, self.at, kind)
        if self.at > len(self.data):
            raise IndexError(self.at)


def field_header(delta: int, number: int, kind: int) -> bytes:
    if 0 < delta <= 15:
        return bytes([delta << 4 | kind])
    return bytes([kind]) + number_bytes(number)


def number_bytes(number: int) -> bytes:
    """Return a non-negative integer, zigzag-encoded.

    >>> number_bytes(100).hex()
    'c801'
    """
    parts, value = bytearray(), number << 1
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(parts) + bytes([value])


# Without a cursor, for whole footers: twice as fast. All raise IndexError beyond the end, but for
# strings and values of fixed length, behind which the next one does.


def field_at(data: bytes, at: int, before: int) -> tuple[int, int, int]:
    """Return number and type of a field, and where its value begins; type 0 ends a struct."""
    header = data[at]
    at += 1
    if not header:
        return 0, 0, at
    if header >> 4:
        return before + (header >> 4), header & 0x0F, at
    number, at = number_at(data, at)
    return number, header & 0x0F, at


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag-encoded integer, and where it ends."""
    value, at = _varint_at(data, at)
    return (value >> 1) ^ -(value & 1), at


def list_at(data: bytes, at: int) -> tuple[int, int, int]:
    """Return type and number of the elements of a list, and where the first begins."""
    header = data[at]
    count, at = header >> 4, at + 1
    if count == 15:
        count, at = _varint_at(data, at)
    if count > len(data) - at:  # each takes a byte at least
        raise IndexError(at)
    return header & 0x0F, count, at


def skipped(data: bytes, at: int, kind: int, *, in_list: bool = False) -> int:
    """Return where a value ends."""
    if 4 <= kind <= 6:  # integers
        while data[at] > 0x7F:
            at += 1
        return at + 1
    if kind == BINARY:
        length = data[at]
        at += 1
        if length > 0x7F:
            length, at = _varint_at(data, at - 1)
        return at + length
    if kind in _BOOLEANS:
        return at + in_list
    if kind in _WIDTHS:
        return at + _WIDTHS[kind]
    if kind == STRUCT:
        while header := data[at]:
            at = at + 1 if header > 0x0F else skipped(data, at + 1, I32)  # a number of its own
            at = skipped(data, at, header & 0x0F)
        return at + 1
    return _skipped_many(data, at, kind)


def _skipped_many(data: bytes, at: int, kind: int) -> int:
    if kind in (LIST, _SET):
        inner, count, at = list_at(data, at)
        kinds = [inner]
    elif kind == _MAP:
        count, at = _varint_at(data, at)
        pair = data[at] if count else 0
        at += bool(count)
        kinds = [pair >> 4, pair & 0x0F]
    else:
        raise IndexError(at)
    for _ in range(count):
        for inner in kinds:
            at = skipped(data, at, inner, in_list=True)
            if at > len(data):
                raise IndexError(at)
    return at


def _varint_at(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    value, shift = byte & 0x7F, 7
    while byte > 0x7F:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _LONGEST_NUMBER + 7:
            raise IndexError(at)
    return value, at
