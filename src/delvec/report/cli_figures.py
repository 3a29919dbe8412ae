"""Figures and names as people read them at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.report.figures import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delvec.cli.output import Column

__all__ = ["bar", "counted", "percent", "shortened", "size", "used_columns"]

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


def size(count: int) -> str:
    """Give bytes in the unit that fits.

    >>> size(44), size(1_234_567), size(999_999)
    ('44 B', '1.2 MB', '1.0 MB')
    """
    value = float(count)
    for unit in _UNITS:
        if value < (1000 if unit == "B" else 999.95) or unit == _UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError(count)


def percent(part: int, whole: int) -> str:
    """Give a share; what is less than can be shown, but there, is not 0.

    >>> percent(1, 100), percent(1, 10**6), percent(10**6 - 1, 10**6), percent(0, 0)
    ('1.0 %', '<0.1 %', '>99.9 %', '0.0 %')
    """
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 0.1:
        return "<0.1 %"
    if 99.9 < share < 100:
        return ">99.9 %"
    return f"{share:.1f} %"


def bar(part: int, whole: int, width: int = 8) -> str:
    """Draw a share as a bar; what is there at all is seen.

    >>> bar(1, 2), bar(1, 10**6), bar(0, 5)
    ('████    ', '▏       ', '        ')
    """
    share = min(part / whole, 1.0) if whole else 0.0
    full, rest = divmod(max(round(share * width * 8), 1 if part else 0), 8)
    return ("█" * full + _EIGHTHS[rest].strip()).ljust(width)


def shortened(text: str, width: int) -> str:
    """Leave out the middle of a long text: names differ at their ends.

    >>> shortened("part-00000-2bc940f0.snappy.parquet", 20)
    'part-0000…py.parquet'
    """
    if len(text) <= width:
        return text
    tail = width // 2
    return f"{text[: width - tail - 1]}…{text[-tail:]}"


def used_columns(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Leave out the columns that would be empty."""
    return [c for c in columns if any(row[c.key] not in (None, "") for row in rows)]
