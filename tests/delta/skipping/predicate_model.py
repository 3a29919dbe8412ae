"""Rows, predicates on them, and a slow evaluator that is plainly SQL: the model to compare with."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations
from typing import Any, TypeAlias, get_args

import pyarrow as pa
from hypothesis import strategies as st

from delvec.delta.schema.types import Field, PrimitiveType, StructType, arrow_type
from delvec.delta.skipping import predicate as sql

Row: TypeAlias = dict[sql.ColumnPath, Any]
Truth: TypeAlias = bool | None

NAN = float("nan")
UTC = dt.timezone.utc
# Few values, so that rows, bounds and predicates meet; the odd ones of each type among them.
VALUES: dict[str, list[Any]] = {
    "long": [-(2**63), -1, 0, 1, 5, 2**53 + 1, 2**63 - 1],
    "byte": [-128, -1, 0, 1, 127],
    "double": [-math.inf, -1.5, -0.0, 0.0, 0.1, 5.0, math.inf, NAN],
    "float": [-math.inf, -1.5, -0.0, 0.0, 0.5, 5.0, math.inf, NAN],
    "string": ["", "a", "a\0", "ab", "abc", "b", "é", "\uffff", "\U0001f600"],
    "binary": [b"", b"a", b"a\0", b"\x80", b"\xff\xff"],
    "boolean": [False, True],
    "date": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "timestamp": [
        dt.datetime(1, 1, 1, tzinfo=UTC),
        dt.datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC),
        dt.datetime(2024, 2, 29, 12, 0, 0, 2, tzinfo=UTC),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    "timestamp_ntz": [dt.datetime(1969, 12, 31), dt.datetime(2024, 2, 29, 12, 0, 0, 1)],  # noqa: DTZ001
    "decimal(5,2)": [Decimal("-999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("1.50")],
}
# Beyond the column's type, but in order with its values.
BEYOND: dict[str, list[Any]] = {"byte": [-300, 128], "float": [0.1, 1e300], "double": [5]}
NESTED: sql.ColumnPath = ("s", "x")
KINDS: dict[sql.ColumnPath, str] = {(kind,): kind for kind in VALUES} | {NESTED: "long"}
SCHEMA = StructType(
    (
        *(Field(kind, PrimitiveType(kind)) for kind in VALUES),
        Field("s", StructType((Field("x", PrimitiveType("long")),))),
    )
)

EMPTY: Row = dict.fromkeys(KINDS)


def rows(columns: Sequence[sql.ColumnPath]) -> st.SearchStrategy[Row]:
    """Rows with something in some columns and nulls in all others."""
    return st.fixed_dictionaries(
        {column: st.none() | st.sampled_from(VALUES[KINDS[column]]) for column in columns}
    ).map(lambda row: EMPTY | row)


def table_of(some: Sequence[Row]) -> pa.Table:
    """Rows as a table; a null inside the struct is now a null struct, now a null field."""
    plain = [
        {
            **{column[0]: value for column, value in row.items() if column != NESTED},
            "s": None if row[NESTED] is None and number % 2 else {"x": row[NESTED]},
        }
        for number, row in enumerate(some)
    ]
    return pa.Table.from_pylist(plain, pa.schema(list(arrow_type(SCHEMA))))


def leaves(column: sql.ColumnPath) -> list[sql.Predicate]:
    """All predicates on a column that are made of one condition, and their opposites."""
    kind = KINDS[column]
    values = VALUES[kind] + BEYOND.get(kind, [])
    plain: list[sql.Predicate] = [
        sql.IsNull(column),
        sql.In(column, ()),
        sql.In(column, tuple(values)),
    ]
    plain += [
        sql.Comparison(column, op, value) for op in get_args(sql.Operator) for value in values
    ]
    plain += [sql.In(column, pair) for pair in combinations(values, 2)]
    plain += [sql.StartsWith(column, value) for value in values if kind == "string"]
    return plain + [sql.Not(each) for each in plain]


def predicates(
    columns: Sequence[sql.ColumnPath], *, others: Sequence[sql.Predicate] = (sql.Always(),)
) -> st.SearchStrategy[sql.Predicate]:
    conditions = [leaf for column in columns for leaf in leaves(column)]
    return st.recursive(
        st.sampled_from(conditions) | st.sampled_from([*conditions, *others]),
        lambda inner: (
            st.builds(sql.And, st.lists(inner, min_size=2, max_size=3).map(tuple))
            | st.builds(sql.Or, st.lists(inner, min_size=2, max_size=3).map(tuple))
            | st.builds(sql.Not, inner)
        ),
        max_leaves=6,
    )


some_columns = st.lists(st.sampled_from(tuple(KINDS)), min_size=1, max_size=2, unique=True)


def truth(  # noqa: C901, PLR0911 - one case after another is what makes it plain
    predicate: sql.Predicate, row: Row, *, of_never: Truth = False, of_unknown: Truth = None
) -> Truth:
    """What SQL says of a row, where it leaves no choice."""

    def inner(child: sql.Predicate) -> Truth:
        return truth(child, row, of_never=of_never, of_unknown=of_unknown)

    match predicate:
        case sql.Always():
            return True
        case sql.Never():
            return of_never
        case sql.Unknown():
            return of_unknown
        case sql.Not(child):
            found = inner(child)
            return None if found is None else not found
        case sql.And(children):
            parts = [inner(child) for child in children]
            return False if False in parts else None if None in parts else True
        case sql.Or(children):
            parts = [inner(child) for child in children]
            return True if True in parts else None if None in parts else False
        case sql.IsNull(column):
            return row[column] is None
        case sql.In(column, values):
            return inner(sql.Or(tuple(sql.Comparison(column, "=", value) for value in values)))
        case sql.StartsWith(column, prefix):
            text = row[column]
            return None if text is None else bool(text.startswith(prefix))
        case sql.Comparison(column, "<=>", value):
            return row[column] is not None and inner(sql.Comparison(column, "=", value))
        case sql.Comparison(column, op, value):
            if row[column] is None:
                return None
            one, other = order(row[column]), order(value)
            return {
                "=": one == other,
                "!=": one != other,
                "<": one < other,
                "<=": one <= other,
                ">": one > other,
                ">=": one >= other,
            }[op]


def order(value: Any) -> tuple[int, Any]:  # noqa: ANN401
    """Put a value where Spark puts it: NaN last, strings by their bytes."""
    if isinstance(value, float) and math.isnan(value):
        return 1, 0
    return 0, value.encode() if isinstance(value, str) else value
