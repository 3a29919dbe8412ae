"""Spark's resolved expressions, as predicates that prune files.

What is not understood becomes `Unknown`, which prunes no file: Spark applies its filters to the
rows in any case.
"""

from __future__ import annotations

import pickle
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from delvec.delta.pruning.predicate import (
    Always,
    And,
    Comparison,
    In,
    IsNull,
    Never,
    Not,
    Or,
    StartsWith,
    Unknown,
)
from delvec.spark.jvm import items

if TYPE_CHECKING:
    from collections.abc import Callable

    from delvec.delta.pruning.predicate import ColumnPath, Predicate

__all__ = ["translate"]

_OPERATORS: Final = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_FLIPPED: Final = {"=": "=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_WIDER: Final = ("ByteType", "ShortType", "IntegerType", "LongType")


def translate(
    expression: Any,  # noqa: ANN401
    column: Callable[[ColumnPath], ColumnPath | None],
    values_of: Callable[[Any], bytes],
) -> Predicate:
    """Return the predicate of an expression, as far as it is about single columns.

    Args:
        expression: A resolved expression of Catalyst.
        column: Returns the table's name of a scan's column; None for one that is not the table's.
        values_of: Pickles a Scala sequence of literal values.
    """
    return _Translation(column, values_of).of(expression)


class _Translation:
    def __init__(
        self, column: Callable[[ColumnPath], ColumnPath | None], values_of: Callable[[Any], bytes]
    ) -> None:
        self._column, self._values_of = column, values_of

    def of(self, node: Any) -> Predicate:  # noqa: ANN401
        kind = _kind(node)
        if kind in _OPERATORS:
            return self._comparison(_OPERATORS[kind], node.left(), node.right())
        rule = self._rules.get(kind)
        return self._boolean(node) if rule is None else rule(node)

    @property
    def _rules(self) -> dict[str, Callable[[Any], Predicate]]:
        return {
            "And": lambda node: And((self.of(node.left()), self.of(node.right()))),
            "Or": lambda node: Or((self.of(node.left()), self.of(node.right()))),
            "Not": lambda node: Not(self.of(node.child())),
            "IsNull": self._is_null,
            "IsNotNull": lambda node: Not(self._is_null(node)),
            "In": lambda node: self._in(node.value(), lambda: _cells(node)),
            "InSet": lambda node: self._in(node.child(), lambda: self._set(node)),
            "StartsWith": self._starts_with,
        }

    def _boolean(self, node: Any) -> Predicate:  # noqa: ANN401
        """Translate a column or a literal that is a condition by itself."""
        if _kind(node.dataType()) != "BooleanType$":
            return Unknown()
        if _kind(node) == "Literal":
            return Always() if node.value() is True else Never()
        path = self._path(node)
        return Unknown() if path is None else Comparison(path, "=", True)

    def _is_null(self, node: Any) -> Predicate:  # noqa: ANN401
        path = self._path(node.child())
        return Unknown() if path is None else IsNull(path)

    def _comparison(self, operator: str, left: Any, right: Any) -> Predicate:  # noqa: ANN401
        if _is_constant(left):
            left, right, operator = right, left, _FLIPPED[operator]
        path = self._path(left)
        if path is None or not _is_constant(right):
            return Unknown()
        value = _literal(right)
        if value is None:
            return _null_comparison(operator, path, right)
        return Comparison(path, operator, value)  # type: ignore[arg-type]

    def _in(self, column: Any, cells_of: Callable[[], list[Any] | None]) -> Predicate:  # noqa: ANN401
        path, convert = self._path(column), _converter(column.dataType())
        cells = None if path is None or convert is None else cells_of()
        if path is None or convert is None or cells is None:
            return Unknown()
        values = [_converted(cell, convert) for cell in cells if cell is not None]
        if any(value is None for value in values):
            return Unknown()
        within = In(path, tuple(values))
        # With a null in the list other values give NULL instead of false: NOT IN matches nothing.
        return within if len(values) == len(cells) else Or((within, Never()))

    def _set(self, node: Any) -> list[Any]:  # noqa: ANN401
        """Fetch a long list in one call instead of one for each value."""
        values: list[Any] = pickle.loads(self._values_of(node.hset().toSeq()))  # noqa: S301 - from our own JVM
        return values

    def _starts_with(self, node: Any) -> Predicate:  # noqa: ANN401
        path = self._path(node.left())
        value = _literal(node.right()) if _is_constant(node.right()) else None
        if path is None or not isinstance(value, str):
            return Unknown()
        return StartsWith(path, value)

    def _path(self, node: Any) -> ColumnPath | None:  # noqa: ANN401
        """Return the column that a node is, through casts that keep values; None for all else."""
        names: list[str] = []
        while True:
            kind = _kind(node)
            if kind == "GetStructField":
                names.append(node.child().dataType().fieldNames()[node.ordinal()])
                node = node.child()
            elif kind == "Cast" and not names and _keeps_values(node):
                node = node.child()
            elif kind == "AttributeReference":
                names.append(node.name())
                return self._column(tuple(reversed(names)))
            else:
                return None


def _null_comparison(operator: str, path: ColumnPath, literal: Any) -> Predicate:  # noqa: ANN401
    if _raw(literal) is not None:
        return Unknown()  # a value of a type that is not compared
    return IsNull(path) if operator == "<=>" else Never()


def _kind(value: Any) -> str:  # noqa: ANN401
    name: str = value.getClass().getSimpleName()
    return name


def _keeps_values(cast: Any) -> bool:  # noqa: ANN401
    """Whether a cast only widens an integer, so that it changes no comparison."""
    source, target = _kind(cast.child().dataType()).rstrip("$"), _kind(cast.dataType()).rstrip("$")
    both_integers = source in _WIDER and target in _WIDER
    return both_integers and _WIDER.index(source) <= _WIDER.index(target)


def _literal(node: Any) -> Any:  # noqa: ANN401
    """Return a literal as a Python value; None for null and for types that are not compared."""
    value, convert = _raw(node), _converter(node.dataType())
    return None if value is None or convert is None else _converted(value, convert)


def _cells(node: Any) -> list[Any] | None:  # noqa: ANN401
    nodes = list(items(node.list()))
    return [_raw(item) for item in nodes] if all(map(_is_constant, nodes)) else None


def _is_constant(node: Any) -> bool:  # noqa: ANN401
    """Whether all leaves are literals; the current time is not, which Spark fixes later."""
    if _kind(node) == "Literal":
        return True
    return bool(node.foldable()) and all(
        _kind(leaf) == "Literal" for leaf in items(node.collectLeaves())
    )


def _raw(node: Any) -> Any:  # noqa: ANN401
    return node.value() if _kind(node) == "Literal" else node.eval(None)


def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    try:
        return convert(value)
    except OverflowError:
        return None  # a date or time beyond the range of Python's


def _converter(data_type: Any) -> Callable[[Any], Any] | None:  # noqa: ANN401
    kind = _kind(data_type).rstrip("$")
    if kind == "StringType":
        # Under another collation different strings are equal.
        return _string if data_type.typeName() == "string" else None
    return _CONVERTERS.get(kind)


def _string(value: Any) -> str:  # noqa: ANN401
    return value if isinstance(value, str) else str(value.toString())


def _decimal(value: Any) -> Decimal:  # noqa: ANN401
    return value if isinstance(value, Decimal) else Decimal(str(value.toString()))


def _naive(micros: int) -> datetime:
    return _instant(micros).replace(tzinfo=None)


def _instant(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


_CONVERTERS: Final[dict[str, Callable[[Any], Any]]] = {
    "BooleanType": bool,
    "ByteType": int,
    "ShortType": int,
    "IntegerType": int,
    "LongType": int,
    # Py4J passes a float in its shortest decimal form, which as a double is another number.
    "FloatType": lambda value: float(np.float32(value)),
    "DoubleType": float,
    "DecimalType": _decimal,
    "DateType": lambda days: date(1970, 1, 1) + timedelta(days=days),
    "TimestampType": _instant,
    "TimestampNTZType": _naive,
    "BinaryType": bytes,
}
