"""The demonstration without a JVM: a vector byte by byte in both formats, and a Delta table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table
from rich.text import Text

from delvec.delta.skipping.predicate import Always
from delvec.delta.table import DeltaTable
from delvec.delta.write.change import Base, Change, Operation, ReadSet, VectorUpdate
from delvec.delta.write.commit import commit
from delvec.errors import ChecksumError
from delvec.storage import Storage
from delvec.storage.uncommitted import UncommittedFiles
from delvec.vector import Bitmap, DeletionVector, Descriptor, encode_frame, pack, puffin

if TYPE_CHECKING:
    from delvec.cli.demo.demo import Tour

_PER_LINE = 3 * 12  # twelve bytes, each as two digits and a space
_ROWS: Final = 30
_DELETED: Final = (3, 4, 7, 11, 18, 29)
_PUFFIN_FILE: Final = "orders-deletes.puffin"
_DAYS: Final = ("2026-01-29", "2026-01-30", "2026-01-31")
_ROWS_OF_A_DAY: Final = 10_000


def show_bytes(tour: Tour) -> dict[str, Any]:
    """Write a vector as Delta and as Iceberg have it, compare, damage and measure it."""
    tour.begin(f"{len(_DELETED)} of {_ROWS} rows are deleted. The Parquet file is not touched.")
    rows = ((f"{row} ", "bold red") if row in _DELETED else ("· ", "green") for row in range(_ROWS))
    tour.fact(*rows)
    deleted = Bitmap(_DELETED)
    tour.fact("Where they are is a deletion vector: ", (str(deleted), "bold"))

    tour.begin("Delta holds it in a file, and the log points there.")
    [file] = pack([deleted])
    [descriptor] = file.descriptors
    tour.storage.write_if_absent(file.path, file.data)
    for key, value in descriptor.to_json().items():
        tour.fact((f"{key:<15} ", "dim"), json.dumps(value))
    tour.fact((f"{'file':<15} ", "dim"), f"{file.path}\n")
    in_delta = tour.storage.read_range(file.path, *descriptor.file_range)
    size = len(in_delta)
    frame = [
        (4, "yellow", f"length of the vector: {size - 8}"),
        (4, "magenta", "magic: row positions"),
        (8, "cyan", "number of bitmaps: 1"),
        (4, "cyan", "upper 32 bits of the first"),
        (size - 24, "bold green", f"Roaring bitmap of {' '.join(map(str, _DELETED))}"),
        (4, "red", "CRC-32 of magic and bitmaps"),
    ]
    tour.output.draw(_picture(file.data, [(1, "blue", "version of the file"), *frame]))

    tour.begin("Iceberg holds it as a blob of a Puffin file.")
    vector = DeletionVector(deleted, "orders/part-00000.parquet")
    tour.storage.write(_PUFFIN_FILE, puffin.encode([vector.to_blob()]).data)
    data = tour.storage.read(_PUFFIN_FILE)
    tour.fact(f"file  {_PUFFIN_FILE}\n")
    parts = [
        (4, "blue", "PFA1: a Puffin file"),
        *frame,
        (4, "blue", "PFA1: here the footer begins"),
        (len(data) - size - 20, "white", "JSON: place and file of a vector"),
        (4, "blue", f"length of the JSON: {len(data) - size - 20}"),
        (4, "blue", "flags: not compressed"),
        (4, "blue", "PFA1"),
    ]
    tour.output.draw(_picture(data, parts))

    tour.begin("From length to CRC these are the same bytes: a vector moves by copying.")
    read = puffin.reader_of(data)
    [blob] = puffin.read_footer(read, len(data)).blobs
    in_puffin = puffin.read_blob(read, blob)
    found = DeletionVector.from_blob(blob, in_puffin).positions.to_numpy().tolist()
    same = in_puffin == in_delta
    answer = ("the same", "bold green") if same else ("different", "bold red")
    tour.fact(f"{size} bytes of Delta's file, {len(in_puffin)} of Puffin's: ", answer)
    tour.fact(f"read back from Puffin: rows {' '.join(map(str, found))}")
    in_log = {"file": file.path, "descriptor": descriptor.to_json(), "bytes": file.data.hex()}
    return {
        "delta": in_log,
        "iceberg": {"file": _PUFFIN_FILE, "bytes": data.hex()},
        "same_bytes": same,
        "deleted_rows": found,
        "damage": _show_damage(tour, descriptor, in_delta),
        "sizes": _show_sizes(tour),
    }


def show_table(tour: Tour) -> dict[str, Any]:
    """Write a table if there is none, and read it through its vectors; needs no JVM."""
    tour.begin(
        "A Delta table with deletion vectors, read without a JVM.",
        ['delvec.DeltaTable.for_path(None, "orders").to_arrow()'],
    )
    path = tour.path("orders")
    if not DeltaTable.is_delta_table(path):  # it exists in a folder that was kept
        write_orders(path)
    table = DeltaTable.for_path(None, path)
    files = table.arrow_files().select(["path", "row_count", "deleted_rows", "vector_bytes"])
    rows = files.sort_by("path").to_pylist()
    titles = ("path=file", "row_count=rows", "deleted_rows=deleted", "vector_bytes=vector, bytes")
    tour.table(rows, *titles)
    counts = {"rows": table.to_arrow().num_rows, "rows_before": table.count(version=1)}
    tour.fact(
        f"version {table.version}: {counts['rows']:,} rows; version 1:"
        f" {counts['rows_before']:,} rows"
    )
    tour.why("The log says which rows are deleted; no data file was changed.")
    return {"files": rows, **counts}


def write_orders(path: str) -> None:
    """Write a file for each day, then delete every seventh row of the last two by vectors."""
    storage = Storage.open(path)
    for number, day in enumerate(_DAYS):
        ids = range(number * _ROWS_OF_A_DAY, (number + 1) * _ROWS_OF_A_DAY)
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": ids, "amount": [i / 100 for i in ids]}), sink)
        file = f"day={day}/part-{number:05d}.parquet"
        storage.write_if_absent(file, sink.getvalue().to_pybytes())
    without = {"delta.enableDeletionVectors": "false"}
    DeltaTable.convert_to_delta(None, path, {"day": "date"}, without)
    table = DeltaTable.for_path(None, path)
    table.enable_deletion_vectors()
    snapshot = table.snapshot()
    vectors = tuple(
        VectorUpdate(file, _ROWS_OF_A_DAY, Bitmap(range(0, _ROWS_OF_A_DAY, 7)))
        for file in snapshot.files.entries()
        if file.add["partitionValues"]["day"] != _DAYS[0]
    )
    change = Change(Operation("DELETE", reads=ReadSet(Always())), vector_updates=vectors)
    with UncommittedFiles(snapshot.storage) as uncommitted:
        commit(Base.of(snapshot), change, uncommitted)


def _picture(data: bytes, parts: Iterable[tuple[int, str, str]]) -> Table:
    """Return bytes as a table, by the size, colour and meaning of their parts; JSON as text."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("byte", justify="right", style="dim")
    table.add_column("as stored", no_wrap=True)
    table.add_column("meaning")
    start = 0
    for size, colour, meaning in parts:
        stored = data[start : start + size]
        text = stored.decode() if meaning.startswith("JSON") else f"{stored.hex(' ')} "
        lines = [text[at : at + _PER_LINE] for at in range(0, len(text), _PER_LINE)]
        table.add_row(str(start), Text("\n".join(lines), colour), meaning)
        start += size
    return table


