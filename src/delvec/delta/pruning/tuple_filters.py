"""Filters as pyarrow and deltalake take them, tuples in lists, read into a predicate."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from delvec.delta.pruning.literals import convert_literal
from delvec.delta.pruning.predicate import (
    Always,
    And,
    ColumnPath,
    Comparison,
    In,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    find_column,
)
from delvec.delta.schema.types import WIDEST_CHAR
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.delta.schema.types import StructType

__all__ = ["parse_filters"]

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

    Raises:
        InvalidArgumentError: There is no such column or operator, or the value is not one that
            the column can hold.
    """
    if isinstance(filters, (list, tuple)) and all(isinstance(each, list) for each in filters):
        groups = [_parse_group(each, schema) for each in filters]
        return Always() if not groups else groups[0] if len(groups) == 1 else Or(tuple(groups))
    return _parse_group(filters, schema)


def _parse_group(filters: object, schema: StructType) -> Predicate:
    if not isinstance(filters, (list, tuple)) or not filters:
        raise _malformed(filters)
    parsed = tuple(_parse_filter(each, schema) for each in filters)
    return parsed[0] if len(parsed) == 1 else And(parsed)


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
    width = schema.field(path[0]).char_width
    if width is not None and isinstance(value, str):
        value = value.ljust(min(width, WIDEST_CHAR))  # as SQL compares char(n)
    if width is not None and isinstance(value, (list, tuple, set, frozenset)):
        narrow = min(width, WIDEST_CHAR)  # a wider one is refused when it is read
        value = [text.ljust(narrow) if isinstance(text, str) else text for text in value]
    if written in ("in", "not in"):
        members = In(path, _parse_members(path, kind, value))
        return members if written == "in" else Not(members)
    op = _COMPARISONS.get(written) if isinstance(written, str) else None
    if op is None:
        near = get_close_matches(str(written), _OPERATORS, 1)
        raise InvalidArgumentError(
            f"there is no operator {_shown(written)}, only {', '.join(_OPERATORS)}",
            hint=f"did you mean {near[0]!r}?" if near else None,
        )
    if value is None and op in ("=", "!="):
        return IsNull(path) if op == "=" else Not(IsNull(path))
    return Comparison(path, op, _parse_value(path, kind, value))


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
    parsed = convert_literal(value, kind)
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
