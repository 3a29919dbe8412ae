from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec.delta.schema.types import PrimitiveType, arrow_type
from delvec.delta.skipping.data_skipping import ColumnBounds, may_match, must_match
from delvec.delta.skipping.predicate import (
    Always,
    And,
    ColumnPath,
    Comparison,
    In,
    IsNull,
    Never,
    Not,
    Or,
    Predicate,
    StartsWith,
    Unknown,
)
from tests.delta.skipping import predicate_model as model

A = ("a",)
OTHERS = (Always(), Never(), Unknown())


def is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


@st.composite
def limits(draw: st.DrawFn, kind: str, present: list[Any]) -> tuple[Any, Any]:
    """A minimum and a maximum as some writer may note them: exact, wider, NaN or none."""
    numbers = [value for value in present if not is_nan(value)]
    if not numbers:
        either = st.none() | (st.just(model.NAN) if present else st.nothing())
        return draw(either), draw(either)
    if len(numbers) < len(present) and draw(st.booleans()):
        low, high = draw(
            st.sampled_from(
                [(model.NAN, model.NAN), (numbers[0], model.NAN), (model.NAN, numbers[0])]
            )
        )
        return low, high
    low, high = min(numbers, key=model.order), max(numbers, key=model.order)
    pool = [value for value in model.VALUES[kind] if not is_nan(value)]
    wider_low = [value for value in pool if model.order(value) <= model.order(low)]
    wider_high = [value for value in pool if model.order(value) >= model.order(high)]
    return (
        draw(st.just(low) | st.sampled_from(wider_low) | st.none()),
        draw(st.just(high) | st.sampled_from(wider_high) | st.none()),
    )


@st.composite
def bounds_of_column(
    draw: st.DrawFn, column: ColumnPath, files: Sequence[Sequence[model.Row]]
) -> ColumnBounds | None:
    if draw(st.integers(0, 9)) == 0:
        return None
    kind = model.KINDS[column]
    found: list[tuple[Any, Any, int | None, int | None]] = []
    for file in files:
        present = [row[column] for row in file if row[column] is not None]
        nulls, count = len(file) - len(present), len(file)
        trusted = st.sampled_from([nulls, None]) if nulls in (0, count) else st.none()
        low, high = draw(limits(kind, present))
        found.append((low, high, draw(trusted), draw(st.sampled_from([count, count, None]))))
    lows, highs, nulls_of, counts = zip(*found, strict=True)
    arrow = arrow_type(PrimitiveType(kind))
    whole = ColumnBounds(
        pa.array(lows, arrow),
        pa.array(highs, arrow),
        pa.array(nulls_of, pa.int64()),
        pa.array(counts, pa.int64()),
    )
    dropped = draw(st.sampled_from(["", "", "", "minimum", "maximum", "null_count", "row_count"]))
    return replace(whole, **{dropped: None}) if dropped else whole


def check(
    predicate: Predicate,
    files: Sequence[Sequence[model.Row]],
    bounds: Mapping[ColumnPath, ColumnBounds | None],
    *,
    of_never: model.Truth = False,
    of_unknown: model.Truth = None,
) -> None:
    may = may_match(predicate, bounds.__getitem__, len(files))
    must = must_match(predicate, bounds.__getitem__, len(files))
    assert may.shape == must.shape == (len(files),)
    assert may.dtype == must.dtype == np.bool_
    for number, file in enumerate(files):
        found = [
            model.truth(predicate, row, of_never=of_never, of_unknown=of_unknown) is True
            for row in file
        ]
        assert may[number] or not any(found), (predicate, file)
        assert all(found) or not must[number], (predicate, file)


@given(st.data(), model.some_columns)
def test_a_file_with_a_matching_row_is_kept_and_a_sure_file_matches_whole(
    data: st.DataObject, columns: list[ColumnPath]
) -> None:
    files = data.draw(st.lists(st.lists(model.rows(columns), max_size=4), min_size=1, max_size=6))
    bounds = {column: data.draw(bounds_of_column(column, files)) for column in columns}
    of_never = data.draw(st.sampled_from([False, None]))
    of_unknown = data.draw(st.sampled_from([True, False, None]))
    for predicate in data.draw(st.lists(model.predicates(columns, others=OTHERS), max_size=8)):
        check(predicate, files, bounds, of_never=of_never, of_unknown=of_unknown)


