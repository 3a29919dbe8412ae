"""Values of a key column, converted to its type exactly or refused.

A key that was rounded, cut or shifted by a time zone would delete another row, or none. Arrow's own
conversions do all of that silently, from 1.5 to 1 or from a local time to UTC.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any, Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.spark.input.arrow import find_inexact, max_exact_integer, stored

_TYPES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.large_string(),
    "uuid": pa.binary(16),
    "binary": pa.large_binary(),
}
_SIZED: Final = re.compile(r"fixed\[([0-9]+)\]|decimal\(([0-9]+), ?([0-9]+)\)")
NUMBER_TYPES: Final = ("int", "long", "date", "timestamp", "timestamptz")
"""Iceberg's types whose values are numbers of 32 or 64 bits, equal if their bits are."""
UNKNOWN_TO_SPARK: Final = ("time", "timestamp_ns", "timestamptz_ns")
"""Iceberg's types of keys that Spark has no type for."""
_SHOWN: Final = 60
FLOATS: Final = (
    "; floats are refused even if they are whole, since they may have been rounded. Columns of"
    " pandas with missing values are floats, unless they are of its type Int64"
)
"""What hints add about keys that are floats where the column is not."""
_EPOCH: Final = date(1970, 1, 1).toordinal()
_UTC: Final = "; say UTC by datetime.replace(tzinfo=timezone.utc) or pa.timestamp('us', 'UTC')"
_ARROW_ERRORS: Final = (pa.ArrowException, OverflowError, UnicodeError, ValueError, TypeError)


@dataclass(frozen=True)
class KeyColumn:
    """A column of a key of an Iceberg table.

    Its `id` is the field id, by which delete files name it; its `type` Iceberg's, as in JSON.
    """

    id: int
    name: str
    type: str
    required: bool

    @property
    def arrow(self) -> pa.DataType:
        return arrow_type(self.type)

    @property
    def spark(self) -> spark_types.DataType:
        """The type of its keys in a DataFrame; refused if Spark has none."""
        if self.type in UNKNOWN_TO_SPARK:
            raise UnsupportedFeatureError(
                f"Spark has no type for column {self.name}, which is {self.type}",
                feature=f"keys of type {self.type} in a DataFrame",
                hint="pass the keys in a list or an Arrow array",
            )
        if pa.types.is_fixed_size_binary(self.arrow):
            return spark_types.StringType() if self.type == "uuid" else spark_types.BinaryType()
        return from_arrow_type(self.arrow, prefer_timestamp_ntz=True)


@dataclass(frozen=True)
class SparkColumn:
    """A column of a key that Spark compares, in a job that casts the keys exactly.

    Strings are padded to its `width`, that of a `char(n)` column.
    """

    name: str
    spark: spark_types.DataType
    width: int | None = None

    @property
    def type(self) -> str:
        """Its type, as errors show it."""
        return self.spark.simpleString()

    @property
    def arrow(self) -> pa.DataType:
        """Its type in Arrow; doubles for floats, which the job narrows."""
        is_float = isinstance(self.spark, spark_types.FloatType)
        return pa.float64() if is_float else to_arrow_type(self.spark)


AnyColumn: TypeAlias = KeyColumn | SparkColumn


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type in which values of one of Iceberg's types are kept and written.

    A UUID is 16 bytes here; Parquet's annotation is the writer's affair.

    >>> arrow_type("decimal(9, 2)"), arrow_type("timestamptz")
    (Decimal128Type(decimal128(9, 2)), TimestampType(timestamp[us, tz=UTC]))
    """
    sized = _SIZED.fullmatch(kind)
    if sized is None:
        return _TYPES[kind]
    return pa.binary(int(sized[1])) if sized[1] else pa.decimal128(int(sized[2]), int(sized[3]))


def is_key_type(kind: str) -> bool:
    """Whether a column of one of Iceberg's types may be in a key; Iceberg allows no floats."""
    return bool(kind in _TYPES or _SIZED.fullmatch(kind)) and kind not in ("float", "double")


