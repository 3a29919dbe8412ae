"""`delvec inspect`: what is in a file of deletion vectors, and whether it is sound."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from delvec.cli.exits import ExitCode
from delvec.cli.main import command as delvec_command
from delvec.cli.output import Column
from delvec.errors import FormatError
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
    from collections.abc import Iterator

    from delvec.cli.output import Output

__all__ = ["command"]

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


@delvec_command("inspect")
@click.argument("file")
@click.option(
    "--option", "-o", "options", multiple=True, metavar="KEY=VALUE", help="Storage option."
)
def command(output: Output, file: str, options: tuple[str, ...]) -> None:
    """Show what is in FILE, a Delta `.bin` or an Iceberg Puffin file, and check it.

    FILE is a path or a URI. Every vector is decoded and held against its checksum and what the
    file says of it. Exit code 4 if one is damaged.
    """
    folder, _, name = file.rpartition("/")
    storage = Storage.open(folder or ("/" if file.startswith("/") else "."), _pairs(options))
    size = storage.size(name)
    head = storage.read_range(name, 0, min(4, size))
    is_puffin = head == b"PFA1"
    entries = list(_puffin(storage, name, size) if is_puffin else _delta(storage.read(name), file))
    kind = "Puffin file" if is_puffin else "Delta deletion vector file"
    damaged = sum(entry.error is not None for entry in entries)

    output.note(f"[bold]{file}[/bold]: {kind}, {size:,} bytes, {len(entries)} entries")
    shown = [
        column for column in _COLUMNS if any(getattr(e, column.key) is not None for e in entries)
    ]
    if entries:
        output.table(shown, [asdict(entry) for entry in entries])
    state = f"[red]{damaged} damaged[/red]" if damaged else "[green]all sound[/green]"
    output.note(f"{sum(entry.cardinality or 0 for entry in entries):,} values; {state}")
    output.result(
        {
            "file": file,
            "kind": kind,
            "bytes": size,
            "damaged": damaged,
            "entries": [{k: v for k, v in asdict(e).items() if v is not None} for e in entries],
        }
    )
    if damaged:
        sys.exit(ExitCode.DAMAGED)


def _pairs(options: tuple[str, ...]) -> dict[str, str]:
    pairs = [option.partition("=") for option in options]
    if bad := [key for key, sign, _ in pairs if not sign]:
        raise click.BadParameter(f"{bad[0]!r} is not of the form KEY=VALUE", param_hint="--option")
    return {key: value for key, _, value in pairs}


def _delta(data: bytes, path: str) -> Iterator[_Entry]:
    for offset, length in delta_file.frame_ranges(data, path=path):
        try:
            bitmap = decode_frame(data[offset : offset + length], allow_native=True)
        except FormatError as error:  # noqa: PERF203  (the next vector may be sound)
            yield _Entry(offset, length, "vector", error=error.describe())
        else:
            yield _entry(offset, length, "vector", None, bitmap)


def _puffin(storage: Storage, name: str, size: int) -> Iterator[_Entry]:
    def read(start: int, length: int) -> bytes:
        return storage.read_range(name, start, length)

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
