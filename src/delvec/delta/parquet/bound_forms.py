"""How bounds of columns become JSON in the statistics of the log: cut, rounded or omitted.

A missing bound keeps a file in every query; a wrong one would lose rows.

Specification: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from delvec.delta.parquet.footer_bounds import decimal_of, string_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delvec.delta.schema.types import PrimitiveType

__all__ = ["MAX", "MIN", "NULLS", "Form", "form_of", "put"]

MIN, MAX, NULLS = "minValues", "maxValues", "nullCount"

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is written by hand
_FIRST_DAY: Final = date(1970, 1, 1)
_LAST_CHARACTER: Final = "\U0010ffff"
_LAST_OF_ASCII: Final = "\x7f"


def put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:  # noqa: ANN401
    """Put a statistic of a column into a tree of them, by the column's physical names."""
    *above, name = path
    for each in above:
        tree = tree.setdefault(each, {})
    tree[name] = value


@dataclass(frozen=True, slots=True)
class Form:
    """How bounds of a type become JSON: read to compare those of row groups, then shown.

    A bound that is shown as None is omitted.
    """

    read: Callable[[Any], Any]
    show_low: Callable[[Any], Any]
    show_high: Callable[[Any], Any]


def form_of(kind: PrimitiveType, prefix: int) -> Form | None:
    """Return the form of a type's bounds; None if it has none.

    Args:
        kind: The type of a column.
        prefix: How many characters of strings are kept.
    """
    if kind.decimal:
        return Form(partial(decimal_of, scale=kind.decimal[1]), _same, _same)
    if kind.name == "string":  # compared as bytes, which is the order of strings in Spark
        return Form(bytes, partial(_cut_low, prefix), partial(_cut_high, prefix))
    return _FORMS.get(kind.name)


def _same(value: Any) -> Any:  # noqa: ANN401
    return value


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _day(days: int) -> str | None:
    try:
        return (_FIRST_DAY + timedelta(days=days)).isoformat()
    except OverflowError:
        return None  # beyond the years 1 to 9999, as Spark has them


def _clock(zone: str, micros: int) -> str | None:
    """Show a time in milliseconds, rounded down: readers allow for a maximum of 1 ms more."""
    try:
        shown = _EPOCH + timedelta(milliseconds=micros // 1000)
    except OverflowError:
        return None
    return shown.isoformat(timespec="milliseconds") + zone


def _cut_low(prefix: int, raw: bytes) -> str | None:
    text = string_of(raw)
    return None if text is None or prefix <= 0 else text[:prefix]


def _cut_high(prefix: int, raw: bytes) -> str | None:
    """Truncate a string and append a character that sorts after the one that was cut off.

    As delta-spark does: lengths are counted in units of UTF-16, and up to twice as many are kept
    where the next character is itself the last of all.
    """
    text = string_of(raw)
    if text is None or prefix <= 0:
        return None
    units = cut = 0
    while cut < len(text) and units < prefix:
        units += 1 + (text[cut] > "\uffff")
        cut += 1
    while units <= 2 * prefix:
        if cut >= len(text):
            return text
        if text[cut] != _LAST_CHARACTER:
            return text[:cut] + (_LAST_OF_ASCII if text[cut] < _LAST_OF_ASCII else _LAST_CHARACTER)
        units += 2
        cut += 1
    return None


_NUMBERS: Final = Form(_same, _same, _same)
_FLOATS: Final = Form(float, _finite, _finite)
_FORMS: Final = {
    **dict.fromkeys(("byte", "short", "integer", "long"), _NUMBERS),
    **dict.fromkeys(("float", "double"), _FLOATS),
    "date": Form(_same, _day, _day),
    "timestamp": Form(_same, partial(_clock, "Z"), partial(_clock, "Z")),
    "timestamp_ntz": Form(_same, partial(_clock, ""), partial(_clock, "")),
}