@pytest.mark.parametrize("column", model.KINDS, ids=".".join)
def test_every_condition_is_right_on_every_small_file(column: ColumnPath) -> None:
    kind = model.KINDS[column]
    pool = [None, *model.VALUES[kind]]
    contents = [[], *([value] for value in pool), *combinations(pool, 2), *combinations(pool, 3)]
    files = [[model.EMPTY | {column: value} for value in content] for content in contents]
    numbers = [
        [value for value in content if value is not None and not is_nan(value)]
        for content in contents
    ]
    arrow = arrow_type(PrimitiveType(kind))
    bounds = ColumnBounds(
        pa.array([min(each, key=model.order, default=None) for each in numbers], arrow),
        pa.array([max(each, key=model.order, default=None) for each in numbers], arrow),
        pa.array([list(content).count(None) for content in contents], pa.int64()),
        pa.array([len(content) for content in contents], pa.int64()),
    )
    for predicate in model.leaves(column):
        check(predicate, files, {column: bounds})


def exact(kind: pa.DataType, *files: Sequence[Any]) -> Callable[[ColumnPath], ColumnBounds]:
    """The best statistics that files of one column can have."""
    present = [[value for value in file if value is not None] for file in files]
    bounds = ColumnBounds(
        pa.array([min(file, key=model.order, default=None) for file in present], kind),
        pa.array([max(file, key=model.order, default=None) for file in present], kind),
        pa.array([list(file).count(None) for file in files], pa.int64()),
        pa.array([len(file) for file in files], pa.int64()),
    )
    return lambda _: bounds


def judged(
    predicate: Predicate, bounds: Callable[[ColumnPath], ColumnBounds], files: int
) -> tuple[list[int], list[int]]:
    """Return which files may match, and which must."""
    found = may_match(predicate, bounds, files), must_match(predicate, bounds, files)
    return found[0].astype(int).tolist(), found[1].astype(int).tolist()


SMALL, LARGE, NULLS, MIXED = (1, 3), (6, 9), (None, None), (3, None)


@pytest.mark.parametrize(
    ("predicate", "may", "must"),
    [
        # of the files                          SMALL, LARGE, NULLS, MIXED
        (Comparison(A, "=", 3), [1, 0, 0, 1], [0, 0, 0, 0]),
        (Comparison(A, "<=>", 3), [1, 0, 0, 1], [0, 0, 0, 0]),
        (Comparison(A, "!=", 3), [1, 1, 0, 0], [0, 1, 0, 0]),
        (Comparison(A, "<", 5), [1, 0, 0, 1], [1, 0, 0, 0]),
        (Comparison(A, "<=", 3), [1, 0, 0, 1], [1, 0, 0, 0]),
        (Comparison(A, ">", 5), [0, 1, 0, 0], [0, 1, 0, 0]),
        (Comparison(A, ">=", 6), [0, 1, 0, 0], [0, 1, 0, 0]),
        (Not(Comparison(A, "<", 5)), [0, 1, 0, 0], [0, 1, 0, 0]),
        (Not(Comparison(A, "!=", 3)), [1, 0, 0, 1], [0, 0, 0, 0]),
        (Not(Comparison(A, "<=>", 3)), [1, 1, 1, 1], [0, 1, 1, 0]),
        (In(A, (2, 7)), [1, 1, 0, 0], [0, 0, 0, 0]),
        (In(A, (0, 4, 5, 10)), [0, 0, 0, 0], [0, 0, 0, 0]),
        (In(A, (3, 300)), [1, 0, 0, 1], [0, 0, 0, 0]),
        (In(A, ()), [0, 0, 0, 0], [0, 0, 0, 0]),
        (Not(In(A, (3, 4))), [1, 1, 0, 0], [0, 1, 0, 0]),
        (Not(In(A, ())), [1, 1, 1, 1], [1, 1, 1, 1]),
        (IsNull(A), [0, 0, 1, 1], [0, 0, 1, 0]),
        (Not(IsNull(A)), [1, 1, 0, 1], [1, 1, 0, 0]),
        (And((Comparison(A, ">", 2), Comparison(A, "<", 6))), [1, 0, 0, 1], [0, 0, 0, 0]),
        (Or((Comparison(A, "<", 5), IsNull(A))), [1, 0, 1, 1], [1, 0, 1, 0]),
        (Not(Or((Comparison(A, "<", 5), IsNull(A)))), [0, 1, 0, 0], [0, 1, 0, 0]),
        (And((Unknown(), Comparison(A, ">", 5))), [0, 1, 0, 0], [0, 0, 0, 0]),
        (Or((Unknown(), Comparison(A, ">", 5))), [1, 1, 1, 1], [0, 1, 0, 0]),
        (Not(Unknown()), [1, 1, 1, 1], [0, 0, 0, 0]),
        (Not(Never()), [1, 1, 1, 1], [0, 0, 0, 0]),
        (Never(), [0, 0, 0, 0], [0, 0, 0, 0]),
        (Not(Always()), [0, 0, 0, 0], [0, 0, 0, 0]),
        (Always(), [1, 1, 1, 1], [1, 1, 1, 1]),
        (And(()), [1, 1, 1, 1], [1, 1, 1, 1]),
        (Or(()), [0, 0, 0, 0], [0, 0, 0, 0]),
        # Wider than the column, yet in order with it.
        (Comparison(A, "<", 300), [1, 1, 0, 1], [1, 1, 0, 0]),
        (Comparison(A, "=", 300), [0, 0, 0, 0], [0, 0, 0, 0]),
        # Not of the column's type: nothing is known but that a null is no match.
        (Comparison(A, "=", 2**70), [1, 1, 0, 1], [0, 0, 0, 0]),
        (Comparison(A, "=", "3"), [1, 1, 0, 1], [0, 0, 0, 0]),
        (Comparison(A, "=", 1.5), [1, 1, 0, 1], [0, 0, 0, 0]),
        (Comparison(A, "=", True), [1, 1, 0, 1], [0, 0, 0, 0]),
        (In(A, (100, "3")), [1, 1, 0, 1], [0, 0, 0, 0]),
        (StartsWith(A, "3"), [1, 1, 0, 1], [0, 0, 0, 0]),
    ],
    ids=str,
)
def test_integers_are_skipped(predicate: Predicate, may: list[int], must: list[int]) -> None:
    assert judged(predicate, exact(pa.int8(), SMALL, LARGE, NULLS, MIXED), 4) == (may, must)


