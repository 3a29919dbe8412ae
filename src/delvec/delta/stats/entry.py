"""The statistics of one file as its add action holds them: a string of JSON.

Numbers keep every digit that they have: a decimal of 38 digits is no float.
"""

from __future__ import annotations

import json
from typing import Any

from delvec.documents import parse_json
from delvec.errors import FormatError

__all__ = ["record_count", "tight_bounds", "widened"]


class _Number(str):
    """A number with a fraction or an exponent, as it was written."""

    __slots__ = ()


def record_count(text: object) -> int | None:
    """Return the physical rows of a file, None if its statistics lack it.

    >>> record_count('{"numRecords":3}')
    3
    """
    value = _parsed(text).get("numRecords")
    return value if type(value) is int and value >= 0 else None


def tight_bounds(text: object) -> bool:
    """Tell whether the bounds are tight: values of live rows, which is the default."""
    return _parsed(text).get("tightBounds", True) is not False


def widened(text: object, rows: int, deleted: int) -> str:
    """Return the statistics of a file some of whose rows are deleted.

    Bounds stay and become wide. A null count that was "all live rows" becomes "all rows", since
    readers compare it with the physical count.

    >>> widened('{"numRecords":3,"maxValues":{"price":1.10}}', 3, 0)
    '{"numRecords":3,"maxValues":{"price":1.10},"tightBounds":false}'

    Args:
        text: The statistics so far; None if there are none.
        rows: Physical rows of the file.
        deleted: How many of them were deleted when the statistics were made.
    """
    statistics = _parsed(text)
    if deleted and statistics.get("tightBounds", True) is True and "nullCount" in statistics:
        statistics["nullCount"] = _recounted(statistics["nullCount"], rows - deleted, rows)
    return _written({**statistics, "numRecords": rows, "tightBounds": False})


def _recounted(count: Any, left: int, rows: int) -> Any:  # noqa: ANN401
    if isinstance(count, dict):
        return {name: _recounted(inner, left, rows) for name, inner in count.items()}
    return rows if count == left else count


def _parsed(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        return {}
    try:
        value = parse_json(text, "a statistic", parse_float=_Number)
    except FormatError:
        return {}  # statistics are optional: a file without them is not pruned
    return value if isinstance(value, dict) else {}


def _written(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, dict):
        inner = (f"{json.dumps(str(key))}:{_written(item)}" for key, item in value.items())
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)
