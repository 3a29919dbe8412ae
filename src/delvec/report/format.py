"""Figures and names in the text that people read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

UNIT_GAP: Final = re.compile(r"(?<=\d) (?=%|B\b|[KMGTP]iB\b|UTC\b)|(?<=-\d\d) (?=\d\d:)")
"""The blanks inside of figures and times, where no line ends."""
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_NAMED: Final = 3


def format_size(count: float) -> str:
    """Return a number of bytes in the binary unit that fits.

    >>> format_size(44), format_size(1536), format_size(1_048_575), format_size(5 << 40)
    ('44 B', '1.5 KiB', '1.0 MiB', '5.0 TiB')
    """
    if count < 1024:
        return f"{count:.0f} B"
    unit = 0
    while count >= 1023.95 and unit < len(_UNITS) - 1:  # what rounds to 1024.0 is 1.0 of the next
        count /= 1024
        unit += 1
    return f"{count:.1f} {_UNITS[unit]}"


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun.

    >>> format_count(1, "file"), format_count(1200, "file"), format_count(2, "file of the log")
    ('1 file', '1,200 files', '2 files of the log')
    """
    what, of, whole = noun.partition(" of ")
    return f"{count:,} {what}{'' if count == 1 else 's'}{of}{whole}"


def nonzero(count: int | None, noun: str | None = None) -> str:
    """Return a number with its noun, if there is one; nothing if the number is zero or unknown.

    >>> nonzero(1200), nonzero(1200, "file"), nonzero(0, "file")
    ('1,200', '1,200 files', '')
    """
    if not count:
        return ""
    return f"{count:,}" if noun is None else format_count(count, noun)


def format_counts(counts: Mapping[str, int]) -> str:
    """Return the counts that are not zero, each with its noun.

    >>> format_counts({"file": 2, "vector": 0, "key": 1})
    '2 files, 1 key'
    """
    return ", ".join(format_count(count, noun) for noun, count in counts.items() if count)


def named_files(paths: Sequence[str], count: int | None = None) -> str:
    """Return how many files there are, and the names of the first three.

    >>> named_files(["/a", "/b", "/c", "/d"]), named_files(["/a"], 2)
    ('4 files (/a, /b, /c, …)', '2 files (/a, …)')
    """
    count = len(paths) if count is None else count
    more = ["…"] if count > min(len(paths), _NAMED) else []
    names = [*map(escape_controls, paths[:_NAMED]), *more]
    return f"{format_count(count, 'file')} ({', '.join(names)})"


def did_you_mean(name: str, known: Iterable[str], at_most: int = 3) -> str | None:
    """Return a question for the names that are nearest, whatever their case; None if none is near.

    >>> did_you_mean("Amonut", ["id", "amount"]), did_you_mean("x", ["id"])
    ('did you mean amount?', None)
    """
    lower = {each.lower(): each for each in known}
    near = [lower[each] for each in get_close_matches(name.lower(), lower, at_most)]
    return f"did you mean {' or '.join(near)}?" if near else None


def outside_note(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the note of a report on files that do not lie in a table's folder; none without."""
    return (f"outside of the table's folder: {named_files(paths)}",) if paths else ()


def format_outcome(branch: str, snapshot_id: int | None, *, dry_run: bool) -> str:
    """Return what became of a change of a branch.

    >>> format_outcome("main", 7, dry_run=False), format_outcome("main", None, dry_run=False)
    ('snapshot 7 of main', 'main, nothing to do')
    """
    if dry_run:
        return f"{branch}, dry run, nothing was written"
    if snapshot_id is None:
        return f"{branch}, nothing to do"
    return f"snapshot {snapshot_id} of {branch}"


def format_list(**counts: int) -> str:
    """Return the counts that are not zero, each with its word.

    >>> format_list(added=1200, removed=0, kept=3)
    '1,200 added, 3 kept'
    """
    return ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)


def sizes(**counts: int) -> str:
    """Return the numbers of bytes that are not zero, each with its word.

    >>> sizes(read=2048, written=0)
    '2.0 KiB read'
    """
    return ", ".join(f"{format_size(count)} {word}" for word, count in counts.items() if count)


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

    >>> shortened("part-00000-2bc940f0.snappy.parquet", 20)
    'part-0000…py.parquet'
    """
    if len(name) <= width:
        return name
    tail = width // 2 if tail is None else tail
    return f"{name[: width - tail - 1]}…{name[len(name) - tail :]}"


def escape_controls(value: object) -> str:
    r"""Return a value on one line: names in tables and files may hold control characters.

    >>> print(escape_controls("a\nb"))
    a\nb
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value)
    )