def from_numbers(numbers: NDArray[np.int64], kind: str) -> pa.Array:
    """Return numbers as values of one of `NUMBER_TYPES`."""
    wanted = arrow_type(kind)
    return pa.array(numbers).cast(pa.int32() if wanted.bit_width == 32 else pa.int64()).view(wanted)


def infer(values: Sequence[object], column: SparkColumn) -> pa.ChunkedArray:
    """Return Python values in the type that Arrow finds; mixed ones in the column's, or refused."""
    found = _inferred(values)
    return convert(values, column) if found is None else found


def convert(values: Sequence[object] | pa.ChunkedArray, column: AnyColumn) -> pa.ChunkedArray:
    """Return values of Python or Arrow in the column's type; one that does not fit is named.

    Python's are converted by Arrow as a whole where it would change none. None is the null key.
    """
    if not isinstance(values, pa.ChunkedArray):
        return _from_python(values, column)
    kind = column.arrow
    if values.type == kind:
        return values
    values = stored(values, column.name)  # such as UUIDs
    if pa.types.is_null(values.type):
        return values.cast(kind)
    if column.type == "uuid" and _family(values.type) == "text":
        return convert(values.to_pylist(), column)
    _require_fitting_type(values.type, column)
    return _cast(values, column)


def require_exact_floats(values: pa.ChunkedArray, column: AnyColumn) -> None:
    """Refuse floats that may have been rounded, being large, for a column of wider ones."""
    limit = max_exact_integer(f"f{values.type.bit_width // 8}")
    numbers = values.drop_null().to_numpy().astype(np.float64)
    exact = (np.abs(numbers) <= limit) | ~np.isfinite(numbers)
    if not exact.all():
        raise _does_not_fit(
            numbers[~exact][0].item(),
            column,
            f": {values.type} skips integers beyond {limit:.0f}",
            "pass integers; or astype('float64'), if they are exact",
        )


def _cast(values: pa.ChunkedArray, column: AnyColumn) -> pa.ChunkedArray:
    kind = column.arrow
    steps = [kind]
    if pa.types.is_decimal(kind) and pa.types.is_integer(values.type):
        steps = [pa.decimal128(20, 0), kind]  # Arrow wants room for any integer first
    elif any(map(pa.types.is_fixed_size_binary, (kind, values.type))):
        steps = [pa.binary(), kind]
    try:
        return reduce(pa.ChunkedArray.cast, steps, values)
    except pa.ArrowException:
        if len(values) == 1:
            raise _does_not_fit(values[0], column) from None
        half = len(values) // 2
        for some in (values.slice(0, half), values.slice(half)):
            _cast(some, column)  # one of them fails, down to the value
        raise


def _require_fitting_type(have: pa.DataType, column: AnyColumn) -> None:
    wanted = column.arrow
    fits = _family(have) == _family(wanted)
    hint = f"convert them to {wanted} first"
    if fits and pa.types.is_timestamp(have):
        fits, hint = (have.tz is None) == (wanted.tz is None), _zone_hint(column)
    if pa.types.is_floating(have) and not pa.types.is_floating(wanted):
        fits, hint = False, f"{hint}{FLOATS}" if fits else hint
    if not fits:
        raise InvalidArgumentError(
            f"column {column.name} is {column.type}, and the keys are {have}", hint=hint
        )


def _zone_hint(column: AnyColumn) -> str:
    if column.arrow.tz is None:
        return f"{column.type} takes values without a time zone"
    return f"{column.type} takes values with a time zone{_UTC}"


def _does_not_fit(
    value: object, column: AnyColumn, why: str = "", hint: str | None = None
) -> InvalidArgumentError:
    if isinstance(value, pa.TimestampScalar):  # nanoseconds become Python's only with pandas
        value = value.cast(pa.string())
    shown = str(value) if isinstance(value, pa.Scalar) else repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return InvalidArgumentError(
        f"{shown} is not a value of column {column.name}, which is {column.type}{why}", hint=hint
    )


