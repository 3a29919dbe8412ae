"""Partition values: strings in the log, read as values of their column's type.

Specification:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#partition-value-serialization
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Context, Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import numpy as np

from delvec.delta.schema.arrow import arrow_type
from delvec.delta.schema.types import PrimitiveType
from delvec.errors import FormatError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from delvec.delta.schema.types import DataType

__all__ = [
    "HIVE_NULL",
    "PartitionValue",
    "is_null_text",
    "parse_partition_value",
    "partition_column",
]

PartitionValue = str | bytes | bool | int | float | Decimal | date | datetime

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Hive calls the folder of null."""

_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
# Java writes `Infinity`, Rust `inf`.
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"nan|[+-]?inf(inity)?", re.IGNORECASE)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
_EXACT: Final = Context(prec=100)


def parse_partition_value(
    text: str | None, data_type: DataType, time_zone: str = "UTC"
) -> PartitionValue | None:
    """Return a partition value in its column's type, None for null (see `is_null_text`).

    Args:
        text: As the log has it.
        data_type: The column's type.
        time_zone: The zone of timestamps that name none; by Java's rules for local times that do
            not exist (later) or exist twice (the first).

    Raises:
        FormatError: The string is no value of that type.

    >>> parse_partition_value("2021-09-08 11:11:11", PrimitiveType("timestamp"), "Europe/Berlin")
    datetime.datetime(2021, 9, 8, 9, 11, 11, tzinfo=datetime.timezone.utc)
    """
    parse = _parser(data_type, time_zone)
    return None if text is None or is_null_text(text, data_type) else parse(text)


def is_null_text(text: str, data_type: DataType) -> bool:
    """Return whether a string stands for null: the empty one, and Hive's name for null.

    In columns of strings the latter is an ordinary value, as for delta-spark, which never writes
    it: as a value of a row it becomes null.

    >>> is_null_text(HIVE_NULL, PrimitiveType("date")), is_null_text("", PrimitiveType("string"))
    (True, True)
    """
    is_text = data_type in (PrimitiveType("string"), PrimitiveType("binary"))
    return not text or (text == HIVE_NULL and not is_text)


def partition_column(texts: pa.Array, data_type: DataType, time_zone: str = "UTC") -> pa.Array:
    """Return a column of partition values in its type; each distinct string is parsed once.

    >>> import pyarrow as pa
    >>> partition_column(pa.array(["1", None, ""]), PrimitiveType("long")).to_pylist()
    [1, None, None]
    """
    import pyarrow as pa  # noqa: PLC0415

    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    parse = _parser(data_type, time_zone)
    encoded = texts.dictionary_encode()
    values = [
        None if is_null_text(text, data_type) else parse(text)
        for text in encoded.dictionary.to_pylist()
    ]
    return pa.array(values, arrow_type(data_type)).take(encoded.indices)


def _parser(data_type: DataType, time_zone: str) -> Callable[[str], PartitionValue]:
    parse = _unchecked_parser(data_type, time_zone)

    def checked(text: str) -> PartitionValue:
        try:
            return parse(text)
        except (ValueError, LookupError, ArithmeticError) as error:
            raise FormatError(
                "a partition value does not fit its column",
                expected=f"a {data_type}",
                found=repr(text)[:80],
            ) from error

    return checked


def _unchecked_parser(data_type: DataType, time_zone: str) -> Callable[[str], PartitionValue]:
    if not isinstance(data_type, PrimitiveType):
        raise FormatError("a column of this type cannot partition a table", found=str(data_type))
    name = data_type.name
    if name in _BITS:
        return lambda text: _integer(text, _BITS[name])
    if data_type.decimal:
        precision, scale = data_type.decimal
        return lambda text: _decimal(text, precision, scale)
    if name == "timestamp":
        zone = _zone(time_zone)
        return lambda text: _timestamp(text, zone)
    if name not in _SIMPLE:
        raise FormatError("a column of this type cannot partition a table", found=name)
    return _SIMPLE[name]


def _integer(text: str, bits: int) -> int:
    value = int(_matched(_INTEGER, text)[0])
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(text)
    return value


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    value = Decimal(_matched(_NUMBER, text)[0])
    fitted = value.quantize(Decimal(1).scaleb(-scale, _EXACT), context=_EXACT)
    if fitted != value or len(fitted.as_tuple().digits) > precision:
        raise ValueError(text)
    return fitted


def _double(text: str) -> float:
    return float(text if _NOT_FINITE.fullmatch(text) else _matched(_NUMBER, text)[0])


def _float(text: str) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(_double(text)))


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _date(text: str) -> date:
    return date.fromisoformat(_matched(_DATE, text)[0])


def _timestamp(text: str, zone: tzinfo) -> datetime:
    clock, offset = _clock(text)
    if offset is not None:
        zone = timezone.utc if offset == "Z" else _zone(offset)
    return clock.replace(tzinfo=zone).astimezone(timezone.utc)


def _timestamp_ntz(text: str) -> datetime:
    clock, offset = _clock(text)
    if offset is not None:
        raise ValueError(text)
    return clock


def _clock(text: str) -> tuple[datetime, str | None]:
    """Return the local time, and the offset if the string has one."""
    day, time, fraction, offset = _matched(_TIMESTAMP, text).groups()
    nanoseconds = int((fraction or "0").ljust(9, "0"))
    if nanoseconds % 1000 or (offset and not time):
        raise ValueError(text)
    clock = datetime.fromisoformat(f"{day} {time or '00:00:00'}")
    return clock.replace(microsecond=nanoseconds // 1000), offset


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return match


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
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


_SIMPLE: Final[dict[str, Callable[[str], PartitionValue]]] = {
    "string": str,
    "binary": str.encode,
    "boolean": _boolean,
    "float": _float,
    "double": _double,
    "date": _date,
    "timestamp_ntz": _timestamp_ntz,
}
