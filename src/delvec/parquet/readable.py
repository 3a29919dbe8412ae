"""Parquet files that somebody else wrote, opened by Arrow: a file, or a `FormatError`.

Arrow 26 ends the process, by an exception of C++ that nobody catches, when it is asked for a column
of a row group whose footer entry contradicts the schema, and overflows its stack if types are
nested thousands deep. So the footer is read here before Arrow has a say.

Specification: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from delvec.errors import DelvecError, FormatError
from delvec.parquet.thrift import BINARY, I32, LIST, STRUCT, field_at, list_at, number_at, skipped

_TAIL: Final = 8
_MAGIC: Final = b"PAR1"
_DEEPEST: Final = 300
_SCHEMA, _ROW_GROUPS = 2, 4  # of a file
_TYPE, _LENGTH, _REPETITION, _CHILDREN = 1, 2, 3, 5  # of an element of the schema
_OPTIONAL, _REPEATED = 1, 2
_COLUMNS: Final = 1  # of a row group
_METADATA, _ENCRYPTED = 3, 8  # of a column chunk
_STATISTICS, _SIZES = 12, 16  # of the metadata of a chunk, which begin with the type as elements do
_BOUNDS: Final = (1, 2, 5, 6)  # of statistics
_UNENCODED, _BY_REPETITION, _BY_DEFINITION = 1, 2, 3  # of size statistics
_BYTE_ARRAY: Final = 6
_WIDTHS: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, _BYTE_ARRAY: 0}  # of values, by their type
# A column: its physical type, its repetition and definition levels, and the bytes of a value.
_Leaf = tuple[int, int, int, int]
_BYTES: Final = 8 << 20


class OpenFile(Protocol):
    """A file that is open for reading, such as `storage.InputFile`."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to a byte, from the start or, if whence is 2, from the end."""

    def read(self, size: int = -1, /) -> bytes | None:
        """Read so many bytes."""


@contextmanager
def readable(
    uri: str, what: str = "not a readable Parquet file", *, hint: str | None = None
) -> Iterator[None]:
    """Turn what Arrow says of a damaged file into an error that names it."""
    try:
        yield
    except DelvecError:
        raise
    except (pa.ArrowException, OSError, UnicodeError, OverflowError) as error:
        cause = " ".join(str(error).split())[:200]
        raise FormatError(f"{what} ({cause})", path=uri, hint=hint) from error


def open_parquet(source: OpenFile, **options: Any) -> pq.ParquetFile:  # noqa: ANN401
    """Open a file whose column chunks can be asked for; inside of `readable`."""
    _require_sound(source)
    return pq.ParquetFile(source, **options)


def read_footer(source: OpenFile, uri: str) -> pq.FileMetaData:
    with readable(uri):
        return open_parquet(source).metadata


def wants_threads(size: int) -> bool:
    """Return whether so many bytes are worth threads.

    Arrow's threads release the bytes that Python read for them after the read has returned. If the
    process ends meanwhile, Python ends such a thread, and that aborts the process (SIGABRT) though
    all is done. After a large read there is work that takes longer than this moment.
    """
    return size > _BYTES


def _require_sound(source: OpenFile) -> None:
    """Refuse a footer that would end the process; Arrow tells what else is wrong."""
    size = source.seek(0, 2)
    source.seek(max(0, size - _TAIL))
    tail = source.read(_TAIL) or b""
    length = int.from_bytes(tail[:4], "little")
    if len(tail) < _TAIL or not tail.endswith(_MAGIC) or length > size - _TAIL:
        return
    source.seek(size - _TAIL - length)
    try:
        _require_consistent(source.read(length) or b"")
    except (IndexError, RecursionError) as error:
        raise _damaged("it ends before its last field") from error


def _damaged(why: str) -> pa.ArrowInvalid:
    return pa.ArrowInvalid(f"its footer is damaged: {why}")


# What follows takes where a part of the footer begins, and returns where it ends.


def _require_consistent(footer: bytes) -> None:
    at = number = 0
    leaves: list[_Leaf] = []
    while True:
        number, kind, at = field_at(footer, at, number)
        if not kind:
            return
        if number == _SCHEMA and kind == LIST:
            leaves, at = _leaves(footer, at)
        elif number == _ROW_GROUPS and kind == LIST:
            _, count, at = list_at(footer, at)
            for _ in range(count):
                at = _row_group(footer, at, leaves)
        else:
            at = skipped(footer, at, kind)


