"""Predicates as data: which rows match, built from Spark's filters or from tuples.

A predicate is a tree of frozen dataclasses over logical columns. It is true, false or NULL for a
row, as in SQL, and a row matches where it is true. Values compare as in Spark: NaN is equal to
NaN and larger than any number, -0.0 is equal to 0.0, strings compare by their UTF-8 bytes.

A Python value becomes a literal of its column's type exactly, or not at all: Arrow would silently
round 1.5 to an integer, cut the time off a date and forget a time zone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from math import isnan
from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.schema.traversal import resolve
from delvec.delta.schema.types import WIDEST_CHAR, StructType, arrow_type
from delvec.documents import parse_time
from delvec.errors import InvalidArgumentError
from delvec.report.format import did_you_mean

ColumnPath: TypeAlias = tuple[str, ...]
Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "<=>"]
_OPPOSITE: Final[dict[Operator, Operator]] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}
_COMPARE: Final[dict[Operator, Callable[[pc.Expression, pa.Scalar], pc.Expression]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_PYTHON_TYPES: Final[tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...]] = (
    (pa.types.is_signed_integer, (int,)),
    (pa.types.is_floating, (float, int)),
    (pa.types.is_boolean, (bool,)),
    (pa.types.is_string, (str,)),
    (pa.types.is_binary, (bytes,)),
    (pa.types.is_date32, (date,)),
    (pa.types.is_decimal128, (Decimal, int)),
)
_COMPARISONS: Final[dict[str, Operator]] = {"=": "=", "==": "=", **{op: op for op in _COMPARE}}
_OPERATORS: Final = (*_COMPARISONS, "in", "not in")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column against a value, which is never None; `<=>` is false and not NULL for a null."""

    column: ColumnPath
    op: Operator
    value: object


@dataclass(frozen=True, slots=True)
class In:
    """A column equal to one of some values, none of them None; false if there are no values."""

    column: ColumnPath
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column that is null."""

    column: ColumnPath


@dataclass(frozen=True, slots=True)
class StartsWith:
    """A column of strings that begin with a prefix."""

    column: ColumnPath
    prefix: str


@dataclass(frozen=True, slots=True)
class And:
    """All of some predicates."""

    children: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of some predicates."""

    children: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a predicate; NULL where that is NULL."""

    child: Predicate


@dataclass(frozen=True, slots=True)
class Always:
    """True for every row."""


@dataclass(frozen=True, slots=True)
class Never:
    """False or NULL for every row, which is not known: so `Not(Never())` is Unknown."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A condition that is not understood: any row may match."""


Predicate: TypeAlias = (
    Comparison | In | IsNull | StartsWith | And | Or | Not | Always | Never | Unknown
)


def columns_of(predicate: Predicate) -> frozenset[ColumnPath]:
    """Return all columns that a predicate refers to.

    >>> sorted(columns_of(Or((IsNull(("a",)), Not(StartsWith(("s", "x"), "y"))))))
    [('a',), ('s', 'x')]
    """
    match predicate:
        case And(children) | Or(children):
            return frozenset[ColumnPath]().union(*map(columns_of, children))
        case Not(child):
            return columns_of(child)
        case Always() | Never() | Unknown():
            return frozenset()
        case _:
            return frozenset({predicate.column})


def find_column(path: ColumnPath, schema: StructType) -> tuple[ColumnPath, pa.DataType]:
    """Return a column's path as the schema spells it, and its Arrow type."""
    found = resolve(schema, path, structs_only=True)
    return tuple(each.name for each in found), arrow_type(found[-1].type)


def push_down_not(predicate: Predicate) -> Predicate:
    """Rewrite a predicate so that nothing but And and Or is left above its leaves.

    The result is true for the same rows. Where it is not true it may be false instead of NULL,
    which no longer makes a difference, since no Not is left around it. A Not remains before In,
    IsNull and StartsWith only; `<=>` and an In of no values are gone.

    >>> push_down_not(Not(Or((Comparison(("a",), "<", 5), Not(IsNull(("a",)))))))
    And(children=(Comparison(column=('a',), op='>=', value=5), IsNull(column=('a',))))
    """
    match predicate:
        case And(children):
            return And(tuple(map(push_down_not, children)))
        case Or(children):
            return Or(tuple(map(push_down_not, children)))
        case Not(child):
            return _negated(child)
        case Comparison(column, "<=>", value):
            return Comparison(column, "=", value)
        case In(_, ()):
            return Never()
        case _:
            return predicate


