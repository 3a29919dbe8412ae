"""Times and ages as people read them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Final

__all__ = ["elapsed", "moment"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS: Final = (
    ("year", 365 * 86_400),
    ("day", 86_400),
    ("hour", 3600),
    ("minute", 60),
    ("second", 1),
)


def moment(time_ms: int | None) -> str:
    """Return a time in UTC.

    >>> moment(1_700_000_000_000), moment(None)
    ('2023-11-14 22:13 UTC', 'unknown')
    """
    if time_ms is None:
        return "unknown"
    try:
        return f"{_EPOCH + timedelta(milliseconds=time_ms):%Y-%m-%d %H:%M} UTC"
    except OverflowError:  # what a broken writer put there
        return "unknown"


def elapsed(since_ms: int, now_ms: int) -> str:
    """Return how long ago a time is, in the largest unit that fits.

    >>> elapsed(0, 90_000), elapsed(0, 86_400_000), elapsed(5, 0)
    ('1 minute', '1 day', 'less than a second')
    """
    seconds = (now_ms - since_ms) // 1000
    for unit, length in _UNITS:
        if seconds >= length:
            count = seconds // length
            return f"{count:,} {unit}" + ("" if count == 1 else "s")
    return "less than a second"