def _leaves(footer: bytes, at: int) -> tuple[list[_Leaf], int]:
    _, count, at = list_at(footer, at)
    leaves: list[_Leaf] = []
    # Of each struct around an element: how many of its children are to come, and its levels.
    open_structs: list[tuple[int, int, int]] = []
    for index in range(count):
        element, at = _element(footer, at)
        kind, repetition = element.get(_TYPE, -1), element.get(_REPETITION, 0)
        children = element.get(_CHILDREN, 0)
        repeated = definition = 0
        if open_structs:
            left, repeated, definition = open_structs.pop()
            if left > 1:
                open_structs.append((left - 1, repeated, definition))
            repeated += repetition == _REPEATED
            definition += repetition in (_OPTIONAL, _REPEATED)
        elif index:
            raise IndexError(at)
        if children > 0:
            open_structs.append((children, repeated, definition))
        elif index:
            width = _WIDTHS.get(kind, element.get(_LENGTH, 0))
            leaves.append((kind, repeated, definition, width))
        if len(open_structs) > _DEEPEST or max(repeated, definition) > _DEEPEST:
            raise RecursionError
    return leaves, at


def _element(footer: bytes, at: int) -> tuple[dict[int, int], int]:
    """Return the numbers that an element has, by their fields, and where the next begins."""
    number = 0
    kept: dict[int, int] = {}
    while True:
        number, kind, at = field_at(footer, at, number)
        if not kind:
            return kept, at
        if kind == I32:
            kept[number], at = number_at(footer, at)
        else:
            at = skipped(footer, at, kind)


def _row_group(footer: bytes, at: int, leaves: list[_Leaf]) -> int:
    number = 0
    while True:
        number, kind, at = field_at(footer, at, number)
        if not kind:
            return at
        if number != _COLUMNS or kind != LIST:
            at = skipped(footer, at, kind)
            continue
        _, count, at = list_at(footer, at)
        if count != len(leaves):
            raise _damaged(f"a row group of {count} columns, where the schema has {len(leaves)}")
        for leaf in leaves:
            at = _chunk(footer, at, leaf)


def _chunk(footer: bytes, at: int, leaf: _Leaf) -> int:
    number = 0
    while True:
        number, kind, at = field_at(footer, at, number)
        if not kind:
            return at
        if number == _ENCRYPTED:
            raise _damaged("an encrypted column")
        if number == _METADATA and kind == STRUCT:
            at = _chunk_metadata(footer, at, leaf)
        else:
            at = skipped(footer, at, kind)


def _chunk_metadata(footer: bytes, at: int, leaf: _Leaf) -> int:
    number = 0
    while header := footer[at]:
        if header > 0x0F:  # not `field_at`: there are many of these
            number, at = number + (header >> 4), at + 1
        else:
            number, at = number_at(footer, at + 1)
        kind = header & 0x0F
        if number == _TYPE and kind == I32:
            found, at = number_at(footer, at)
            if found != leaf[0]:
                raise _damaged(f"a column chunk of type {found}, where the schema has {leaf[0]}")
        elif number in (_STATISTICS, _SIZES) and kind == STRUCT:
            at = (_sizes if number == _SIZES else _bounds)(footer, at, leaf)
        else:
            at = skipped(footer, at, kind)
    return at + 1


def _bounds(footer: bytes, at: int, leaf: _Leaf) -> int:
    number = 0
    while True:
        number, kind, at = field_at(footer, at, number)
        if not kind:
            return at
        start, at = at, skipped(footer, at, kind)
        if number in _BOUNDS and kind == BINARY and leaf[3]:
            length = at - skipped(footer, start, I32)  # behind the length itself
            if length < leaf[3]:
                raise _damaged(f"a bound of {length} bytes, where a value has {leaf[3]}")


def _sizes(footer: bytes, at: int, leaf: _Leaf) -> int:
    number = 0
    while True:
        number, kind, at = field_at(footer, at, number)
        if not kind:
            return at
        if number == _UNENCODED and leaf[0] != _BYTE_ARRAY:
            raise _damaged("a size of strings in a column of none")
        if number in (_BY_REPETITION, _BY_DEFINITION) and kind == LIST:
            levels = leaf[number - 1]
            _, count, _ = list_at(footer, at)
            if count not in (0, levels + 1):
                raise _damaged(f"sizes of {count} levels, where the schema has {levels + 1}")
        at = skipped(footer, at, kind)
