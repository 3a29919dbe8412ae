"""How texts spell a value: conditions in SQL, JSON inside of JSON, lines of a CSV file.

What is found may be another value that is spelled alike; what is not found is not there.
"""

from __future__ import annotations

import json
import math
import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["begun", "patterns_of", "spelled"]

# No part of a longer word; letters of an escape before it are no part of it.
_BEFORE: Final = r"(?:(?<!\w)|(?<=\\[bfnrt])|(?<=\\u[0-9a-fA-F]{4})|(?<=%[0-9a-fA-F]{2}))"
# Literals of SQL have letters for their types.
_AFTER_NUMBER: Final = r"(?:BD|[LSYDF])?(?!\w)"
_LONGEST_PLAIN: Final = 400  # digits: those of any float without an exponent
_QUARTER: Final = timedelta(minutes=15)
_FARTHEST: Final = 14 * 4  # quarters of an hour between a zone's time and UTC
# Of times without a zone.
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001
_FIRST, _LAST = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001


def patterns_of(value: object, *, is_single: bool = False) -> list[re.Pattern[str]]:
    """Return patterns of which one is in every text that has a value; none if nobody knows them.

    Args:
        value: The value.
        is_single: Whether a float is one of 32 bits, which is written with fewer digits.
    """
    if isinstance(value, str):
        return [re.compile(begun(spelled(value), whole=True))] if value else []
    if isinstance(value, datetime):
        return [re.compile(_moment(value))]
    if isinstance(value, date):
        return [re.compile(begun([str(value), str(value).replace("-", "")], whole=True))]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return []
    if not math.isfinite(value):
        return []
    numbers = {Decimal(repr(value)) if isinstance(value, float) else Decimal(value)}
    if is_single:
        numbers.add(Decimal(str(np.float32(float(value)))))
    return [re.compile(_number(each), re.IGNORECASE) for each in sorted(numbers)]


def begun(texts: Collection[str], *, whole: bool) -> str:
    """Return a regular expression for texts where a word begins, and ends if it is a whole one."""
    either = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
    return rf"{_BEFORE}(?:{either})" + (r"(?!\w)" if whole else "")


def spelled(value: str) -> set[str]:
    """Return how SQL, JSON, JSON inside of JSON, and names of files write a string.

    >>> sorted(spelled("a=b"))
    ['a%3Db', 'a=b']
    """
    # SQL doubles quotes or escapes them.
    found = {value, value.replace("'", "''"), value.replace("'", "\\'")}
    found |= {value.replace('"', '""'), value.replace("\\", "\\\\").replace("'", "\\'")}
    for _ in range(2):
        found |= {
            json.dumps(each, ensure_ascii=ascii_only)[1:-1]
            for each in found
            for ascii_only in (True, False)
        }
    return found | {quote(value, safe="", errors="replace"), quote(value, errors="replace")}


def _number(number: Decimal) -> str:
    """Return a regular expression for a number, in plain form or with an exponent.

    >>> all(re.fullmatch(_number(Decimal("1.5")), x) for x in ("1.5", "1.50", "15e-1", "1.5e0"))
    True
    """
    # Arithmetic of decimals would round to 28 digits.
    _, digits, exponent = number.as_tuple()
    shown = "".join(map(str, digits)).lstrip("0")
    text = shown.rstrip("0")
    power = int(exponent) + len(shown) - len(text)
    if not text:
        return rf"(?:{_BEFORE}-?|-)(?:0+(?:\.0*)?|\.0+)(?:e[+-]?\d+)?{_AFTER_NUMBER}"
    forms = []
    if abs(power) <= _LONGEST_PLAIN:
        whole, _, fraction = f"{number.copy_abs():f}".partition(".")
        fraction, whole = fraction.rstrip("0"), whole.lstrip("0")
        forms.append(rf"0*{whole}\.{fraction}0*" if fraction else rf"0*{whole}(?:\.0*)?")
    for point in range(1, len(text) + 1):
        moved = power + len(text) - point
        sign = "-" if moved < 0 else r"\+?"
        rest = rf"\.{text[point:]}0*" if text[point:] else r"(?:\.0*)?"
        forms.append(rf"{text[:point]}{rest}e{sign}0*{abs(moved)}")
    # A sign may stand after a letter; without it, other numbers are found too.
    return rf"(?:{_BEFORE}-?|-)(?:{'|'.join(forms)}){_AFTER_NUMBER}"


def _moment(value: datetime) -> str:
    """Return a regular expression for a time: in any zone if it has one, or since 1970.

    Fractions of a second are not compared, since writers cut them.
    """
    local = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    reach = _FARTHEST if value.tzinfo else 0
    # Years that Python does not have are out of reach.
    last, first = (_LAST - local) // _QUARTER, (local - _FIRST) // _QUARTER
    offsets = range(-min(reach, first), min(reach, last) + 1)
    minutes = [local + offset * _QUARTER for offset in offsets]
    shown = "|".join(rf"{each:%m-%d}(?:[ T+]|%20){each:%H}(?::|%3A){each:%M}" for each in minutes)
    years = "|".join(sorted({f"{each.year:04}" for each in minutes}))
    is_whole = not local.second and not local.microsecond
    seconds = rf"(?:(?::|%3A){local.second:02})" + ("?" if is_whole else "")
    since = (local - _EPOCH) // timedelta(microseconds=1)
    units = (1, 1_000, 1_000_000)
    epochs = "|".join(f"{abs(since) // each}|{-(-abs(since) // each)}" for each in units)
    return rf"(?:{years})-(?:{shown}){seconds}|{_BEFORE}-?(?:{epochs})(?!\w)"
