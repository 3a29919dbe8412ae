"""`delvec demo --bytes`: a deletion vector in both formats, byte by byte; needs no JVM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.text import Text

from delvec.cli.demo.anatomy import delta_parts, drawn, puffin_parts
from delvec.errors import ChecksumError
from delvec.vector import Bitmap, DeletionVector, encode_frame, pack, puffin
from delvec.vector.puffin import read_blob, read_footer, reader_of

if TYPE_CHECKING:
    from delvec.cli.demo.stage import Teller
    from delvec.storage import Storage
    from delvec.vector import Descriptor

__all__ = ["show_bytes"]

_ROWS: Final = 30
_DELETED: Final = (3, 4, 7, 11, 18, 29)
_DATA_FILE: Final = "orders/part-00000.parquet"
_PUFFIN_FILE: Final = "orders-deletes.puffin"


def show_bytes(tell: Teller, storage: Storage) -> dict[str, Any]:
    """Write a vector as Delta and as Iceberg have it, compare, damage and measure it."""
    deleted = _delete_rows(tell)
    descriptor, delta = _write_delta(tell, storage, deleted)
    return {
        "delta": delta,
        "iceberg": _write_iceberg(tell, storage, deleted),
        **_compare(tell, storage, descriptor),
        "damage": _damage(tell, storage, descriptor),
        "sizes": _sizes(tell),
    }


def _delete_rows(tell: Teller) -> Bitmap:
    tell.begin(f"{len(_DELETED)} of {_ROWS} rows are deleted. The Parquet file is not touched.")
    deleted = Bitmap(_DELETED)
    picture = Text()
    for row, dead in enumerate(deleted.to_mask(0, _ROWS).tolist()):
        picture.append(f"{row}" if dead else "·", "bold red" if dead else "green")
        picture.append(" ")
    tell.output.draw(picture)
    tell.fact("Where they are is a deletion vector: ", (str(deleted), "bold"))
    return deleted


def _write_delta(
    tell: Teller, storage: Storage, deleted: Bitmap
) -> tuple[Descriptor, dict[str, Any]]:
    tell.begin("Delta holds it in a file, and the log points there.")
    [file] = pack([deleted])
    storage.write_if_absent(file.path, file.data)
    descriptor = file.descriptors[0]
    for key, value in descriptor.to_json().items():
        tell.fact((f"{key:<15} ", "dim"), json.dumps(value))
    tell.fact((f"{'file':<15} ", "dim"), f"{file.path}\n")
    tell.output.draw(drawn(delta_parts(file.data)))
    facts = {"file": file.path, "descriptor": descriptor.to_json(), "bytes": file.data.hex()}
    return descriptor, facts


def _write_iceberg(tell: Teller, storage: Storage, deleted: Bitmap) -> dict[str, Any]:
    tell.begin("Iceberg holds it as a blob of a Puffin file.")
    file = puffin.encode([DeletionVector(deleted, _DATA_FILE).to_blob()])
    storage.write(_PUFFIN_FILE, file.data)
    tell.fact(f"file  {_PUFFIN_FILE}\n")
    tell.output.draw(drawn(puffin_parts(file.data, encode_frame(deleted))))
    return {"file": _PUFFIN_FILE, "bytes": file.data.hex()}


def _compare(tell: Teller, storage: Storage, descriptor: Descriptor) -> dict[str, Any]:
    tell.begin("From length to CRC these are the same bytes: a vector moves by copying.")
    in_delta = storage.read_range(str(descriptor.file_path), *descriptor.file_range)
    data = storage.read(_PUFFIN_FILE)
    [blob] = read_footer(reader_of(data), len(data)).blobs
    in_puffin = read_blob(reader_of(data), blob)
    rows = DeletionVector.from_blob(blob, in_puffin).positions.to_numpy().tolist()
    same = in_puffin == in_delta
    answer = ("the same", "bold green") if same else ("different", "bold red")
    tell.fact(f"{len(in_delta)} bytes of Delta's file, {len(in_puffin)} of Puffin's: ", answer)
    tell.fact(f"read back from Puffin: rows {' '.join(map(str, rows))}")
    return {"same_bytes": same, "deleted_rows": rows}


def _damage(tell: Teller, storage: Storage, descriptor: Descriptor) -> str:
    tell.begin("A damaged vector is an error; no row comes back, none is lost.")
    start, length = descriptor.file_range
    damaged = bytearray(storage.read_range(str(descriptor.file_path), start, length))
    damaged[length // 2] ^= 1
    try:
        descriptor.decode(bytes(damaged))
    except ChecksumError as error:
        name = str(descriptor.file_path)
        told = error.describe().replace(name, f"{name[:20]}…")
        tell.fact("one bit flipped:")
        tell.fact((told.replace(": expected", ":\nexpected"), "red"))
        return error.describe()
    raise AssertionError("a flipped bit changes the checksum")


def _sizes(tell: Teller) -> list[dict[str, Any]]:
    rows = 10_000_000
    tell.begin(f"Vectors are small: {rows:,} rows, deleted in four ways.")
    chance = np.random.default_rng(7)
    cases = {
        "1,000 rows at random": np.sort(chance.choice(rows, 1000, replace=False)),
        "1 % at random": np.flatnonzero(chance.random(rows) < 0.01),
        "every second row": np.arange(0, rows, 2),
        "the first half": np.arange(rows // 2),
    }
    sizes = {name: len(encode_frame(Bitmap(positions))) for name, positions in cases.items()}
    found = [
        {
            "deleted": name,
            "rows": len(positions),
            "bytes": sizes[name],
            "bits_per_row": round(sizes[name] * 8 / len(positions), 3),
        }
        for name, positions in cases.items()
    ]
    titles = ("deleted", "rows", "bytes", "bits_per_row")
    tell.table({each: each.replace("_", " ") for each in titles}, found)
    return found
