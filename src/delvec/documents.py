"""JSON, numbers, sizes, durations and times that somebody else wrote as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from delvec.errors import FormatError, InvalidArgumentError

LONG_MAX: Final = 2**63 - 1
"""The largest number that engines on the JVM have: versions, ids, times and counts are longs."""

# A schema takes three levels for each struct in a struct. Jackson, which all engines on the JVM
# read with, ends at 1000 levels; what walks the values here takes up to four calls for a level, and
# Python ends at 1000 of those.
_DEEPEST: Final = 300
_DIGITS: Final = re.compile("(-?)0*([0-9]{1,19})")
_SIZE: Final = re.compile(r"([0-9]{1,18})\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{0,6})?|\.[0-9]{1,6})\s*([a-z]*)")
_SECONDS: Final = {"": 1, "ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
TIMES_MS: Final = range(253_402_300_800_000)
"""Milliseconds since 1970, up to the year 9999, the last that Python has."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[ T]([0-9]{2}):([0-9]{2})"
    r"(?::([0-9]{2})(?:\.([0-9]{1,6})0{0,3})?)?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
# Where a document that is null could begin, or a second one in a line; or strings that look so. Not
# one pattern: each of these begins with a byte that is searched for, 30 times as fast.
_DOUBTFUL: Final = (re.compile(rb"\n[ \t\r]*n"), re.compile(rb"\}[ \t\r]*[{n]"))
_NULL_FIRST: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*n")
_STRING: Final = re.compile(rb'"(?:[^"\\\n]|\\[^\n])*"')


def parse_json(
    text: object,
    what: str,
    *,
    path: str | None = None,
    parse_float: Callable[[str], Any] | None = None,
) -> Any:  # noqa: ANN401
    """Parse a JSON document of a table.

    As in Jackson the last one of several equal keys wins, and a byte order mark is passed over.

    >>> parse_json(b'{"version": 3}', "the hint")
    {'version': 3}
    """
    try:
        string = _string(text)
        value = json.loads(string, parse_float=parse_float)
        if string.count("{") + string.count("[") > _DEEPEST:
            _require_shallow(value)
        if "\\ud" in string or "\\uD" in string:  # Arrow takes no half of a pair
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(f"{what} is not JSON", path=path, found=_cause(error)) from error
    return value


def _string(text: object) -> str:
    if isinstance(text, bytes):
        return text.decode().removeprefix("\ufeff")
    if not isinstance(text, str):
        raise TypeError(f"a {type(text).__name__}")
    return text


def is_plain(lines: bytes | memoryview) -> bool:
    """Tell whether Arrow may parse lines of JSON: no line is null, and none holds two documents.

    Arrow 26 ends the process at a null that comes first. In doubt, parse each line on its own.

    >>> is_plain(b'{"a":"}{"}'), is_plain(b"null"), is_plain(b'{} {"a":2}')
    (True, False, False)
    """
    if _NULL_FIRST.match(lines):
        return False
    if not any(pattern.search(lines) for pattern in _DOUBTFUL):
        return True
    without_strings = _STRING.sub(b'""', lines)
    return not any(pattern.search(without_strings) for pattern in _DOUBTFUL)


def whole_number(text: object, at_most: int = LONG_MAX, *, signed: bool = False) -> int | None:
    r"""Return the number that a string of ASCII digits spells; None if it is none, or too large.

    `int` takes the digits of every script, underscores and blanks, and fails with an error of its
    own for more than 4300 digits.

    >>> whole_number("007"), whole_number("-1"), whole_number("-1", signed=True)
    (7, None, -1)
    >>> whole_number("4\N{ARABIC-INDIC DIGIT TWO}"), whole_number("9" * 5000)
    (None, None)
    """
    found = _DIGITS.fullmatch(text) if isinstance(text, str) else None
    if found is None or (found[1] and not signed):
        return None
    number = int(found[1] + found[2])
    return number if -LONG_MAX - 1 <= number <= at_most else None


