"""Thrift's compact protocol, as far as Parquet footers need it: a cursor, and field headers.

Specification: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BINARY", "I32", "LIST", "STRUCT", "Compact", "field_header", "number_bytes"]

I32, BINARY, LIST, _SET, _MAP, STRUCT = 5, 8, 9, 10, 11, 12
_BOOLEANS: Final = (1, 2)
_INTEGERS: Final = (4, I32, 6)
_WIDTHS: Final = {3: 1, 7: 8, 13: 16}  # bytes, doubles, UUIDs
_LONGEST_NUMBER: Final = 63


class Compact:
    """A cursor over bytes of the compact protocol; reading beyond the end raises IndexError."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        """Return the next byte."""
        value = self.data[self.at]
        self.at += 1
        return value

    def varint(self) -> int:
        """Return the next unsigned varint."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > _LONGEST_NUMBER:
                raise IndexError(self.at)

    def number(self) -> int:
        """Return the next zigzag-encoded integer."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def binary(self) -> bytes:
        """Return the next length-prefixed bytes."""
        length = self.varint()
        self.at += length
        if self.at > len(self.data):
            raise IndexError(self.at)
        return self.data[self.at - length : self.at]

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a struct; the caller reads or skips its value."""
        number = 0
        while header := self.byte():
            number = number + (header >> 4) if header >> 4 else self.number()
            yield number, header & 0x0F

    def list_header(self) -> tuple[int, int]:
        """Return type and number of the elements of a list."""
        header = self.byte()
        return header & 0x0F, (self.varint() if header >> 4 == 15 else header >> 4)

    def skip(self, kind: int, *, in_list: bool = False) -> None:
        """Skip a value."""
        if kind in _BOOLEANS:  # the header of a field contains it
            self.at += in_list
        elif kind in _WIDTHS:
            self.at += _WIDTHS[kind]
        elif kind in _INTEGERS:
            self.varint()
        elif kind == BINARY:
            self.binary()
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        else:
            self._skip_many(kind)
        if self.at > len(self.data):
            raise IndexError(self.at)

    def _skip_many(self, kind: int) -> None:
        if kind in (LIST, _SET):
            inner, count = self.list_header()
            kinds = [inner]
        elif kind == _MAP:
            count = self.varint()
            pair = self.byte() if count else 0
            kinds = [pair >> 4, pair & 0x0F]
        else:
            raise IndexError(kind)
        for _ in range(count):
            for inner in kinds:
                self.skip(inner, in_list=True)


def field_header(delta: int, number: int, kind: int) -> bytes:
    """Return the header of a struct field.

    Args:
        delta: Its number minus that of the field before it.
        number: Its number, which is written if the difference does not fit.
        kind: The type of its value.
    """
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
