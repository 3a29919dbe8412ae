"""Partition values: strings in the log, read as values of their column's type.

Specification:
https://github.com/delta-io/delta/blob/master/PROTOCOL.md#partition-value-serialization
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date, datetime, timezone, tzinfo
from decimal import Context, Decimal
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from delvec.delta.schema.types import DataType, PrimitiveType, arrow_type
from delvec.documents import parse_time, zone_of
from delvec.errors import FormatError

PartitionValue = str | bytes | bool | int | float | Decimal | date | datetime

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Hive calls the folder of null."""

_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
# Java writes `Infinity`, Rust `inf`.
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"nan|[+-]?inf(inity)?", re.IGNORECASE)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EXACT: Final = Context(prec=100)


def parse_partition_value(
    text: str | None, data_type: DataType, time_zone: str = "UTC"
) -> PartitionValue | None:
    """Return a partition value in its column's type, None for null (see `is_null_text`).

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


def folder_values(path: str) -> list[tuple[str, str | None]]:
    """Return the partition columns and values in the names of a file's folders, as Hive has them.

    >>> folder_values("day=2024-01-31/name=a%3Db/part-0.parquet")
    [('day', '2024-01-31'), ('name', 'a=b')]
    """
    parts = [folder.partition("=") for folder in path.split("/")[:-1]]
    return [
        (_unescaped(name), None if value == HIVE_NULL else _unescaped(value))
        for name, sign, value in parts
        if sign
    ]


def partition_column(texts: pa.Array, data_type: DataType, time_zone: str = "UTC") -> pa.Array:
    """Return a column of partition values in its type; each distinct string is parsed once.

    >>> partition_column(pa.array(["1", None, ""]), PrimitiveType("long")).to_pylist()
    [1, None, None]
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    parse = _parser(data_type, time_zone)
    encoded = texts.dictionary_encode()
    values = [
        None if is_null_text(text, data_type) else parse(text)
        for text in encoded.dictionary.to_pylist()
    ]
    return pa.array(values, arrow_type(data_type)).take(encoded.indices)


def shared_text(texts: Iterable[str | None], data_type: DataType) -> str | None:
    """Return how a file that shares equal partition values spells them, as all readers parse it.

    A decimal has all digits of its scale. A timestamp names its zone if one of them does: without
    it, the moment would be another one in sessions of other zones.

    >>> shared_text(["1.5"], PrimitiveType("decimal(10,2)"))
    '1.50'
    >>> shared_text(["2026-01-01 00:00:00", "2026-01-01T00:00:00Z"], PrimitiveType("timestamp"))
    '2026-01-01T00:00:00Z'
    """
    given = sorted(
        {text for text in texts if text is not None and not is_null_text(text, data_type)}
    )
    if not given:
        return None
    if isinstance(data_type, PrimitiveType) and data_type.decimal:
        return format(_parser(data_type, "UTC")(given[0]), "f")
    if data_type == PrimitiveType("timestamp"):
        return max(given, key=lambda text: _time(text).tzinfo is not None)
    return given[0]


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
        zone = zone_of(time_zone)
        return lambda text: _timestamp(text, zone)
    if name not in _SIMPLE:
        raise FormatError("a column of this type cannot partition a table", found=name)
    return _SIMPLE[name]


def _unescaped(text: str) -> str:
    """Decode `%xx` as bytes of UTF-8; where they are none each is a character, as for Spark."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return unquote(text, "latin-1")


def _integer(text: str, bits: int) -> int:
    value = int(_matched(_INTEGER, text))
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(text)
    return value


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    value = Decimal(_matched(_NUMBER, text))
    fitted = value.quantize(Decimal(1).scaleb(-scale, _EXACT), context=_EXACT)
    if fitted != value or len(fitted.as_tuple().digits) > precision:
        raise ValueError(text)
    return fitted


def _double(text: str) -> float:
    return float(text if _NOT_FINITE.fullmatch(text) else _matched(_NUMBER, text))


def _float(text: str) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(_double(text)))


def _timestamp(text: str, zone: tzinfo) -> datetime:
    moment = _time(text)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=zone)
    return aware.astimezone(timezone.utc)


def _timestamp_ntz(text: str) -> datetime:
    moment = _time(text)
    if moment.tzinfo:
        raise ValueError(text)
    return moment


def _time(text: str) -> datetime:
    moment = parse_time(text)
    if moment is None:
        raise ValueError(text)
    return moment


def _matched(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(text)
    return text


_SIMPLE: Final[dict[str, Callable[[str], PartitionValue]]] = {
    "string": str,
    "binary": str.encode,
    "boolean": lambda text: {"true": True, "false": False}[text.lower()],
    "float": _float,
    "double": _double,
    "date": lambda text: date.fromisoformat(_matched(_DATE, text)),
    "timestamp_ntz": _timestamp_ntz,
}