def to_arrow(predicate: Predicate, schema: StructType) -> pc.Expression | None:
    """Return the filter that keeps exactly the rows for which a predicate is true.

    For tables in memory, `Table.filter`: a scan of Parquet files by `pyarrow.dataset` skips row
    groups by statistics that leave NaN out, and so loses rows. Not to be negated: the filter is
    false where the predicate is NULL. None for an Unknown, or a value not of its column's type.
    """
    return _truth(push_down_not(predicate), schema)


def comparable(values: Sequence[object], kind: pa.DataType) -> pa.Array | None:
    """Return values as an array that compares exactly with one of a type; None if they cannot.

    Of the type itself if all values fit in, else of a wider one: int64 for integers, else double.

    >>> comparable([1, 300], pa.int8()).type, comparable([1.5], pa.int8())
    (DataType(int64), None)
    """
    if not all(_is_of(value, kind) for value in values):
        return None
    try:
        if pa.types.is_floating(kind):
            return _narrowed(pa.array(values, pa.float64()), kind)
        if pa.types.is_integer(kind):
            return _narrowed(pa.array(values, pa.int64()), kind)
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        return None  # beyond the range of the type, or half a surrogate pair


def convert_literal(value: object, kind: pa.DataType) -> object:
    """Return a literal as a value of a column's type, or None if that would change it.

    Integers stand for whole floats and decimals and the other way round, strings in ISO form for
    dates and timestamps, and a date for its midnight where there are no time zones.

    >>> convert_literal(5, pa.float64()), convert_literal("2024-02-29", pa.date32())
    (5.0, datetime.date(2024, 2, 29))
    """
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, str):
        plain = _from_string(plain, kind)
    elif type(plain) is date and pa.types.is_timestamp(kind):
        plain = datetime.combine(plain, time())
    elif type(plain) is float and pa.types.is_integer(kind) and plain.is_integer():
        plain = int(plain)
    if comparable([plain], kind) is None:
        return None
    if type(plain) is int and pa.types.is_floating(kind):
        return float(plain)
    return Decimal(plain) if type(plain) is int and pa.types.is_decimal(kind) else plain


def _narrowed(exact: pa.Array, kind: pa.DataType) -> pa.Array:
    numbers = exact.to_numpy(zero_copy_only=False)
    # Not by Arrow's `to_pandas_dtype`, which imports pandas in version 25.
    narrower = np.dtype(f"{numbers.dtype.kind}{kind.bit_width // 8}")
    with np.errstate(over="ignore"):
        narrow = numbers.astype(narrower)
    same = np.array_equal(
        narrow.astype(numbers.dtype), numbers, equal_nan=numbers.dtype.kind == "f"
    )
    return pa.array(narrow, kind) if same else exact


def _is_of(value: object, kind: pa.DataType) -> bool:
    """Tell whether a value has the Python type of a column; a bool is no int, as in SQL."""
    if type(value) is datetime:
        return (
            pa.types.is_timestamp(kind)
            and kind.unit == "us"
            and (value.tzinfo is None) == (kind.tz is None)
        )
    return any(type(value) in allowed and test(kind) for test, allowed in _PYTHON_TYPES)


def _from_string(text: str, kind: pa.DataType) -> object:
    if not pa.types.is_date(kind) and not pa.types.is_timestamp(kind):
        return text
    moment = parse_time(text)
    is_day = len(text) == len("2024-02-29") and pa.types.is_date(kind)
    return moment.date() if moment and is_day else moment


