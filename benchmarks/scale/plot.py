"""A plot of memory over files, both logarithmic: a linear cost rises one decade per decade."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["plot"]

# Greys and hues that can be read on a light page and on a dark one: an image does not know which.
_TEXT: Final = "#7d8590"
_HUES: Final = ("#3f8fd2", "#b0862f", "#3d9a5f", "#b8568c", "#7a6fd0", "#c0603f")
_LEFT, _TOP, _WIDE, _HIGH, _LABELS = 80, 20, 460, 300, 190
_FILES: Final = (100_000, 10_000_000)
_MIB: Final = (100, 20_000)
_APART: Final = 14


def plot(lines: Mapping[str, Mapping[int, float]]) -> str:
    """Return an SVG with a line for each operation, of MiB by files, and its name at the end."""
    body = [*_axes()]
    ends = []
    for number, (name, points) in enumerate(lines.items()):
        places = [(_x(files), _y(mib)) for files, mib in points.items()]
        if places:
            text = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            hue = _HUES[number % len(_HUES)]
            body.append(f'<polyline points="{text}" fill="none" stroke="{hue}" stroke-width="2"/>')
            ends.append((places[-1][1], name, hue))
    lowest = float("-inf")
    for y, name, hue in sorted(ends):  # names of lines that end together are put apart
        lowest = max(y, lowest + _APART)
        at = f'x="{_LEFT + _WIDE + 8}" y="{lowest + 4:.1f}"'
        body.append(f'<text {at} fill="{hue}">{escape(name)}</text>')
    width, height = _LEFT + _WIDE + _LABELS, _TOP + _HIGH + 50
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' font-family="system-ui, sans-serif" font-size="12" fill="{_TEXT}" role="img">\n'
        "<title>Memory of the Python process by the files of the table</title>\n"
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _axes() -> list[str]:
    found = []
    for mib, name in ((100, "100 MiB"), (1024, "1 GiB"), (10_240, "10 GiB")):
        y = _y(mib)
        found.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + _WIDE}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_TEXT}"'
            ' stroke-width="0.5"/>'
        )
        found.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
    for files, name in ((100_000, "100,000"), (1_000_000, "1 M"), (10_000_000, "10 M files")):
        at = f'x="{_x(files):.1f}" y="{_TOP + _HIGH + 20}"'
        found.append(f'<text {at} text-anchor="middle">{name}</text>')
    return found


def _x(files: float) -> float:
    return _LEFT + _WIDE * _share(files, *_FILES)


def _y(mib: float) -> float:
    return _TOP + _HIGH * (1 - _share(mib, *_MIB))


def _share(value: float, low: float, high: float) -> float:
    return math.log(value / low) / math.log(high / low)