def _from_python(values: Sequence[object], column: AnyColumn) -> pa.ChunkedArray:
    kind, hint = column.arrow, None
    try:
        if column.type == "uuid":
            return pa.chunked_array([pa.array(map(_uuid, values), kind)])
        if pa.types.is_timestamp(kind):
            numbers = [_timestamp(each, kind) for each in values]
            return pa.chunked_array([pa.array(numbers, pa.int64()).view(kind)])
        if pa.types.is_floating(kind):
            return pa.chunked_array([pa.array(map(_float, values), kind)])
        if set(map(type, values)) <= {int, type(None)} and _family(kind) == "number":
            return pa.chunked_array([pa.array(values, kind)])  # beyond 64 bits too
        inferred = _inferred(list(map(_day, values)) if pa.types.is_date(kind) else values)
        if inferred is not None:
            return convert(inferred, column)
    except _ZoneError:
        hint = _zone_hint(column)
    except InvalidArgumentError as error:
        hint = error.hint
    except _ARROW_ERRORS:
        pass  # one of them does not fit, or they are mixed
    if len(values) == 1:
        raise _does_not_fit(values[0], column, hint=hint)
    half = len(values) // 2
    parts = [_from_python(some, column) for some in (values[:half], values[half:])]
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks], kind)


def _inferred(values: Sequence[object]) -> pa.ChunkedArray | None:
    """Return Python values in the type that Arrow finds; None if it finds none, or changes some.

    Floats of 32 bits are doubles among others: whether they may have been rounded is lost then.
    """
    kinds = set(map(type, values))
    small = kinds & {np.float16, np.float32} if len(kinds) > 1 else ()
    if find_inexact(values) is not None or (small and any(map(_is_rounded, values))):
        return None
    try:
        found = pa.array(values)
    except _ARROW_ERRORS:
        return None
    # Other missing values, such as NaT, are no keys.
    missing = sum(each is None for each in values)
    return pa.chunked_array([found]) if found.null_count == missing else None


def _is_rounded(value: object) -> bool:
    """Return whether a value is a small float of numpy beyond the integers that it can hold."""
    is_small = isinstance(value, np.float16 | np.float32) and bool(np.isfinite(value))
    return is_small and abs(float(value)) > max_exact_integer(type(value))  # type: ignore[arg-type]


class _ZoneError(TypeError):
    """A time with a zone for a column without, or the other way round."""


def _day(value: Any) -> Any:  # noqa: ANN401
    """Return a day of numpy as one of Python; other values as they are."""
    if not isinstance(value, np.datetime64) or np.datetime_data(value.dtype)[0] != "D":
        return value
    return date.fromordinal(_EPOCH + int(value.astype(np.int64)))


def _float(value: Any) -> float | None:  # noqa: ANN401
    if value is None:
        return None
    is_number = isinstance(value, int | float | Decimal | np.number) and not isinstance(value, bool)
    if not is_number or _is_rounded(value):
        raise TypeError
    is_nan = isinstance(value, float | np.floating) and bool(np.isnan(value))
    if float(value) != value and not is_nan:
        raise ValueError
    return float(value)


def _timestamp(value: Any, kind: pa.DataType) -> int | None:  # noqa: ANN401
    """Return the microseconds or nanoseconds since 1970."""
    if value is None:
        return None
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
        raise _ZoneError
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


def _uuid(value: Any) -> bytes | None:  # noqa: ANN401
    value = UUID(value) if isinstance(value, str) else value
    return value.bytes if isinstance(value, UUID) else value


def _family(kind: pa.DataType) -> str:
    """Return what values of a type are, whatever their width."""
    for name, kinds in _FAMILIES.items():
        if any(getattr(pa.types, f"is_{each}")(kind) for each in kinds):
            return name
    return "other"


_FAMILIES: Final = {
    "boolean": ["boolean"],
    "number": ["integer", "floating", "decimal"],
    "text": ["string", "large_string", "string_view"],
    "bytes": ["binary", "large_binary", "fixed_size_binary", "binary_view"],
    "date": ["date"],
    "time": ["time"],
    "timestamp": ["timestamp"],
}
