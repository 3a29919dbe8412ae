"""Attacks by numbers that a table claims: rows, parts, bytes, lengths, depths."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.delta.builder import TableBuilder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.hostile.attack import Ground

__all__ = ["ATTACKS"]

_HUGE: Final = 10**12
_ROWS: Final = 12_345  # a number whose bytes occur in a footer as a count of rows only
_READS: Final = ("open", "read", "history", "check", "inspect", "checkpoint")


def _varint(number: int) -> bytes:
    """Encode a number as Thrift's compact protocol does."""
    rest, octets = number << 1, bytearray()
    while rest > 0x7F:
        octets.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*octets, rest])


def _claim(path: Path, rows: int) -> None:
    """Let the footer of a Parquet file claim other rows than its pages have."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - length], data[-8 - length : -8]
    assert _varint(_ROWS) in footer
    footer = footer.replace(_varint(_ROWS), _varint(rows))
    path.write_bytes(body + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def _rows_of_data_file(ground: Ground, **fields: str) -> None:
    """Claim 10^12 rows in the footer of a data file, and in its statistics."""
    table = TableBuilder(ground.table, fields={"id": "long", **fields})
    table.create()
    add = table.write_file("a.parquet", {"id": range(_ROWS)}, use_dictionary=["id"])
    _claim(ground.table / "a.parquet", _HUGE)
    stats = json.dumps({"numRecords": _HUGE})
    size = (ground.table / "a.parquet").stat().st_size
    table.commit({"add": add | {"stats": stats, "size": size}})


def _rows_of_checkpoint(ground: Ground, rows: int = _HUGE) -> None:
    table = TableBuilder(ground.table)
    table.create()
    add = table.write_file("a.parquet", {"id": [1]})
    table.commit({"add": add})
    [whole] = table.checkpoint([add] * (_ROWS - 2))
    _claim(whole, rows)
    table.write_hint()


def _with_add(ground: Ground, **changed: Any) -> None:  # noqa: ANN401
    table = TableBuilder(ground.table)
    table.create()
    add = table.write_file("a.parquet", {"id": range(10)})
    table.commit({"add": add | changed})


def _with_properties(ground: Ground, **properties: str) -> None:
    table = TableBuilder(ground.table)
    table.properties = {
        **table.properties,
        **{f"delta.{name.replace('_', '.')}": value for name, value in properties.items()},
    }
    table.create()
    table.commit({"add": table.write_file("a.parquet", {"id": range(10)})})


def _with_type(ground: Ground, kind: Any) -> None:  # noqa: ANN401
    table = TableBuilder(ground.table, fields={"id": "long", "x": kind})
    table.create()
    table.commit({"add": table.write_file("a.parquet", {"id": range(10)})})


def _parts(ground: Ground, name: str) -> None:
    _with_add(ground)
    (ground.table / "_delta_log" / name).write_bytes(b"x")


def _inline(ground: Ground, size: int) -> None:
    """Put a vector of many bytes into the log itself."""
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "0" * (size // 4 * 5),
        "sizeInBytes": size,
        "cardinality": 1,
    }
    _with_add(ground, deletionVector=vector)
