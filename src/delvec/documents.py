"""JSON and numbers that somebody else wrote into a table as text, whatever they are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["parse_json", "whole_number"]

# A schema takes three levels for each struct in a struct. Jackson, which all engines on the JVM
# read with, ends at 1000 levels; what walks the values here takes up to four calls for a level, and
# Python ends at 1000 of those.
_DEEPEST: Final = 300
_LARGEST: Final = 2**63 - 1
_MOST_DIGITS: Final = 19


def parse_json(
    text: str | bytes,
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
        text: The document; bytes are UTF-8.
        what: What it is, for errors.
        path: The file that holds it, for errors.
        parse_float: Makes numbers with a point or an exponent, `float` by default.

    Raises:
        FormatError: It is no JSON, nested too deep, has a number of thousands of digits, or a text
            that is not Unicode.
    """
    try:
        string = text if isinstance(text, str) else text.decode("utf-8-sig")
        value = json.loads(string, parse_float=parse_float)
        if string.count("{") + string.count("[") > _DEEPEST:
            _require_shallow(value)
        if "\\ud" in string or "\\uD" in string:  # Arrow takes no half of a pair
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(f"{what} is not JSON", path=path, found=_cause(error)) from error
    return value


def whole_number(text: object) -> int | None:
    """Return the number that a text holds in ASCII digits; None if none from 0 to 2^63 - 1.

    >>> whole_number("007"), whole_number("-1"), whole_number("٣"), whole_number("9" * 5000)
    (7, None, None, None)
    """
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    number = int(digits) if len(digits) <= _MOST_DIGITS else _LARGEST + 1
    return number if number <= _LARGEST else None


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
