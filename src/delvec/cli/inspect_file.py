"""`delvec inspect FILE`: the contents of a file of deletion vectors, verified."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from delvec.cli.exits import ExitCode
from delvec.cli.output import Column, visible
from delvec.errors import FormatError, InvalidArgumentError, located
from delvec.storage import Storage
from delvec.vector import Bitmap, delta_file, puffin
from delvec.vector.blobs import (
    DELETION_VECTOR,
    EQUALITY_DELETE_VECTOR,
    DeletionVector,
    EqualityDeleteVector,
)
from delvec.vector.frame import decode_frame

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from delvec.cli.output import Output

__all__ = ["VECTOR_FILES", "show_file"]

VECTOR_FILES = (".bin", ".puffin", ".stats")
"""How the names of files of vectors end."""

_COLUMNS = [
    Column("offset", "offset", "dim"),
    Column("bytes", "bytes"),
    Column("type", "type"),
    Column("cardinality", "values", "bold"),
    Column("min", "first"),
    Column("max", "last"),
    Column("of", "of"),
    Column("error", "error", "red"),
]


@dataclass(frozen=True)
class _Entry:
    """One vector or other blob of a file."""

    offset: int
    bytes: int
    type: str
    of: str | None = None
    cardinality: int | None = None
    min: int | None = None
    max: int | None = None
    error: str | None = None


def show_file(output: Output, file: str, options: Mapping[str, str]) -> None:
    """Show the vectors of a file; exit code 4 if one is damaged."""
    storage, key = Storage.open_file(file, options)
    size = storage.size(key)
    head = storage.read_range(key, 0, min(4, size))
    with located(file):
        kind, entries = _read(storage, key, size, head)
    _show(output, file, kind, size, entries)
    if any(entry.error for entry in entries):
        sys.exit(ExitCode.DAMAGED)


def _read(storage: Storage, key: str, size: int, head: bytes) -> tuple[str, list[_Entry]]:
    """Return kind and entries of a file; a file of another kind is not read beyond its magic."""
    if head == b"PFA1":
        return "Puffin file", list(_puffin(storage, key, size))
    if head[:1] == b"\x01" and size <= delta_file.MAX_FILE_SIZE:
        return "Delta deletion vector file", list(_delta(storage.read(key)))
    known = {b"PAR1": "a Parquet file", b"": "an empty file"}.get(head)
    hint = "name a .bin file that a Delta log points to, or a Puffin file of Iceberg"
    if not key.endswith(VECTOR_FILES):  # then it is another file, not a damaged one
        raise InvalidArgumentError(
            f"{storage.uri_of(key)} is neither a table nor a file of deletion vectors"
            + (f", but {known}" if known else ""),
            hint=hint,
        )
    raise FormatError(
        "not a file of deletion vectors",
        offset=0,
        expected="version 1 of Delta's, or PFA1",
        found=known or head.hex(" "),
        hint=hint,
    )


def _show(output: Output, file: str, kind: str, size: int, entries: list[_Entry]) -> None:
    count = "1 entry" if len(entries) == 1 else f"{len(entries):,} entries"
    output.note((visible(file), "bold"), f": {kind}, {size:,} bytes, {count}")
    rows = [asdict(entry) for entry in entries]
    used = [column for column in _COLUMNS if any(row[column.key] is not None for row in rows)]
    if rows:
        output.table(used, rows)
    damaged = sum(entry.error is not None for entry in entries)
    total = sum(entry.cardinality or 0 for entry in entries)
    state = (f"{damaged} damaged", "bold red") if damaged else ("all sound", "green")
    output.note(f"{total:,} values; ", state)
    output.result(
        {
            "file": file,
            "kind": kind,
            "bytes": size,
            "damaged": damaged,
            "entries": [{k: v for k, v in row.items() if v is not None} for row in rows],
        }
    )


def _delta(data: bytes) -> Iterator[_Entry]:
    for offset, length in delta_file.frame_ranges(data):
        try:
            with located(offset=offset):
                bitmap = decode_frame(data[offset : offset + length], allow_native=True)
        except FormatError as error:  # noqa: PERF203  (the next vector may be valid)
            yield _Entry(offset, length, "vector", error=error.describe())
        else:
            yield _entry(offset, length, "vector", None, bitmap)


def _puffin(storage: Storage, key: str, size: int) -> Iterator[_Entry]:
    def read(start: int, length: int) -> bytes:
        return storage.read_range(key, start, length)

    for blob in puffin.read_footer(read, size).blobs:
        try:
            if blob.type == DELETION_VECTOR:
                vector = DeletionVector.from_blob(blob, puffin.read_blob(read, blob))
                of, bitmap = vector.data_file, vector.positions
            elif blob.type == EQUALITY_DELETE_VECTOR:
                keys = EqualityDeleteVector.from_blob(blob, puffin.read_blob(read, blob))
                of, bitmap = f"field {keys.field_id}", keys.keys
            else:
                yield _Entry(blob.offset, blob.length, blob.type)
                continue
        except FormatError as error:
            yield _Entry(blob.offset, blob.length, blob.type, error=error.describe())
        else:
            yield _entry(blob.offset, blob.length, blob.type, of, bitmap)


def _entry(offset: int, length: int, kind: str, of: str | None, bitmap: Bitmap) -> _Entry:
    return _Entry(offset, length, kind, of, bitmap.cardinality, bitmap.min, bitmap.max)
