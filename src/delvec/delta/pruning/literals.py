"""Python values as literals of a column's type: exactly, or not at all.

Arrow converts on its own too, but rounds 1.5 to an integer, cuts the time off a date and forgets
a time zone, all silently.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["comparable", "convert_literal"]

_PYTHON_TYPES: Final[tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...]] = (
    (pa.types.is_signed_integer, (int,)),
    (pa.types.is_floating, (float, int)),
    (pa.types.is_boolean, (bool,)),
    (pa.types.is_string, (str,)),
    (pa.types.is_binary, (bytes,)),
    (pa.types.is_date32, (date,)),
    (pa.types.is_decimal128, (Decimal, int)),
)
_ISO: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)"
    r"([T ](?P<minute>\d\d:\d\d)(:(?P<second>\d\d)(\.(?P<fraction>\d{1,6}))?)?"
    r"(?P<zone>Z|[+-]\d\d:\d\d)?)?",
    re.ASCII,
)


def comparable(values: Sequence[object], kind: pa.DataType) -> pa.Array | None:
    """Return values as an array that compares exactly with one of a type; None if they cannot.

    The array is of the type itself if all values fit in, else of a wider one: integers as int64,
    floats as double.

    >>> comparable([1, 300], pa.int8()).type, comparable([1.5], pa.int8())
    (DataType(int64), None)
    """
    if not all(_is_of(value, kind) for value in values):
        return None
    try:
        if pa.types.is_floating(kind):
            return _narrowed(pa.array(values, pa.float64()), kind)
        if pa.types.is_integer(kind):
            return _narrowed(pa.array(values, pa.int64()), kind)
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        return None  # beyond the range of the type, or half a surrogate pair


def _narrowed(exact: pa.Array, kind: pa.DataType) -> pa.Array:
    numbers = exact.to_numpy(zero_copy_only=False)
    # Not by Arrow's `to_pandas_dtype`, which imports pandas in version 25.
    narrower = np.dtype(f"{numbers.dtype.kind}{kind.bit_width // 8}")
    with np.errstate(over="ignore"):
        narrow = numbers.astype(narrower)
    same = np.array_equal(
        narrow.astype(numbers.dtype), numbers, equal_nan=numbers.dtype.kind == "f"
    )
    return pa.array(narrow, kind) if same else exact


def _is_of(value: object, kind: pa.DataType) -> bool:
    """Tell whether a value has the Python type of a column; a bool is no int, as in SQL."""
    if type(value) is datetime:
        return (
            pa.types.is_timestamp(kind)
            and kind.unit == "us"
            and (value.tzinfo is None) == (kind.tz is None)
        )
    return any(type(value) in allowed and test(kind) for test, allowed in _PYTHON_TYPES)


def convert_literal(value: object, kind: pa.DataType) -> object:
    """Return a literal as a value of a column's type, or None if that would change it.

    Integers stand for whole floats and decimals and the other way round, strings in ISO form for
    dates and timestamps, and a date for its midnight where there are no time zones.

    >>> convert_literal(5, pa.float64()), convert_literal("2024-02-29", pa.date32())
    (5.0, datetime.date(2024, 2, 29))
    """
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, str):
        plain = _from_string(plain, kind)
    elif type(plain) is date and pa.types.is_timestamp(kind):
        plain = datetime.combine(plain, time())
    elif type(plain) is float and pa.types.is_integer(kind) and plain.is_integer():
        plain = int(plain)
    if comparable([plain], kind) is None:
        return None
    if type(plain) is int and pa.types.is_floating(kind):
        return float(plain)
    return Decimal(plain) if type(plain) is int and pa.types.is_decimal(kind) else plain


def _from_string(text: str, kind: pa.DataType) -> object:
    if not pa.types.is_date(kind) and not pa.types.is_timestamp(kind):
        return text
    parts = _ISO.fullmatch(text)
    if parts is None:
        return None
    try:
        if parts["minute"] is None and pa.types.is_date(kind):
            return date.fromisoformat(text)
        # Spelled out in full, since Python before 3.11 reads little else.
        day, minute, second = parts["date"], parts["minute"] or "00:00", parts["second"] or "00"
        fraction = (parts["fraction"] or "").ljust(6, "0")
        zone = (parts["zone"] or "").replace("Z", "+00:00")
        return datetime.fromisoformat(f"{day}T{minute}:{second}.{fraction}{zone}")
    except ValueError:  # a 30th of February
        return None
