"""The bytes of a vector, part by part, with their meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from delvec.vector import decode_frame
from delvec.vector.frame import POSITIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["LabelledBytes", "delta_parts", "drawn", "frame_parts", "puffin_parts"]

_WIDTH = 3 * 12  # twelve bytes, each as two digits and a space
_LINES_PER_PART = 4


@dataclass(frozen=True)
class LabelledBytes:
    """Some bytes, their meaning, a colour, and whether they are shown as text."""

    data: bytes
    meaning: str
    style: str
    is_text: bool = False


def frame_parts(frame: bytes) -> Iterator[LabelledBytes]:
    """Yield the parts of a valid frame: length, magic, bitmap, CRC."""
    bitmap = frame[8:-4]
    kind = "row positions" if frame[4:8] == POSITIONS else "key values"
    count = int.from_bytes(bitmap[:8], "little")
    values = decode_frame(frame, magic=frame[4:8]).to_numpy()
    shown = " ".join(map(str, values[:8].tolist())) + (" …" if len(values) > 8 else "")
    yield LabelledBytes(frame[:4], f"length of the vector: {len(frame) - 8}", "yellow")
    yield LabelledBytes(frame[4:8], f"magic: {kind}", "magenta")
    yield LabelledBytes(bitmap[:8], f"number of bitmaps: {count}", "cyan")
    if count:
        yield LabelledBytes(bitmap[8:12], "upper 32 bits of the first", "cyan")
        yield LabelledBytes(bitmap[12:], f"Roaring bitmap of {shown}", "bold green")
    yield LabelledBytes(frame[-4:], "CRC-32 of magic and bitmaps", "red")


def delta_parts(data: bytes) -> Iterator[LabelledBytes]:
    """Yield the parts of a Delta file with one vector."""
    yield LabelledBytes(data[:1], "version of the file", "blue")
    yield from frame_parts(data[1:])


def puffin_parts(data: bytes, frame: bytes) -> Iterator[LabelledBytes]:
    """Yield the parts of a Puffin file with one vector."""
    footer = 4 + len(frame)
    yield LabelledBytes(data[:4], "PFA1: a Puffin file", "blue")
    yield from frame_parts(data[4:footer])
    yield LabelledBytes(data[footer : footer + 4], "PFA1: here the footer begins", "blue")
    yield LabelledBytes(
        data[footer + 4 : -12], "JSON: place and file of a vector", "white", is_text=True
    )
    yield LabelledBytes(data[-12:-8], f"length of the JSON: {len(data) - footer - 16}", "blue")
    yield LabelledBytes(data[-8:-4], "flags: not compressed", "blue")
    yield LabelledBytes(data[-4:], "PFA1", "blue")


def drawn(parts: Iterable[LabelledBytes]) -> Table:
    """Return parts as a table: offset, bytes, meaning."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("byte", justify="right", style="dim")
    table.add_column("as stored", no_wrap=True)
    table.add_column("meaning")
    position = 0
    for part in parts:
        table.add_row(str(position), Text(_lines(part), part.style), part.meaning)
        position += len(part.data)
    return table


def _lines(part: LabelledBytes) -> str:
    """Return the bytes in lines of equal width, hexadecimal or as text."""
    text = part.data.decode() if part.is_text else part.data.hex(" ") + " "
    lines = [text[start : start + _WIDTH] for start in range(0, len(text), _WIDTH)]
    if len(lines) > _LINES_PER_PART and not part.is_text:
        lines = [*lines[: _LINES_PER_PART - 1], "…"]
    return "\n".join(lines)
