"""JSON and numbers that somebody else wrote into a table as text, whatever they are."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LONG_MAX", "is_plain", "parse_json", "whole_number"]

LONG_MAX: Final = 2**63 - 1
"""The largest number that engines on the JVM have: versions, ids, times and counts are longs."""

# A schema takes three levels for each struct in a struct. Jackson, which all engines on the JVM
# read with, ends at 1000 levels; what walks the values here takes up to four calls for a level, and
# Python ends at 1000 of those.
_DEEPEST: Final = 300
_DIGITS: Final = re.compile("(-?)0*([0-9]{1,19})")
# Where a document that is null could begin, or a second one in a line; or strings that look so. Not
# one pattern: each of these begins with a byte that is searched for, 30 times as fast.
_DOUBTFUL: Final = (re.compile(rb"\n[ \t\r]*n"), re.compile(rb"\}[ \t\r]*[{n]"))
_NULL_FIRST: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*n")


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

    Args:
        text: The document, a string or UTF-8; anything else is none.
        what: What it is, for errors.
        path: The file that holds it, for errors.
        parse_float: Makes numbers with a point or an exponent, `float` by default.

    Raises:
        FormatError: It is no JSON, nested too deep, has a number of thousands of digits, or a text
            that is not Unicode.
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

    >>> is_plain(b'{"a":1}'), is_plain(b"null"), is_plain(b'{} {"a":2}')
    (True, False, False)
    """
    if _NULL_FIRST.match(lines):
        return False
    return not any(pattern.search(lines) for pattern in _DOUBTFUL)


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
