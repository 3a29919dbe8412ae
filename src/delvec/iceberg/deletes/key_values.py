"""Values of a key column, converted to its type exactly or refused.

A key that was rounded, cut or shifted by a time zone would delete another row, or none. Arrow's own
conversions do all of that silently, from 1.5 to 1 or from a local time to UTC.
"""

from __future__ import annotations

from calendar import timegm
from datetime import date, datetime, time
from decimal import Decimal, DecimalException, localcontext
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from delvec.errors import InvalidArgumentError
from delvec.iceberg.deletes.key_columns import arrow_type
from delvec.spark.given_data import exact_limit, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delvec.iceberg.deletes.key_columns import KeyColumn

__all__ = ["from_arrow", "from_python"]

_SHOWN: Final = 60
_DIGITS: Final = 2000  # more than any decimal that is worth a look
_ZONE_HINT: Final = (
    "timestamptz takes values with a time zone and timestamp those without; say UTC by"
    " datetime.replace(tzinfo=timezone.utc) or pa.timestamp('us', 'UTC')"
)
# Python types whose values Arrow converts exactly, or with an error.
_PLAIN: Final[dict[str, type]] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "date": date,
    "string": str,
    "binary": bytes,
}
_ARROW_ERRORS: Final = (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError)


def from_python(values: Sequence[object], column: KeyColumn) -> pa.Array:
    """Return Python values as an array of the column's type; None is the null key.

    Integers, booleans, strings and bytes are converted by Arrow as a whole, other types one by one.

    Raises:
        InvalidArgumentError: A value is not of the column's type or does not fit; it is named.
    """
    kind = arrow_type(column.type)
    if set(map(type, values)) <= {_PLAIN.get(column.type, type(None)), type(None)}:
        try:
            return pa.array(values, kind)
        except _ARROW_ERRORS:
            pass  # some value does not fit: it is named below
    convert = _converter(column)
    plain = [None if value is None else _converted(convert, value, column) for value in values]
    if pa.types.is_timestamp(kind):
        return pa.array(plain, pa.int64()).view(kind)
    return pa.array(plain, kind)


def from_arrow(values: pa.ChunkedArray, column: KeyColumn) -> pa.ChunkedArray:
    """Return a column of Arrow in the key column's type.

    Raises:
        InvalidArgumentError: Its type is another one, or a value does not fit; it is named.
    """
    kind = arrow_type(column.type)
    if values.type == kind:
        return values
    values = stored(values, column.name)  # such as UUIDs
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_null(values.type):
        return values.cast(kind)
    if column.type == "uuid" and _is_text(values.type):
        return pa.chunked_array([from_python(values.to_pylist(), column)])
    _require_fitting_type(values.type, kind, column)
    if pa.types.is_floating(values.type):
        _require_exact_floats(values, column)
    return _cast(values, kind, column)


def _cast(values: pa.ChunkedArray, kind: pa.DataType, column: KeyColumn) -> pa.ChunkedArray:
    steps = [kind]
    if pa.types.is_decimal(kind) and pa.types.is_integer(values.type):
        steps = [pa.decimal128(20, 0), kind]  # Arrow wants room for any integer first
    elif any(map(pa.types.is_fixed_size_binary, (kind, values.type))):
        steps = [pa.binary(), kind]

    def converted(some: pa.ChunkedArray) -> pa.ChunkedArray:
        for step in steps:
            some = some.cast(step)
        return some

    try:
        return converted(values)
    except pa.ArrowException:
        raise _does_not_fit(_culprit(values, converted), column) from None


