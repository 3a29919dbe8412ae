"""The option `filters`: the filter tuples of pyarrow and deltalake, as JSON."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delvec.delta.pruning.predicate import find_column
from delvec.delta.pruning.tuple_filters import parse_filters
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from delvec.delta.pruning.predicate import Predicate
    from delvec.delta.schema.types import StructType

__all__ = ["parse_json_filters"]


def parse_json_filters(text: str, schema: StructType) -> Predicate:
    """Return the predicate of filters such as `[["day", "=", "2026-01-31"], ["price", ">", 1.25]]`.

    >>> from delvec.delta.schema.types import Field, PrimitiveType, StructType
    >>> schema = StructType((Field("price", PrimitiveType("decimal(5,2)")),))
    >>> parse_json_filters('[["price", ">", 1.25]]', schema)
    Comparison(column=('price',), op='>', value=Decimal('1.25'))

    Raises:
        InvalidArgumentError: It is not JSON, or not in that form.
    """
    try:
        found = json.loads(text, parse_float=Decimal)
    except ValueError as error:
        raise InvalidArgumentError(f"the option filters is not JSON: {text[:80]!r}") from error
    if isinstance(found, list) and all(_is_leaf(each) for each in found):
        return parse_filters([_leaf(each, schema) for each in found], schema)
    if isinstance(found, list) and all(
        isinstance(group, list) and all(map(_is_leaf, group)) for group in found
    ):
        return parse_filters([[_leaf(each, schema) for each in group] for group in found], schema)
    raise InvalidArgumentError(
        f"the option filters is malformed: {text[:80]!r}",
        hint='write [["id", ">=", 5]], or a list of such lists for OR',
    )


def _is_leaf(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, list) and len(value) == 3 and isinstance(value[1], str)


def _leaf(value: list[Any], schema: StructType) -> tuple[Any, ...]:
    column, operator, operand = value
    path = (column,) if isinstance(column, str) else tuple(column)
    if len(path) == 1 and path[0] not in schema.names and "." in path[0]:
        path = tuple(path[0].split("."))
    kind = find_column(path, schema)[1]
    numbers = [
        _number(each, kind) for each in (operand if isinstance(operand, list) else [operand])
    ]
    return path, operator, numbers if isinstance(operand, list) else numbers[0]


def _number(value: object, kind: pa.DataType) -> object:
    """Return a number as the column's type needs it; JSON numbers are parsed as Decimal."""
    return value if not isinstance(value, Decimal) or pa.types.is_decimal(kind) else float(value)