@pytest.mark.parametrize(
    ("predicate", "may", "must"),
    [
        # of files with bounds                1.0-3.0  6.0-9.0  NaN-NaN
        (Comparison(A, "<", 5.0), [1, 0, 1], [0, 0, 0]),
        (Comparison(A, "<=", 5.0), [1, 0, 1], [0, 0, 0]),
        (Comparison(A, ">", 5.0), [1, 1, 1], [0, 1, 0]),
        (Comparison(A, ">=", 5.0), [1, 1, 1], [0, 1, 0]),
        (Not(Comparison(A, "<", 5.0)), [1, 1, 1], [0, 1, 0]),
        (Comparison(A, "=", 2.0), [1, 0, 1], [0, 0, 0]),
        (Comparison(A, "!=", 5.0), [1, 1, 1], [1, 1, 0]),
        (In(A, (2.0, 5.0)), [1, 0, 1], [0, 0, 0]),
        (In(A, (2.0, model.NAN)), [1, 1, 1], [0, 0, 0]),
        (Not(In(A, (4.0, 5.0))), [1, 1, 1], [1, 1, 0]),
        (Comparison(A, "=", model.NAN), [1, 1, 1], [0, 0, 0]),
        (Comparison(A, ">=", model.NAN), [1, 1, 1], [0, 0, 0]),
        (Comparison(A, "<", model.NAN), [1, 1, 1], [0, 0, 0]),
        (Comparison(A, "<=", model.NAN), [1, 1, 1], [1, 1, 1]),
        (Comparison(A, ">", model.NAN), [0, 0, 0], [0, 0, 0]),
    ],
    ids=str,
)
def test_a_maximum_says_nothing_of_nan(
    predicate: Predicate, may: list[int], must: list[int]
) -> None:
    bounds = exact(pa.float64(), (1.0, 3.0), (6.0, 9.0), (model.NAN,))
    assert judged(predicate, bounds, 3) == (may, must)


def test_bounds_that_do_not_fit_each_other_are_worthless() -> None:
    unlike = ColumnBounds(pa.array([7]), pa.array(["a"]))
    assert may_match(Comparison(A, "=", 1), lambda _: unlike, 1).all()
    bounds = ColumnBounds(pa.array([6.0, model.NAN, None]), pa.array([model.NAN, 3.0, 3.0]))
    assert may_match(Comparison(A, "<", 5.0), lambda _: bounds, 3).all()
    assert may_match(Comparison(A, "=", 7.0), lambda _: bounds, 3).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("prefix", "may", "must"),
    [
        # of files with bounds        apple-apricot  é-ê      \uffff-\U0001f600
        ("ap", [1, 0, 0], [1, 0, 0]),
        ("app", [1, 0, 0], [0, 0, 0]),
        ("apz", [0, 0, 0], [0, 0, 0]),
        ("é", [0, 1, 0], [0, 0, 0]),
        ("\uffff", [0, 0, 1], [0, 0, 0]),
        ("\U0001f600", [0, 0, 1], [0, 0, 0]),
        ("", [1, 1, 1], [0, 0, 0]),
        ("\ud83d", [1, 1, 1], [0, 0, 0]),
    ],
)
def test_prefixes_are_found_by_their_bytes(prefix: str, may: list[int], must: list[int]) -> None:
    bounds = exact(pa.string(), ("apple", "apricot"), ("é", "ê"), ("\uffff", "\U0001f600"))
    predicate = StartsWith(A, prefix)
    assert judged(predicate, bounds, 3) == (may, must)
    assert may_match(Not(predicate), bounds, 3).tolist() == [not each for each in must]


