"""Statistics that a checkpoint holds as columns, written back as JSON.

All on Arrow columns; only strings with control characters are escaped one by one.
"""

from __future__ import annotations

import json
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["statistics_to_json"]

_CONTROL: Final = r"[\x00-\x1f]"
_NULL_STRING: Final = pa.nulls(1, pa.string())[0]  # pa.scalar imports pandas, a quarter of a second


def statistics_to_json(values: pa.Array) -> pa.Array:
    """Return each value as a string of JSON, null where it is null; omit what JSON cannot hold.

    >>> from datetime import date
    >>> row = {"minValues": {"day": date(2024, 1, 31), "name": None}, "numRecords": 2}
    >>> statistics_to_json(pa.array([row, None])).to_pylist()
    ['{"minValues":{"day":"2024-01-31"},"numRecords":2}', None]
    """
    kind = values.type
    if pa.types.is_struct(kind):
        return _objects(values)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return values.cast(pa.string())
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(values), values.cast(pa.string()), _NULL_STRING)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _strings(values.cast(pa.string()))
    return _times(values)


def _times(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_date(kind):
        return _in_quotes(values.cast(pa.string()))
    if pa.types.is_timestamp(kind):
        form = "%Y-%m-%dT%H:%M:%S" + ("Z" if kind.tz else "")
        return _in_quotes(pc.strftime(values.cast(pa.timestamp("us", kind.tz)), format=form))
    return pa.nulls(len(values), pa.string())


def _objects(values: pa.StructArray) -> pa.Array:
    parts = [
        pc.binary_join_element_wise(
            f"{json.dumps(field.name, ensure_ascii=False)}:",
            statistics_to_json(pc.struct_field(values, [place])),
            "",
        )
        for place, field in enumerate(values.type)
    ]
    if not parts:
        return pc.if_else(values.is_valid(), "{}", _NULL_STRING)
    # Arrow drops the rows in which all parts are null, so the first part is none of them.
    joined = pc.binary_join_element_wise("", *parts, ",", null_handling="skip")
    whole = pc.binary_join_element_wise("{", pc.utf8_slice_codeunits(joined, 1), "}", "")
    return pc.if_else(values.is_valid(), whole, _NULL_STRING)


def _strings(values: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(values, _CONTROL)).as_py():
        strings = values.to_pylist()
        escaped = [
            None if each is None else json.dumps(each, ensure_ascii=False) for each in strings
        ]
        return pa.array(escaped, pa.string())
    escaped = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
    return _in_quotes(escaped)


def _in_quotes(values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', values, '"', "")
