"""Filters as pyarrow and deltalake take them, tuples in lists, read into a predicate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from delvec.delta.schema.types import WIDEST_CHAR, StructType
from delvec.delta.skipping import predicate as nodes
from delvec.delta.skipping.predicate import ColumnPath, Operator, Predicate, find_column
from delvec.errors import InvalidArgumentError
from delvec.report.format import did_you_mean

_COMPARISONS: Final[dict[str, Operator]] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_OPERATORS: Final = (*_COMPARISONS, "in", "not in")


def parse_filters(filters: Sequence[object], schema: StructType) -> Predicate:
    """Read the tuples that pyarrow and deltalake take as filters.

    A list of `(column, operator, value)` means all of them, a list of such lists any of the lists.
    Operators are `=`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in` and `not in`; None goes with `=` and
    `!=` and means null. A column inside a struct is a tuple of names, or joined by dots.

    >>> from delvec.delta.schema.types import Field, PrimitiveType, StructType
    >>> schema = StructType((Field("id", PrimitiveType("long")),))
    >>> parse_filters([("id", ">=", 5)], schema)
    Comparison(column=('id',), op='>=', value=5)
    """
    if isinstance(filters, (list, tuple)) and all(isinstance(each, list) for each in filters):
        groups = [_parse_group(each, schema) for each in filters]
        if not groups:
            return nodes.Always()
        return groups[0] if len(groups) == 1 else nodes.Or(tuple(groups))
    return _parse_group(filters, schema)


def _parse_group(filters: object, schema: StructType) -> Predicate:
    if not isinstance(filters, (list, tuple)) or not filters:
        raise _malformed(filters)
    parsed = tuple(_parse_filter(each, schema) for each in filters)
    return parsed[0] if len(parsed) == 1 else nodes.And(parsed)


def _malformed(found: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"filters are malformed: found {_shown(found)}",
        hint='pass a list of tuples, [("id", ">=", 5)], or a list of such lists for OR',
    )


def _parse_filter(each: object, schema: StructType) -> Predicate:
    if not isinstance(each, tuple) or len(each) != 3:
        raise _malformed(each)
    name, written, value = each
    path, kind = find_column(_path_of(name, schema), schema)
    # As SQL compares char(n); a wider one is refused when it is read.
    width = min(schema.field(path[0]).char_width or 0, WIDEST_CHAR)
    if width and isinstance(value, str):
        value = value.ljust(width)
    elif width and isinstance(value, (list, tuple, set, frozenset)):
        value = [text.ljust(width) if isinstance(text, str) else text for text in value]
    if written in ("in", "not in"):
        members = nodes.In(path, _parse_members(path, kind, value))
        return members if written == "in" else nodes.Not(members)
    op = _COMPARISONS.get(written) if isinstance(written, str) else None
    if op is None:
        raise InvalidArgumentError(
            f"there is no operator {_shown(written)}, only {', '.join(_OPERATORS)}",
            hint=did_you_mean(str(written), _OPERATORS, 1),
        )
    if value is None and op in ("=", "!="):
        return nodes.IsNull(path) if op == "=" else nodes.Not(nodes.IsNull(path))
    return nodes.Comparison(path, op, _parse_value(path, kind, value))


def _path_of(name: object, schema: StructType) -> ColumnPath:
    if isinstance(name, str):
        return (name,) if name in schema.names or "." not in name else tuple(name.split("."))
    if isinstance(name, tuple) and name and all(isinstance(part, str) for part in name):
        return name
    raise _malformed(name)


def _parse_members(path: ColumnPath, kind: pa.DataType, values: object) -> tuple[object, ...]:
    if not isinstance(values, (list, tuple, set, frozenset)):
        raise InvalidArgumentError(
            f"`in` on column {'.'.join(path)} needs a list of values, got {_shown(values)}"
        )
    return tuple(_parse_value(path, kind, value) for value in values)


def _parse_value(path: ColumnPath, kind: pa.DataType, value: object) -> object:
    parsed = nodes.convert_literal(value, kind)
    if parsed is not None:
        return parsed
    hint = None
    if value is None:
        hint = f'ask for nulls by ("{".".join(path)}", "=", None)'
    elif pa.types.is_timestamp(kind) and kind.tz:
        hint = "give the time zone: 2024-01-31T12:00:00+00:00"
    elif pa.types.is_timestamp(kind):
        hint = "the column has no time zone: 2024-01-31T12:00:00"
    elif pa.types.is_decimal(kind):
        hint = 'give a decimal.Decimal that fits: Decimal("1.25")'
    raise InvalidArgumentError(
        f"column {'.'.join(path)} of type {kind} cannot be compared with {_shown(value)}", hint=hint
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
