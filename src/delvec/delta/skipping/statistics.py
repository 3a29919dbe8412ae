"""The statistics of one file, a string of JSON in its add action, and which columns have any.

Numbers keep every digit that they have: a decimal of 38 digits is no float.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from delvec.delta.schema.metadata import Metadata, Property, property_number
from delvec.delta.schema.traversal import find
from delvec.delta.schema.types import DataType, Field, PrimitiveType, StructType
from delvec.documents import parse_json
from delvec.errors import FormatError
from delvec.identifiers import QUOTED, unquote

# For these types, statistics have the null count alone.
_UNORDERED: Final = frozenset({"binary", "boolean", "variant", "void"})
_PART: Final = rf"(?:{QUOTED}|[^`.,\s][^`.,]*)"
_NAME: Final = re.compile(rf"\s*({_PART}(?:\.{_PART})*)\s*(,|$)")


def record_count(text: object) -> int | None:
    """Return the physical rows of a file, None if its statistics lack it.

    >>> record_count('{"numRecords":3}')
    3
    """
    value = _parse(text).get("numRecords")
    return value if type(value) is int and value >= 0 else None


def tight_bounds(text: object) -> bool:
    """Tell whether the bounds are tight: values of live rows, which is the default."""
    return _parse(text).get("tightBounds", True) is not False


def widen_bounds(text: object, rows: int, deleted: int) -> str:
    """Return the statistics of a file some of whose rows are deleted.

    Bounds stay and become wide. A null count that was "all live rows" becomes "all rows", since
    readers compare it with the physical count.

    >>> widen_bounds('{"numRecords":3,"maxValues":{"price":1.10}}', 3, 0)
    '{"numRecords":3,"maxValues":{"price":1.10},"tightBounds":false}'
    """
    statistics = _parse(text)
    if deleted and statistics.get("tightBounds", True) is True and "nullCount" in statistics:
        statistics["nullCount"] = _recounted(statistics["nullCount"], rows - deleted, rows)
    return statistics_json({**statistics, "numRecords": rows, "tightBounds": False})


def statistics_json(statistics: Any) -> str:  # noqa: ANN401
    """Write statistics as JSON, numbers with all their digits.

    >>> statistics_json({"minValues": {"price": Decimal("1234567890123456789.10")}})
    '{"minValues":{"price":1234567890123456789.10}}'
    """
    if isinstance(statistics, dict):
        pairs = (f"{json.dumps(key)}:{statistics_json(each)}" for key, each in statistics.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(statistics, list):
        return "[" + ",".join(map(statistics_json, statistics)) + "]"
    if isinstance(statistics, Decimal):
        return format(statistics, "f")
    is_written = isinstance(statistics, _Number)
    return str(statistics) if is_written else json.dumps(statistics, ensure_ascii=False)


def indexed_columns(metadata: Metadata) -> StructType:
    """Return the part of the schema that has statistics; partition columns have none.

    `delta.dataSkippingStatsColumns` names columns, a struct with all its fields. Without it the
    first `delta.dataSkippingNumIndexedCols` (32) have some, -1 for all; leaves of structs count.
    """
    partitions = {field.name for field in metadata.partition_fields}
    stored = tuple(field for field in metadata.schema.fields if field.name not in partitions)
    names = metadata.configuration.get(Property.STATS_COLUMNS)
    if names is not None:
        return StructType(_named(stored, _parse_columns(names)))
    count = _number(metadata, Property.INDEXED_COLUMN_COUNT, 32)
    return StructType(stored if count < 0 else _first(stored, count)[0])


def has_statistics(metadata: Metadata, path: Sequence[str]) -> bool:
    """Tell whether the column on a path of exact names has statistics in new files."""
    return find(indexed_columns(metadata), path) is not None


def is_ordered(kind: DataType) -> bool:
    """Tell whether writers keep a smallest and a largest value for a type, and we trust them."""
    return isinstance(kind, PrimitiveType) and kind.name not in _UNORDERED


def prefix_length(metadata: Metadata) -> int:
    return _number(metadata, Property.STRING_PREFIX_LENGTH, 32)


class _Number(str):
    """A number with a fraction or an exponent, as it was written."""

    __slots__ = ()


def _recounted(count: Any, left: int, rows: int) -> Any:  # noqa: ANN401
    if isinstance(count, dict):
        return {name: _recounted(inner, left, rows) for name, inner in count.items()}
    return rows if count == left else count


def _parse(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        return {}
    try:
        value = parse_json(text, "a statistic", parse_float=_Number)
    except FormatError:
        return {}  # statistics are optional: a file without them is not pruned
    return value if isinstance(value, dict) else {}


def _number(metadata: Metadata, key: str, default: int) -> int:
    text = metadata.configuration.get(key, "").strip()
    if text[:1] == "-":  # for all columns
        return -property_number({key: text[1:]}, key, default)
    return property_number(metadata.configuration, key, default)


def _first(fields: Sequence[Field], count: int) -> tuple[tuple[Field, ...], int]:
    """Return the first fields with at most `count` leaves, and the number of their leaves."""
    kept: list[Field] = []
    taken = 0
    for field in fields:
        if taken >= count:
            break
        if isinstance(field.type, StructType):
            inner, leaves = _first(field.type.fields, count - taken)
            kept.append(replace(field, type=StructType(inner)))
            taken += leaves
        else:
            kept.append(field)
            taken += 1
    return tuple(kept), taken


def _named(fields: Sequence[Field], paths: Sequence[Sequence[str]]) -> tuple[Field, ...]:
    kept: list[Field] = []
    for field in fields:
        rests = [path[1:] for path in paths if path[0] == field.name.lower()]
        if rests and not all(rests):
            kept.append(field)
        elif rests and isinstance(field.type, StructType):
            kept.append(replace(field, type=StructType(_named(field.type.fields, rests))))
    return tuple(kept)


def _parse_columns(names: str) -> list[list[str]]:
    """Split `a, b.c, `x.y`.z` into paths of names in lower case."""
    paths: list[list[str]] = []
    position = 0
    while position < len(names.rstrip()):
        match = _NAME.match(names, position)
        if match is None:
            raise FormatError(
                f"the property {Property.STATS_COLUMNS} is not a list of columns",
                found=repr(names)[:80],
            )
        parts = re.findall(_PART, match[1])
        paths.append([unquote(part.strip()).lower() for part in parts])
        position = match.end()
    return paths
