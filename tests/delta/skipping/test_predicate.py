from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec.delta.schema.types import ArrayType, Field, PrimitiveType, StructType
from delvec.delta.skipping import predicate as sql
from delvec.delta.skipping.predicate import parse_filters
from delvec.errors import InvalidArgumentError
from tests.delta.skipping import predicate_model as model

NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 500_000)  # noqa: DTZ001


def kept(predicate: sql.Predicate, table: pa.Table) -> list[int]:
    numbered = table.append_column("number", pa.array(range(len(table)), pa.int64()))
    found: list[int] = numbered.filter(sql.to_arrow(predicate, model.SCHEMA))["number"].to_pylist()
    return found


def wanted(predicate: sql.Predicate, some: list[model.Row]) -> list[int]:
    return [number for number, row in enumerate(some) if model.truth(predicate, row) is True]


@pytest.mark.parametrize("column", model.KINDS, ids=".".join)
def test_every_condition_keeps_the_rows_for_which_sql_says_true(column: sql.ColumnPath) -> None:
    some = [
        model.EMPTY | {column: value} for value in [None, *model.VALUES[model.KINDS[column]], None]
    ]
    table = model.table_of(some)
    for predicate in model.leaves(column):
        assert kept(predicate, table) == wanted(predicate, some), predicate


@given(st.data(), model.some_columns)
def test_filters_keep_what_is_true(data: st.DataObject, columns: list[sql.ColumnPath]) -> None:
    some = data.draw(st.lists(model.rows(columns), max_size=8))
    table = model.table_of(some)
    for predicate in data.draw(st.lists(model.predicates(columns), min_size=1, max_size=8)):
        assert kept(predicate, table) == wanted(predicate, some), predicate


@given(st.data(), model.some_columns)
def test_pushing_not_down_keeps_rows(data: st.DataObject, columns: list[sql.ColumnPath]) -> None:
    predicate = data.draw(model.predicates(columns, others=(sql.Always(), sql.Unknown())))
    pushed = sql.push_down_not(predicate)
    for child in nodes(pushed):
        assert not isinstance(child, sql.Comparison) or child.op != "<=>"
        assert not isinstance(child, sql.Not) or isinstance(
            child.child, (sql.In, sql.IsNull, sql.StartsWith)
        )
    assert sql.columns_of(pushed) <= sql.columns_of(predicate)
    if sql.Unknown() not in nodes(predicate):
        some = data.draw(st.lists(model.rows(columns), max_size=8))
        assert wanted(pushed, some) == wanted(predicate, some)


def nodes(predicate: sql.Predicate) -> Iterator[sql.Predicate]:
    yield predicate
    match predicate:
        case sql.And(children) | sql.Or(children):
            for child in children:
                yield from nodes(child)
        case sql.Not(child):
            yield from nodes(child)


@pytest.mark.parametrize(
    "predicate",
    [
        sql.Unknown(),
        sql.Not(sql.Unknown()),
        sql.Not(sql.Never()),
        sql.Or((sql.Always(), sql.And((sql.Unknown(),)))),
        sql.Comparison(("long",), "=", "1"),
        sql.Comparison(("long",), "=", 1.5),
        sql.Comparison(("long",), "<", 2**63),
        sql.Comparison(("decimal(5,2)",), "=", Decimal("0.001")),
        sql.Comparison(("timestamp",), "=", NOON),
        sql.Comparison(("date",), "=", NOON),
        sql.Comparison(("s",), "=", 1),
        sql.In(("long",), (1, "a")),
        sql.Not(sql.In(("long",), (1, "a"))),
        sql.StartsWith(("binary",), "a"),
    ],
    ids=str,
)
def test_what_is_not_understood_has_no_filter(predicate: sql.Predicate) -> None:
    assert sql.to_arrow(predicate, model.SCHEMA) is None


def test_filters_know_columns_by_the_spelling_of_the_schema() -> None:
    table = pa.table({"Id": [1, 2]})
    schema = StructType((Field("Id", PrimitiveType("long")),))
    assert table.filter(sql.to_arrow(sql.Comparison(("ID",), ">", 1), schema)).num_rows == 1
    dotted = StructType((Field("s.x", PrimitiveType("long")),))  # no path
    assert parse_filters([("s.x", "=", 1)], dotted) == sql.Comparison(("s.x",), "=", 1)
    with pytest.raises(InvalidArgumentError, match="there is no column 'Ib'"):
        sql.to_arrow(sql.IsNull(("Ib",)), schema)


@pytest.mark.more
def test_thousands_of_conditions_make_a_filter() -> None:
    many = sql.Or(tuple(sql.Comparison(("long",), "=", number) for number in range(5_001)))
    table = pa.table({"long": [1, 5_000, 5_001]})
    assert table.filter(sql.to_arrow(many, model.SCHEMA)).num_rows == 2