def _culprit(
    values: pa.ChunkedArray, convert: Callable[[pa.ChunkedArray], pa.ChunkedArray]
) -> pa.Scalar:
    """Return a value that cannot be converted, found by halving."""
    while len(values) > 1:
        half = values.slice(0, len(values) // 2)
        try:
            convert(half)
        except pa.ArrowException:
            values = half
        else:
            values = values.slice(len(half))
    return values[0]


def _require_fitting_type(have: pa.DataType, wanted: pa.DataType, column: KeyColumn) -> None:
    if pa.types.is_timestamp(have) and pa.types.is_timestamp(wanted):
        if (have.tz is None) != (wanted.tz is None):
            raise InvalidArgumentError(
                f"column {column.name} is {column.type}, and the keys are {have}", hint=_ZONE_HINT
            )
        return
    fits = (
        (_is_number(have) and pa.types.is_integer(wanted))
        or (
            (pa.types.is_decimal(have) or pa.types.is_integer(have)) and pa.types.is_decimal(wanted)
        )
        or (_is_text(have) and _is_text(wanted))
        or (_is_bytes(have) and _is_bytes(wanted))
        or (pa.types.is_date(have) and pa.types.is_date(wanted))
        or (pa.types.is_time(have) and pa.types.is_time(wanted))
    )
    if not fits:
        raise InvalidArgumentError(
            f"column {column.name} is {column.type}, and the keys are {have}",
            hint=f"convert them to {wanted} first",
        )


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _require_exact_floats(values: pa.ChunkedArray, column: KeyColumn) -> None:
    """Refuse fractions, infinities, NaN, and floats so large that they may have been rounded."""
    limit = exact_limit(f"f{values.type.bit_width // 8}")
    numbers = values.drop_null().to_numpy().astype(np.float64)
    exact = (np.abs(numbers) <= limit) & (numbers == np.trunc(numbers))
    if not exact.all():
        raise _does_not_fit(numbers[~exact][0].item(), column)


def _converted(convert: Callable[[Any], object], value: object, column: KeyColumn) -> object:
    try:
        return convert(value)
    except InvalidArgumentError:
        raise
    except (*_ARROW_ERRORS, DecimalException, AttributeError):
        raise _does_not_fit(value, column) from None


def _does_not_fit(value: object, column: KeyColumn) -> InvalidArgumentError:
    if isinstance(value, pa.TimestampScalar):  # nanoseconds become Python's only with pandas
        value = value.cast(pa.string())
    shown = str(value) if isinstance(value, pa.Scalar) else repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return InvalidArgumentError(
        f"{shown} is not a value of column {column.name}, which is {column.type}"
    )


def _converter(column: KeyColumn) -> Callable[[Any], object]:
    """Return the function that converts one value, or raises one of Python's errors."""
    kind = arrow_type(column.type)
    if pa.types.is_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        return lambda value: _integer(value, limit)
    if pa.types.is_decimal(kind):
        return lambda value: _decimal(value, kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return lambda value: _timestamp(value, kind, column)
    if column.type == "uuid":
        return _uuid
    if pa.types.is_fixed_size_binary(kind):
        return lambda value: _sized(value, kind.byte_width)
    return _SIMPLE[column.type]


def _boolean(value: Any) -> bool:  # noqa: ANN401
    if not isinstance(value, bool | np.bool_):
        raise TypeError
    return bool(value)


def _integer(value: Any, limit: int) -> int:  # noqa: ANN401
    if isinstance(value, bool | np.bool_):
        raise TypeError
    if isinstance(value, float | np.floating):
        kind = type(value) if isinstance(value, np.floating) else float
        if abs(float(value)) > exact_limit(kind) or value != int(value):
            raise ValueError
    elif isinstance(value, Decimal):
        if value != int(value):
            raise ValueError
    elif not isinstance(value, int | np.integer):
        raise TypeError
    number = int(value)
    if not -limit <= number < limit:
        raise OverflowError
    return number


def _decimal(value: Any, precision: int, scale: int) -> Decimal:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, Decimal | int | np.integer):
        raise TypeError
    exact = value if isinstance(value, Decimal) else Decimal(int(value))
    with localcontext() as context:
        context.prec = _DIGITS
        fitted = exact.quantize(Decimal(1).scaleb(-scale))
        if fitted != exact or abs(fitted.scaleb(scale)) >= Decimal(10) ** precision:
            raise ValueError
        return fitted


def _date(value: Any) -> date:  # noqa: ANN401
    if isinstance(value, np.datetime64) and np.datetime_data(value.dtype)[0] == "D":
        value = value.astype(object)
    if isinstance(value, datetime) or not isinstance(value, date):
        raise TypeError
    return value


def _time(value: Any) -> time:  # noqa: ANN401
    if not isinstance(value, time) or value.tzinfo is not None:
        raise TypeError
    return value


def _timestamp(value: Any, kind: pa.DataType, column: KeyColumn) -> int:  # noqa: ANN401
    """Return the microseconds or nanoseconds since 1970."""
    if isinstance(value, np.datetime64):
        number = _from_numpy(value)
        zone = None
    else:
        if not isinstance(value, datetime) or value != value:  # noqa: PLR0124 - pandas' NaT
            raise TypeError
        zone = value.tzinfo
        # A Timestamp of pandas has nanoseconds too. Not by subtraction: that loses them.
        seconds = timegm(value.utctimetuple() if zone else value.timetuple())
        number = (seconds * 10**6 + value.microsecond) * 1000 + getattr(value, "nanosecond", 0)
    if (zone is None) != (kind.tz is None):
        raise InvalidArgumentError(
            f"{value!r} is not a value of column {column.name}, which is {column.type}",
            hint=_ZONE_HINT,
        )
    if kind.unit == "us":
        if number % 1000:
            raise ValueError
        number //= 1000
    if not -(2**63) <= number < 2**63:
        raise OverflowError
    return number


def _from_numpy(value: np.datetime64) -> int:
    """Return the nanoseconds of a time of numpy, which may have any unit."""
    for unit, size in (("ns", 1), ("us", 1000), ("ms", 10**6), ("s", 10**9)):
        same = value.astype(f"datetime64[{unit}]")
        if same == value and int(same.astype(np.int64)) != -(2**63):
            return int(same.astype(np.int64)) * size
    raise ValueError


def _string(value: Any) -> str:  # noqa: ANN401
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # half a surrogate pair is no text
    return str(value)


def _bytes(value: Any) -> bytes:  # noqa: ANN401
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return bytes(value)


def _sized(value: Any, width: int) -> bytes:  # noqa: ANN401
    found = _bytes(value)
    if len(found) != width:
        raise ValueError
    return found


def _uuid(value: Any) -> bytes:  # noqa: ANN401
    if isinstance(value, UUID):
        return value.bytes
    return UUID(value).bytes if isinstance(value, str) else _sized(value, 16)


_SIMPLE: Final[dict[str, Callable[[Any], object]]] = {
    "boolean": _boolean,
    "date": _date,
    "time": _time,
    "string": _string,
    "binary": _bytes,
}