@pytest.mark.parametrize(
    ("kind", "small", "large"),
    [
        (pa.string(), ("", "b"), ("c", "é")),
        (pa.binary(), (b"", b"b"), (b"c", b"\xff")),
        (pa.bool_(), (False,), (True,)),
        (pa.date32(), (dt.date(2020, 1, 1),), (dt.date(2024, 1, 1),)),
        (pa.timestamp("us"), (dt.datetime(2020, 1, 1),), (dt.datetime(2024, 1, 1),)),  # noqa: DTZ001
        (
            pa.timestamp("us", "UTC"),
            (dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc),),
            (dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc),),
        ),
        (pa.decimal128(38, 2), (Decimal("-1.00"),), (Decimal("1.25"),)),
        (pa.float32(), (0.5,), (1.5,)),
    ],
    ids=str,
)
def test_types_are_skipped(kind: pa.DataType, small: Sequence[Any], large: Sequence[Any]) -> None:
    bounds = exact(kind, small, large)
    middle = large[0]
    assert may_match(Comparison(A, "<", middle), bounds, 2).tolist() == [True, False]
    assert may_match(Comparison(A, "=", middle), bounds, 2).tolist() == [False, True]
    assert may_match(In(A, (middle, middle)), bounds, 2).tolist() == [False, True]
    assert must_match(Comparison(A, ">=", middle), bounds, 2).tolist() == [False, True]


@pytest.mark.parametrize(
    ("kind", "held", "value"),
    [
        (pa.decimal128(5, 2), Decimal("1.00"), Decimal("1.005")),
        (pa.decimal128(5, 2), Decimal("1.00"), Decimal(123456)),
        (pa.decimal128(5, 2), Decimal("1.00"), Decimal("NaN")),
        (pa.date32(), dt.date(2024, 1, 1), dt.datetime(2025, 1, 1)),  # noqa: DTZ001
        (
            pa.timestamp("us"),
            dt.datetime(2024, 1, 1),  # noqa: DTZ001
            dt.datetime(2025, 1, 1, tzinfo=dt.timezone.utc),
        ),
        (pa.timestamp("ns"), dt.datetime(2024, 1, 1), dt.datetime(2025, 1, 1)),  # noqa: DTZ001
        (pa.string(), "a", b"b"),
        (pa.binary(), b"a", "b"),
        (pa.string(), "a", "\ud800"),
        (pa.float64(), 1.0, 2**53 + 1),
        (pa.int64(), 1, None),
    ],
    ids=str,
)
def test_values_of_other_types_keep_all_files(kind: pa.DataType, held: Any, value: Any) -> None:  # noqa: ANN401
    bounds = exact(kind, (held,))
    for predicate in (Comparison(A, "=", value), Comparison(A, "<", value), In(A, (value,))):
        for each in (predicate, Not(predicate)):
            assert may_match(each, bounds, 1).tolist() == [True]
            assert must_match(each, bounds, 1).tolist() == [False]


def test_a_column_is_asked_for_once_and_need_not_be_known() -> None:
    asked = []

    def bounds(column: ColumnPath) -> ColumnBounds | None:
        asked.append(column)
        return None

    assert may_match(And((Comparison(A, "<", 1), Comparison(A, ">", 1))), bounds, 2).all()
    assert asked == [A]
    assert not must_match(Comparison(A, "<", 1), bounds, 2).any()
    assert may_match(Always(), bounds, 0).tolist() == []


def test_a_long_list_is_exact_on_many_files() -> None:
    low = np.arange(0, 2_000_000, 20)
    bounds = ColumnBounds(pa.array(low), pa.array(low + 4))
    wanted = (*range(7, 200_000, 20), 123_456 * 20 % 2_000_000)
    found = may_match(In(A, wanted), lambda _: bounds, len(low))
    assert np.flatnonzero(found).tolist() == [123_456 % 100_000]