C = sql.Comparison


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], sql.Always()),
        ([("long", "=", 1)], C(("long",), "=", 1)),
        ([("long", "==", 1)], C(("long",), "=", 1)),
        ([("LONG", "<", 1)], C(("long",), "<", 1)),
        (
            [("long", ">", 1), ("byte", "<=", 300)],
            sql.And((C(("long",), ">", 1), C(("byte",), "<=", 300))),
        ),
        (
            [[("long", ">", 1), ("long", "<", 5)], [("long", "=", None)]],
            sql.Or((sql.And((C(("long",), ">", 1), C(("long",), "<", 5))), sql.IsNull(("long",)))),
        ),
        ([[("long", "!=", None)]], sql.Not(sql.IsNull(("long",)))),
        ([("long", "in", [1, 2])], sql.In(("long",), (1, 2))),
        ([("long", "not in", (1, 2.0))], sql.Not(sql.In(("long",), (1, 2)))),
        ([("long", "in", {1})], sql.In(("long",), (1,))),
        ([("long", "=", np.int32(5))], C(("long",), "=", 5)),
        ([("long", "=", 5.0)], C(("long",), "=", 5)),
        ([("double", "=", 5)], C(("double",), "=", 5.0)),
        ([("float", "<", 0.1)], C(("float",), "<", 0.1)),
        ([("decimal(5,2)", "=", 5)], C(("decimal(5,2)",), "=", Decimal(5))),
        ([("date", "=", "2024-02-29")], C(("date",), "=", dt.date(2024, 2, 29))),
        ([("timestamp_ntz", "=", "2024-02-29 12:00:00.5")], C(("timestamp_ntz",), "=", NOON)),
        (
            [("timestamp_ntz", "=", dt.date(2024, 2, 29))],
            C(("timestamp_ntz",), "=", dt.datetime(2024, 2, 29)),  # noqa: DTZ001
        ),
        (
            [("timestamp", ">=", "2024-02-29T12:00:00.500Z")],
            C(("timestamp",), ">=", NOON.replace(tzinfo=model.UTC)),
        ),
        (
            [("timestamp", ">=", "2024-02-29T14:00:00.5+02:00")],
            C(("timestamp",), ">=", NOON.replace(tzinfo=model.UTC)),
        ),
        ([("s.x", "=", 1)], C(("s", "x"), "=", 1)),
        ([(("S", "X"), "=", 1)], C(("s", "x"), "=", 1)),
        ([("s", "=", None)], sql.IsNull(("s",))),
    ],
    ids=str,
)
def test_filters_are_read(filters: list[Any], expected: sql.Predicate) -> None:
    parsed = parse_filters(filters, model.SCHEMA)
    assert parsed == expected
    if isinstance(parsed, sql.Comparison) and isinstance(expected, sql.Comparison):
        assert type(parsed.value) is type(expected.value)


ONE = ("long", "=", 1)
MALFORMED: list[Any] = [ONE, [("long", "=")], [[]], [[ONE], ONE], "long = 1", [(5, "=", 1)]]
INCOMPARABLE = [
    *(("long", 2**63), ("double", 2**53 + 1), ("decimal(5,2)", Decimal("1.005"))),
    *(("date", "2024-02-29T00:00"), ("date", "yesterday")),
    ("timestamp", "2024-02-29T12:00:00.1234567Z"),
]


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([("lonk", "=", 1)], "no column 'lonk'.*\nHint: did you mean long"),
        ([("s.y", "=", 1)], "no column 'y'"),
        ([("long.x", "=", 1)], "column long is of type long: there is no 'x' in it"),
        ([("long", "=>", 1)], "no operator '=>'.*\nHint: did you mean [=>]+"),
        ([("long", "<=>", 1)], "no operator '<=>'"),
        ([("long", ["="], 1)], "no operator"),
        ([("long", "=", "1")], "column long of type int64 cannot be compared with '1'"),
        ([("long", "=", 1.5)], "cannot be compared with 1.5"),
        ([("long", "=", True)], "cannot be compared with True"),
        ([("boolean", "=", 1)], "cannot be compared with 1"),
        ([("decimal(5,2)", "=", 1.5)], "Hint: give a decimal.Decimal that fits"),
        ([("date", "=", "2024-02-30")], "cannot be compared with '2024-02-30'"),
        ([("timestamp", "=", "2024-02-29T12:00:00")], "Hint: give the time zone"),
        ([("timestamp", "=", dt.date(2024, 2, 29))], "Hint: give the time zone"),
        ([("timestamp_ntz", "=", "2024-02-29T12:00Z")], "Hint: the column has no time zone"),
        ([("s", "=", 1)], "cannot be compared with 1"),
        ([("long", "<", None)], "cannot be compared with None\nHint: ask for nulls by"),
        ([("long", "in", [1, None])], 'Hint: ask for nulls by \\("long", "=", None\\)'),
        ([("long", "in", 1)], "`in` on column long needs a list of values, got 1"),
        ([("string", "in", "abc")], "needs a list of values"),
        *((wrong, "malformed") for wrong in MALFORMED),
        *(([(name, "=", value)], "cannot be compared") for name, value in INCOMPARABLE),
        ([("string", "=", b"x" * 500)], r"b'x{70,}\.\.\.$"),
    ],
    ids=str,
)
def test_wrong_filters_are_refused(filters: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(InvalidArgumentError, match=message):
        parse_filters(filters, model.SCHEMA)


def test_lists_can_be_asked_for_nulls_only() -> None:
    schema = StructType((Field("tags", ArrayType(PrimitiveType("string"))),))
    table = pa.table({"tags": [["a"], None, []]})
    assert (
        table.filter(sql.to_arrow(parse_filters([("tags", "!=", None)], schema), schema)).num_rows
        == 2
    )
    assert sql.to_arrow(sql.Comparison(("tags",), "=", "a"), schema) is None
