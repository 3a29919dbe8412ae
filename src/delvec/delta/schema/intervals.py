"""Intervals in table properties, such as `interval 7 days`."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["interval_ms"]

_UNITS: Final = {
    "week": 604_800_000,
    "day": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1000,
    "millisecond": 1,
    "microsecond": 0.001,
    "nanosecond": 0.000001,
}
_PART: Final = re.compile(rf"([+-]?\d+(?:\.\d+)?)\s+({'|'.join(_UNITS)})s?(?:\s+|$)")


def interval_ms(text: str) -> int | None:
    """Give an interval in milliseconds; None if it is none of fixed length.

    >>> interval_ms("interval 1 week"), interval_ms("2 days 12 hours"), interval_ms("a month")
    (604800000, 216000000, None)
    """
    rest = text.strip().lower().removeprefix("interval").strip()
    parts = _PART.findall(rest)
    if not parts or _PART.sub("", rest):
        return None
    return int(sum(float(number) * _UNITS[unit] for number, unit in parts))