def _negated(predicate: Predicate) -> Predicate:
    match predicate:
        case And(children):
            result: Predicate = Or(tuple(map(_negated, children)))
        case Or(children):
            result = And(tuple(map(_negated, children)))
        case Not(child):
            result = push_down_not(child)
        case Comparison(column, "<=>", value):
            result = Or((Comparison(column, "!=", value), IsNull(column)))
        case Comparison(column, op, value):
            result = Comparison(column, _OPPOSITE[op], value)
        case In(_, ()):
            result = Always()
        case Always():
            result = Never()
        case Never() | Unknown():
            result = Unknown()
        case _:
            result = Not(predicate)
    return result


def _truth(predicate: Predicate, schema: StructType) -> pc.Expression | None:
    match predicate:
        case And(children):
            return _joined(children, schema, pc.scalar(True), operator.and_)
        case Or(children):
            return _joined(children, schema, pc.scalar(False), operator.or_)
        case Always() | Never():
            return pc.scalar(isinstance(predicate, Always))
        case Unknown():
            return None
        case Not(child):
            (column,) = columns_of(child)
            present = pc.field(*find_column(column, schema)[0]).is_valid()
            inner = _truth(child, schema)
            return None if inner is None else present & ~inner
        case _:
            return _leaf(predicate, schema)


def _joined(
    children: tuple[Predicate, ...],
    schema: StructType,
    start: pc.Expression,
    join: Callable[[pc.Expression, pc.Expression], pc.Expression],
) -> pc.Expression | None:
    parts = [_truth(child, schema) for child in children] or [start]
    if any(part is None for part in parts):
        return None
    while len(parts) > 1:  # in pairs: Arrow recurses, and a chain of thousands would be as deep
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [join(one, other) for one, other in pairs] + parts[len(parts) & ~1 :]
    return parts[0]


def _leaf(
    predicate: Comparison | In | IsNull | StartsWith, schema: StructType
) -> pc.Expression | None:
    path, kind = find_column(predicate.column, schema)
    column = pc.field(*path)
    if isinstance(predicate, IsNull):
        return column.is_null()
    literals = comparable(values_of(predicate), kind)
    if literals is None:
        return None
    if literals.type != kind:
        column = column.cast(literals.type)
    match predicate:
        case Comparison(_, op, _):
            return _compared(column, op, literals[0])
        case In():
            if pa.types.is_floating(literals.type):  # Arrow's sets tell 0.0 from -0.0
                zeros = pa.array([0.0, -0.0], literals.type)
                if pc.any(pc.equal(literals, zeros[0])).as_py():
                    literals = pa.concat_arrays([literals, zeros])
            return column.isin(literals)
        case StartsWith(_, prefix):
            return pc.starts_with(column, prefix)


def values_of(predicate: Comparison | In | StartsWith) -> tuple[object, ...]:
    match predicate:
        case Comparison(_, _, value):
            return (value,)
        case In(_, values):
            return values
        case StartsWith(_, prefix):
            return (prefix,)


def _compared(column: pc.Expression, op: Operator, value: pa.Scalar) -> pc.Expression:
    if not pa.types.is_floating(value.type):
        return _COMPARE[op](column, value)
    is_nan = pc.is_nan(column)
    if not isnan(value.as_py()):
        result = _COMPARE[op](column, value)
        return result | is_nan if op in (">", ">=") else result
    against_nan = {"=": is_nan, ">=": is_nan, "!=": ~is_nan, "<": ~is_nan, "<=": column.is_valid()}
    return against_nan.get(op, pc.scalar(False))


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
            return Always()
        return groups[0] if len(groups) == 1 else Or(tuple(groups))
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
    # As SQL compares char(n); a wider one is refused when it is read.
    width = min(schema.field(path[0]).char_width or 0, WIDEST_CHAR)
    if width and isinstance(value, str):
        value = value.ljust(width)
    elif width and isinstance(value, (list, tuple, set, frozenset)):
        value = [text.ljust(width) if isinstance(text, str) else text for text in value]
    if written in ("in", "not in"):
        members = In(path, _parse_members(path, kind, value))
        return members if written == "in" else Not(members)
    op = _COMPARISONS.get(written) if isinstance(written, str) else None
    if op is None:
        raise InvalidArgumentError(
            f"there is no operator {_shown(written)}, only {', '.join(_OPERATORS)}",
            hint=did_you_mean(str(written), _OPERATORS, 1),
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