def size_bytes(text: str) -> int | None:
    """Return the bytes of a size such as 128MB, in powers of 1,024; None if it is none.

    >>> size_bytes("2 KiB"), size_bytes("128mb"), size_bytes("100"), size_bytes("many")
    (2048, 134217728, 100, None)
    """
    found = _SIZE.fullmatch(text.strip())
    return int(found[1]) << _SHIFTS[found[2].lower()] if found else None


def duration_seconds(text: str) -> float | None:
    """Return the seconds of a duration such as 500ms, 2m or 30; None if it is none.

    >>> duration_seconds("1.5m"), duration_seconds("7d"), duration_seconds("soon")
    (90.0, 604800.0, None)
    """
    found = _DURATION.fullmatch(text.strip().lower())
    return float(found[1]) * _SECONDS[found[2]] if found and found[2] in _SECONDS else None


def parse_time(text: str) -> datetime | None:
    """Return the time that a string in ISO form spells, naive if it names no zone; None if none.

    >>> parse_time("2026-01-31 10:00"), parse_time("2026-01-31T10:00:00Z").tzinfo
    (datetime.datetime(2026, 1, 31, 10, 0), datetime.timezone.utc)
    """
    if (found := _TIME.fullmatch(text)) is None:
        return None
    *clock, fraction, zone = found.groups()
    year, month, day, hour, minute, second = (int(each or 0) for each in clock)
    micros = int((fraction or "0").ljust(6, "0"))
    try:
        moment = datetime(year, month, day, hour, minute, second, micros)  # noqa: DTZ001
        return moment if zone is None else moment.replace(tzinfo=zone_of(zone.upper()))
    except ValueError:  # a 30th of February
        return None


@lru_cache(maxsize=64)
def zone_of(name: str) -> tzinfo:
    """Return a time zone by its name or, as Java allows, an offset such as `+02:00` or `GMT-3`."""
    if match := _OFFSET.fullmatch(name):
        offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        if offset <= timedelta(hours=18):  # Java's limit
            return timezone(-offset if match[1] == "-" else offset)
    try:
        return timezone.utc if name in ("UTC", "Z", "GMT") else ZoneInfo(name)
    except (LookupError, ValueError, OSError) as error:
        raise InvalidArgumentError(
            f"there is no time zone {name!r} on this machine",
            hint="give a name such as Europe/Berlin, or install the package tzdata",
        ) from error


def time_ms(moment: datetime | str, time_zone: str = "UTC") -> int:
    """Return a time in milliseconds since 1970; one that names no zone is one of `time_zone`.

    >>> time_ms("1970-01-01 00:00:01"), time_ms("1970-01-01T01:00:00+01:00")
    (1000, 0)
    """
    found = parse_time(moment.strip()) if isinstance(moment, str) else moment
    if not isinstance(found, datetime):
        raise InvalidArgumentError(
            f"{moment!r} is no timestamp",
            hint="give a datetime, or a string such as '2024-01-31', '2024-01-31 10:00:00' or with"
            " a zone '2024-01-31T10:00:00+01:00'",
        )
    aware = found if found.tzinfo is not None else found.replace(tzinfo=zone_of(time_zone))
    return (aware - EPOCH) // _MILLISECOND


def shown_time(milliseconds: int, between: str = " ") -> str:
    """Return a time in milliseconds since 1970 as text, in UTC; `between` is after the date.

    >>> shown_time(1500)
    '1970-01-01 00:00:01.500+00:00'
    """
    try:
        return (EPOCH + milliseconds * _MILLISECOND).isoformat(between, timespec="milliseconds")
    except OverflowError:  # whatever a table says
        return f"{milliseconds} ms after 1970"


def _require_shallow(value: object) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            item
            for each in level
            if isinstance(each, (dict, list))
            for item in (each.values() if isinstance(each, dict) else each)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return
    raise RecursionError


def _cause(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, UnicodeEncodeError):
        return "half of a surrogate pair"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    return str(error)
