"""Figures and names in the text that people read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "UNIT_GAP",
    "bar",
    "counted",
    "listed",
    "parsed_size",
    "percent",
    "shortened",
    "size",
    "sizes",
    "visible",
]

UNIT_GAP: Final = re.compile(
    r"(?<=\d) (?=%|B\b|[KMGTP]iB\b|UTC\b)|(?<=-\d\d) (?=\d\d:)",
)
"""The blanks inside of figures and times, where no line ends."""

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_SIZE: Final = re.compile(r"(\d{1,18})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_NAMED: Final = 3


def size(count: float) -> str:
    """Return a number of bytes in the binary unit that fits.

    >>> size(44), size(1536), size(1_048_575), size(5 << 40)
    ('44 B', '1.5 KiB', '1.0 MiB', '5.0 TiB')
    """
    if count < 1024:
        return f"{count:.0f} B"
    unit = 0
    while count >= 1023.95 and unit < len(_UNITS) - 1:  # what rounds to 1024.0 is 1.0 of the next
        count /= 1024
        unit += 1
    return f"{count:.1f} {_UNITS[unit]}"


def parsed_size(text: str) -> int | None:
    """Return the bytes of a size such as 128MB, in powers of 1,024; None if it is none.

    >>> parsed_size("2 KiB"), parsed_size("128mb"), parsed_size("100"), parsed_size("many")
    (2048, 134217728, 100, None)
    """
    found = _SIZE.fullmatch(text.strip())
    return int(found[1]) << _SHIFTS[found[2].lower()] if found else None


def counted(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "file"), counted(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def named_files(paths: Sequence[str], count: int | None = None) -> str:
    """Return how many files there are, and the names of the first three.

    >>> named_files(["/a", "/b", "/c", "/d"]), named_files(["/a"], 2)
    ('4 files (/a, /b, /c, …)', '2 files (/a, …)')
    """
    count = len(paths) if count is None else count
    names = [*map(visible, paths[:_NAMED]), *(["…"] if count > min(len(paths), _NAMED) else [])]
    return f"{counted(count, 'file')} ({', '.join(names)})"


def outside_note(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the note of a report on files that do not lie in a table's folder; none without."""
    return (f"outside of the table's folder: {named_files(paths)}",) if paths else ()


def listed(**counts: int) -> str:
    """Return the counts that are not zero, each with its word.

    >>> listed(added=1200, removed=0, kept=3)
    '1,200 added, 3 kept'
    """
    return ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)


def sizes(**counts: int) -> str:
    """Return the numbers of bytes that are not zero, each with its word.

    >>> sizes(read=2048, written=0)
    '2.0 KiB read'
    """
    return ", ".join(f"{size(count)} {word}" for word, count in counts.items() if count)


def percent(part: int, whole: int) -> str:
    """Return a share in percent; a share too small to show is not shown as 0.

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
    """Return a share as a bar; any share above 0 is visible.

    >>> bar(1, 2), bar(1, 10**6), bar(0, 5)
    ('████    ', '▏       ', '        ')
    """
    share = min(part / whole, 1.0) if whole else 0.0
    full, rest = divmod(max(round(share * width * 8), 1 if part else 0), 8)
    return ("█" * full + _EIGHTHS[rest].strip()).ljust(width)


def shortened(name: str, width: int, tail: int | None = None) -> str:
    """Return a name without its middle if it is too long: names differ at their ends.

    Args:
        name: The name.
        width: The most characters.
        tail: How many of them are those of its end; half of them if it is not given.

    >>> shortened("part-00000-2bc940f0.snappy.parquet", 20)
    'part-0000…py.parquet'
    """
    if len(name) <= width:
        return name
    tail = width // 2 if tail is None else tail
    return f"{name[: width - tail - 1]}…{name[len(name) - tail :]}"


def visible(value: object) -> str:
    r"""Return a value on one line: names in tables and files may hold control characters.

    >>> print(visible("a\nb"))
    a\nb
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value)
    )