def _show_damage(tour: Tour, descriptor: Descriptor, frame: bytes) -> str:
    tour.begin("A damaged vector is an error; no row comes back, none is lost.")
    damaged = bytearray(frame)
    damaged[len(damaged) // 2] ^= 1
    try:
        descriptor.decode(bytes(damaged))
    except ChecksumError as error:
        name = str(descriptor.file_path)
        told = error.describe().replace(name, f"{name[:20]}…")
        tour.fact("one bit flipped:")
        tour.fact((told.replace(": expected", ":\nexpected"), "red"))
        return error.describe()
    raise AssertionError("a flipped bit changes the checksum")


def _show_sizes(tour: Tour) -> list[dict[str, Any]]:
    rows, chance = 10_000_000, np.random.default_rng(7)
    tour.begin(f"Vectors are small: {rows:,} rows, deleted in four ways.")
    cases = {
        "1,000 rows at random": np.sort(chance.choice(rows, 1000, replace=False)),
        "1 % at random": np.flatnonzero(chance.random(rows) < 0.01),
        "every second row": np.arange(0, rows, 2),
        "the first half": np.arange(rows // 2),
    }
    found: list[dict[str, Any]] = []
    for name, positions in cases.items():
        size, deleted = len(encode_frame(Bitmap(positions))), len(positions)
        bits = round(size * 8 / deleted, 3)
        found.append({"deleted": name, "rows": deleted, "bytes": size, "bits_per_row": bits})
    tour.table(found, "deleted", "rows", "bytes", "bits_per_row=bits per row")
    return found
