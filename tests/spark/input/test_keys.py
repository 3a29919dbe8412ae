"""Keys and rows that Python brings: nothing changes on the way, or it is refused; no Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import types as spark_types

from delvec.errors import InvalidArgumentError
from delvec.spark.input import rows as given_rows
from delvec.spark.input.arrow import as_array, find_inexact, stored, to_arrow_table
from delvec.spark.input.key_values import KeyColumn, SparkColumn, arrow_type
from delvec.spark.input.keys import Keys, shape_keys, to_frame
from delvec.spark.input.rows import schema_of_arrow
from tests.iceberg.deletes.key_tables import column

OPAQUE = pa.opaque(pa.int64(), "x", "y")
LONGS = st.integers(-(2**63), 2**63 - 1)
BERLIN = timezone(timedelta(hours=2))
DAY, LOCAL = date(2020, 1, 1), datetime(2020, 1, 1, 5)  # noqa: DTZ001
NOON = datetime(2024, 5, 6, 12, 30, 0, 7)  # noqa: DTZ001
A, B = (
    KeyColumn(n, name, kind, required=False)
    for n, name, kind in ((1, "a", "int"), (2, "b", "string"))
)


def listed(keys: Any, kind: str = "long") -> list[Any]:  # noqa: ANN401
    """The keys of the column k."""
    found = Keys.of(keys, [column(kind)])
    assert found.table.column(0).type == arrow_type(kind)
    values: list[Any] = found.table.column(0).to_pylist()
    return values


def dictionary(values: list[Any], kind: pa.DataType) -> pa.DictionaryArray:
    places = pa.array(range(len(values)), pa.int8())
    return pa.DictionaryArray.from_arrays(places, pa.array(values).cast(kind))


def pairs(keys: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
    found = Keys.of(keys, [A, B])
    return [tuple(row.values()) for row in found.table.to_pylist()]


@given(st.lists(st.none() | LONGS))
def test_keys_are_distinct_and_sorted(values: list[int | None]) -> None:
    expected: list[int | None] = [None] if None in values else []
    expected += sorted({each for each in values if each is not None})
    assert listed(values) == expected
    assert listed(pa.array(values, pa.int64())) == expected
    assert Keys.of(values, [column()]).nulls == (None in values)


@given(LONGS, st.integers(-50, 50).filter(bool), st.integers(0, 40))
def test_ranges(start: int, step: int, count: int) -> None:
    keys = range(start, start + step * count, step)
    if not keys or -(2**63) <= keys[-1] < 2**63:
        assert listed(keys) == sorted(keys)
    else:
        with pytest.raises(InvalidArgumentError, match="is not a value of column k"):
            listed(keys)


@pytest.mark.parametrize(
    "keys",
    [
        [3, 1, 2, 1],
        {1, 2, 3},
        range(3, 0, -1),
        {1: "a", 2: "b", 3: "c"}.keys(),
        np.array([3, 1, 2], np.uint64),
        np.array([3, 1, 2], object),
        [np.int64(3), 1, Decimal(2)],
        pa.chunked_array([[3], [1, 2]]),
        pa.array([3, 1, 2]).dictionary_encode(),
        pa.array([Decimal(3), Decimal(1), Decimal(2)]),
        pa.table({"x": ["a"] * 3, "K": [3, 1, 2]}),
        pa.table({"k": [3, 1, 2]}).to_reader(),
        pa.array([{"k": 3}, {"k": 1}, {"k": 2}]),
        pc.run_end_encode(pa.array([3, 1, 2])),
        [{"k": 3}, {"k": 1}, {"k": 2}],
        [Row(k=3), Row(*[1]), [2]],
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_all_kinds(keys: Any) -> None:  # noqa: ANN401
    if isinstance(keys, pa.RecordBatchReader):
        keys = keys.read_all()
    assert listed(keys) == [1, 2, 3]
    shaped = shape_keys(keys, [SparkColumn("k", spark_types.LongType())])
    assert sorted(set(stored(shaped.column("k"), "k").to_pylist())) == [1, 2, 3]


def test_pandas(pd: Any) -> None:  # noqa: ANN401
    numbers = [3, 1, 2]
    for keys in (
        pd.Series(numbers),
        pd.Index(numbers),
        pd.Series(numbers, dtype="Int64"),
        pd.Series(numbers, dtype=object),
        pd.DataFrame({"k": numbers, "other": ["x"] * 3}),
    ):
        assert listed(keys) == [1, 2, 3]
    assert listed(pd.Series([1, None, 2], dtype="Int64")) == [None, 1, 2]
    with pytest.raises(InvalidArgumentError, match="keys are double"):
        listed(pd.Series([1, None, 2]))
    rows = pd.DataFrame({"a": [2, 1, 1], "b": [None, "y", "x"]})
    assert pairs(rows) == [(1, "x"), (1, "y"), (2, None)]
    noon = pd.Series([NOON])
    assert listed(noon, "timestamp") == [NOON]
    zoned = noon.dt.tz_localize("UTC")
    assert listed(zoned, "timestamptz") == [NOON.replace(tzinfo=timezone.utc)]
    assert listed(pd.Series(["a"]), "string") == ["a"]
    mixed = pd.Series([date(2024, 5, 6), NOON], dtype=object)
    for keys in (mixed, pd.DataFrame({"k": mixed})):
        with pytest.raises(InvalidArgumentError, match="column k"):
            listed(keys, "date")


def test_polars(pl: Any) -> None:  # noqa: ANN401
    for keys in (pl.Series([3, 1, 2]), pl.DataFrame({"K": [3, 1, 2]})):
        assert listed(keys) == [1, 2, 3]
    assert listed(pl.Series(["b", "a\0"], dtype=pl.Categorical), "string") == ["a\0", "b"]


def test_integers_of_pandas_beyond_64_bits_are_named(pd: Any) -> None:  # noqa: ANN401
    column = pd.Series([1, 2**63], dtype=object)
    with pytest.raises(InvalidArgumentError, match="9223372036854775808 is not a value"):
        listed(column)
    assert listed(column, "decimal(38, 0)") == [Decimal(1), Decimal(2**63)]
    with pytest.raises(InvalidArgumentError, match="cannot be read as Arrow"):
        listed(pd.DataFrame({"k": column}))


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_strings_of_numpy_are_not_cut_at_a_nul(kind: str) -> None:
    values = ["a", "a\0b"] if kind == "string" else [b"a", b"a\0b"]
    assert listed(np.array(values), kind) == values
    column = SparkColumn("k", spark_types.StringType())
    assert shape_keys(np.array(values), [column]).column(0).to_pylist() == values


def test_long_ranges_with_a_wide_step_have_all_their_keys() -> None:
    keys = range(-(2**62), -(2**62) + 65_536 * 2**40 + 1, 2**40)
    assert listed(keys) == list(keys)
    last = range(2**63 - 70_000, 2**63)
    assert listed(last) == list(last)
    with pytest.raises(InvalidArgumentError, match="no column of integers holds"):
        listed(range(2**63, 2**63 + 70_000))


def test_generators_no_keys_and_missing_values() -> None:
    assert listed(each for each in (2, 1)) == [1, 2]
    nothing: tuple[Any, ...] = ([], range(0), np.array([], int), pa.nulls(0))
    assert [listed(none) for none in nothing] == [[]] * 4
    assert listed(pa.nulls(2)) == [None]
    assert listed(np.ma.array([1, 2, 3], mask=[False, True, False])) == [None, 1, 3]


def test_composite() -> None:
    expected = [(1, "x"), (1, "y"), (2, None)]
    assert pairs([(2, None), (1, "y"), (1, "x"), (1, "y")]) == expected
    assert pairs([{"b": None, "a": 2}, {"a": 1, "b": "y"}, (1, "x")]) == expected
    assert pairs(pa.table({"b": ["y", None, "x"], "a": [1, 2, 1]})) == expected
    numbers = Keys.of(np.array([[2, 1], [1, 5]]), [A, KeyColumn(2, "b", "long", False)])
    assert numbers.table.to_pylist() == [{"a": 1, "b": 5}, {"a": 2, "b": 1}]
    assert Keys.of([(None, "x"), (1, "x")], [A, B]).nulls == 1


def test_one_column_for_a_composite_key_is_refused() -> None:
    for keys in ([1], pa.array([1]), np.array([1])):
        with pytest.raises(InvalidArgumentError, match=r"columns? a, b|expected a, b"):
            pairs(keys)


FIVE, MORNING = bytes(15) + b"\x05", (NOON - timedelta(hours=2)).replace(tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("boolean", [True, np.bool_(False)], [False, True]),
        ("int", [2**31 - 1, -(2**31)], [-(2**31), 2**31 - 1]),
        ("date", [DAY, np.datetime64("1960-01-02")], [date(1960, 1, 2), DAY]),
        ("time", [time(1, 2, 3, 4)], [time(1, 2, 3, 4)]),
        ("timestamp", [NOON, np.datetime64(NOON)], [NOON]),
        ("timestamptz", [NOON.replace(tzinfo=BERLIN), MORNING], [MORNING]),
        ("string", ["b", "", "zoë"], ["", "b", "zoë"]),
        ("uuid", [UUID(int=5), str(UUID(int=5)), FIVE], [FIVE]),
        ("fixed[2]", [b"ab", bytearray(b"aa")], [b"aa", b"ab"]),
        ("binary", [b"b", memoryview(b"a"), b""], [b"", b"a", b"b"]),
        ("decimal(5, 2)", [Decimal("1.5"), 2, Decimal("1.5000")], [Decimal("1.50"), Decimal(2)]),
        ("decimal(38,0)", [Decimal(10**38 - 1)], [Decimal(10**38 - 1)]),
        # Columns
        ("int", pa.array([5], pa.uint64()), [5]),
        ("date", pa.array([DAY], pa.date64()), [DAY]),
        ("time", pa.array([5], pa.time32("s")), [time(0, 0, 5)]),
        ("timestamp", pa.array([NOON], pa.timestamp("ns")), [NOON]),
        ("timestamp", np.array([NOON], "datetime64[us]"), [NOON]),
        ("string", pa.array(["a"], pa.large_string()), ["a"]),
        ("string", dictionary(["b", "a"], pa.string_view()), ["a", "b"]),
        ("binary", dictionary([b"b", b"a"], pa.binary_view()), [b"a", b"b"]),
        ("uuid", pa.array(["00000000-0000-0000-0000-000000000005"]), [FIVE]),
        ("uuid", pa.array([FIVE], pa.binary()), [FIVE]),
        ("binary", pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        ("decimal(5, 2)", pa.array([Decimal("1.5")]), [Decimal("1.50")]),
        ("decimal(5, 2)", pa.array([7]), [Decimal("7.00")]),
    ],
)
def test_values_become_those_of_the_column(kind: str, given: Any, expected: list[Any]) -> None:  # noqa: ANN401
    assert listed(given, kind) == expected
    if isinstance(given, list):
        assert listed([*given, None], kind) == [None, *expected]


def test_nanoseconds_stay_or_are_refused(pd: Any) -> None:  # noqa: ANN401
    moment = pd.Timestamp("2024-05-06T12:30:00.000007001")
    for value in (pd.NaT, moment):
        with pytest.raises(InvalidArgumentError, match="k"):
            Keys.of([value], [column("timestamp")])
    numbers = Keys.of([moment], [column("timestamp_ns")]).numbers
    assert numbers.tolist() == [moment.value]
    zoned = Keys.of([moment.tz_localize("UTC"), None], [column("timestamptz_ns")])
    assert zoned.numbers.tolist() == [moment.value]
    by_numpy = Keys.of(np.array([moment.value], "datetime64[ns]"), [column("timestamp_ns")])
    assert by_numpy.numbers.tolist() == [moment.value]


FLOATS = [1.5, 1.0, np.float64(1), float("nan"), float("inf"), 2.0**53 + 2, np.float32(2**24 + 2)]
UNFIT: dict[str, list[Any]] = {
    "int": [2**31],
    "long": [-(2**63) - 1, True, "1", Decimal("1.5"), *FLOATS],
    "boolean": [1],
    "date": [NOON, "2024-01-01"],
    "time": [time(1, tzinfo=timezone.utc)],
    "timestamp": [NOON.replace(tzinfo=BERLIN), date(2024, 1, 1)],
    "timestamptz": [NOON, np.datetime64(NOON)],
    "timestamp_ns": [datetime(1500, 1, 1)],  # noqa: DTZ001
    "string": [5, "\ud800"],
    "uuid": ["not one", b"short"],
    "fixed[2]": [b"abc"],
    "binary": ["text"],
    "decimal(5, 2)": [Decimal("1.234"), Decimal(1000), Decimal("1E+999999"), 1.5],
}


@pytest.mark.parametrize("kind", UNFIT)
def test_values_that_do_not_fit_are_named(kind: str) -> None:
    for value in UNFIT[kind]:
        with pytest.raises(InvalidArgumentError, match="column k") as error:
            listed([value], kind)
        assert repr(value)[:60] in str(error.value)


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("int", pa.array([1, 2**31, 5]), "2147483648 is not a value of column k, which is int"),
        ("long", np.array([1, 2**63], np.uint64), "9223372036854775808 is not"),
        ("long", np.array([1.0]), "the keys are double\nHint: convert them to int64 first; fl"),
        ("long", np.array([1], np.float32), "the keys are float"),
        ("long", np.array([1], np.float16), "the keys are halffloat"),
        ("int", pa.array([1.0, None]), "the keys are double"),
        ("long", pa.table({"k": [1.0, None]}), "unless they are of its type Int64"),
        ("date", np.array([1.0]), "the keys are double\nHint: convert them to date32"),
        ("long", pa.ExtensionArray.from_storage(OPAQUE, pa.array([5])), "opaque"),
        ("long", np.array([True]), "the keys are bool"),
        ("long", pa.array(["1"]), "the keys are string"),
        ("string", pa.array([1]), "the keys are int64"),
        ("timestamptz", pa.array([NOON]), "timestamptz takes values with a time zone"),
        ("timestamp", pa.array([NOON], pa.timestamp("us", "UTC")), "without a time zone"),
        ("timestamp", pa.array([1001], pa.timestamp("ns")), "1970-01-01 00:00:00.000001001 is not"),
        ("date", pa.array([NOON]), "the keys are timestamp"),
        ("decimal(5, 2)", pa.array([Decimal("1.234")]), "1.234 is not a value"),
        ("decimal(5, 2)", pa.array([1000]), "1000 is not a value"),
        ("fixed[2]", pa.array([b"ab", b"abc"]), "is not a value of column k, which is fixed"),
        ("long", np.array([1 + 2j]), "complex128"),
        ("long", "abc", "keys come in a collection, got str"),
        ("long", {"k": [1]}, "keys come in a collection, got dict"),
        ("long", None, "keys come in a collection, got NoneType"),
        ("long", [(1, 2)], "(1, 2) is not a key of the columns k"),
        ("long", [{"j": 1}], "a key has the columns j, expected k"),
        ("long", pa.table({"j": [1]}), "the keys have no column k"),
        ("long", pa.table([[1], [2]], ["K", "K"]), "more than one column k"),
        ("long", np.zeros((1, 2), int), "the keys have 2 columns, expected k"),
        ("long", np.zeros((1, 1, 1), int), "3 dimensions"),
        ("long", range(2**40), "too many for the driver"),
    ],
)
def test_other_keys_are_refused(kind: str, given: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(InvalidArgumentError) as error:
        listed(given, kind)
    assert message in str(error.value)


LONG, DOUBLE, DECIMAL = (
    spark_types.LongType(),
    spark_types.DoubleType(),
    spark_types.DecimalType(38, 0),
)


@pytest.mark.parametrize(
    ("kind", "keys", "expected"),
    [
        # Of one kind: as Arrow has them, for Spark to cast.
        (LONG, [1, None], pa.array([1, None])),
        (LONG, [1, 2.5], pa.array([1.0, 2.5])),
        (LONG, [Decimal("1.0")], pa.array([Decimal("1.0")])),
        (LONG, ["1"], pa.array(["1"])),
        (DOUBLE, [np.float32(2**24 + 2)], pa.array([2.0**24 + 2], pa.float32())),
        (DECIMAL, [1.5], pa.array([1.5])),
        (LONG, [], pa.nulls(0)),
        # Mixed, or too large for what Arrow takes them for: by the column's type.
        (LONG, [4, np.int8(5), Decimal(6)], pa.array([4, 5, 6])),
        (DECIMAL, [10**30], pa.array([10**30], pa.decimal128(38, 0))),
        (DOUBLE, [Decimal("1.5"), 0.5, np.float16(2)], pa.array([1.5, 0.5, 2.0])),
        (
            spark_types.TimestampNTZType(),
            [NOON, np.datetime64(NOON)],
            pa.array([NOON, NOON], pa.timestamp("us")),
        ),
    ],
)
def test_python_values_for_spark(kind: Any, keys: list[Any], expected: pa.Array) -> None:  # noqa: ANN401
    found = shape_keys(keys, [SparkColumn("k", kind)]).column(0)
    assert found.equals(pa.chunked_array([expected]))


def test_mixed_values_are_refused_for_spark() -> None:
    for kind, refused in (
        (LONG, ([1, 2**63], [1, "1"], [Decimal(1), 1.0])),
        (DOUBLE, ([Decimal("0.1"), 0.1], [Decimal("NaN")], [2**53 + 1, 0.5])),
        (DECIMAL, ([Decimal(1), 1.0], [10**38])),
        (spark_types.NullType(), ([1, "1"],)),
        (spark_types.TimestampType(), ([NOON, NOON.replace(tzinfo=BERLIN)],)),
    ):
        for keys in refused:
            with pytest.raises(InvalidArgumentError, match="is not a value of column k, which is"):
                shape_keys(keys, [SparkColumn("k", kind)])


def test_names_that_begin_with_a_dot_are_no_paths() -> None:
    columns = [replace(column("int"), name=name) for name in (".x", "x")]
    keys = Keys.of(pa.table({".x": [2, 1, 2], "x": [1, 2, 1]}), columns)
    assert keys.table.to_pylist() == [{".x": 1, "x": 2}, {".x": 2, "x": 1}]


# Rows, and columns of other libraries.
ZONED = LOCAL.replace(tzinfo=timezone(timedelta(hours=2)))
MIXED: dict[str, list[Any]] = {
    "a date and a time": [DAY, LOCAL],
    "with a zone and without": [ZONED, LOCAL],
    "without a zone and with": [LOCAL, None, ZONED],
    "a date and a number": [DAY, 5],
    "a half and an integer": [np.float16(3.5), 1],
    "bytes and text": [b"a", "a"],
    "a boolean of numpy": [np.bool_(True), 1],
    # Arrow takes the number 5 of the UUID, or so many microseconds or days.
    "a number and a UUID": [1, UUID(int=5)],
    "a time of day and a UUID": [time(1), UUID(int=5)],
}

MIXTURE = r"is not a value of column k|column k has .* and "
TYPES = (
    *(LONG, spark_types.BooleanType(), spark_types.DecimalType(9, 2), spark_types.StringType()),
    *(spark_types.BinaryType(), spark_types.DateType()),
    *(spark_types.TimestampType(), spark_types.TimestampNTZType()),
)


def delta_keys(keys: Any, kind: spark_types.DataType, *names: str) -> None:  # noqa: ANN401
    """Keys that are refused before Spark is asked."""
    columns = [SparkColumn(name, kind) for name in names or ("k",)]
    to_frame(None, keys, columns, "delete")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MIXED)
def test_mixed_values_are_refused_as_keys_and_as_rows(name: str, pd: Any) -> None:  # noqa: ANN401
    values = MIXED[name]
    objects = np.empty(len(values), object)
    objects[:] = values
    column = pd.Series(objects)
    rows = [(each,) for each in values]
    for keys in (values, objects, column, rows, pd.DataFrame({"k": column})):
        for kind in TYPES:
            with pytest.raises(InvalidArgumentError, match=MIXTURE):
                delta_keys(keys, kind)
    with pytest.raises(InvalidArgumentError, match="column k has"):
        to_arrow_table(pd.DataFrame({"id": range(len(values))}, index=pd.Index(column, name="k")))


def test_values_of_one_kind_are_taken(pd: Any) -> None:  # noqa: ANN401
    for values in (
        [1, 2.5, np.float32(3), np.int8(1), None],
        [Decimal(1), 2],
        [LOCAL, pd.Timestamp(LOCAL)],
        [ZONED, ZONED.astimezone(timezone.utc)],
        [[1], (2,), np.array([3])],
        [],
    ):
        assert find_inexact(values) is None
    assert find_inexact([time(1, tzinfo=timezone.utc)]) is not None
    missing = pd.Series(["a", float("nan"), None, pd.NaT], dtype=object)
    found = as_array(missing)
    assert found is not None
    assert pa.chunked_array(found).to_pylist() == ["a", None, None, None]


def test_nanoseconds_of_keys_are_refused(pd: Any) -> None:  # noqa: ANN401
    moment = pd.Timestamp("2020-01-01 00:00:00.000000999")
    column = pd.Series([moment]).astype("datetime64[ns]")
    for keys in ([moment], column.astype(object), column, pa.table({"K": pa.array(column)})):
        with pytest.raises(InvalidArgumentError, match=r"00000999'\) is not a|would lose data"):
            delta_keys(keys, spark_types.TimestampNTZType())


def test_floats_that_may_have_been_rounded_are_refused() -> None:
    for kind in (LONG, spark_types.DoubleType()):
        for keys in (
            np.array([2050], np.float16),
            [np.float16(2050)],
            [np.float32(2**24 + 2), 1],
            [1.0, None, np.float32(2**24 + 2)],
        ):
            with pytest.raises(InvalidArgumentError, match="is not a value of column k, which is"):
                delta_keys(keys, kind)
    with pytest.raises(InvalidArgumentError, match="halffloat skips integers") as caught:
        delta_keys(np.array([2050], np.float16), spark_types.DoubleType())
    assert caught.value.hint


def test_ranges_of_too_many_keys_are_refused() -> None:
    for keys in (range(10**10), range(0, -(10**30), -3), range(2**63, 2**63 + 10**6)):
        with pytest.raises(InvalidArgumentError) as caught:
            delta_keys(keys, LONG)
        assert caught.value.hint
    with pytest.raises(InvalidArgumentError, match="the keys have 1 column, expected a, b"):
        delta_keys(range(10**6), LONG, "a", "b")


def test_levels_of_an_index_are_columns_if_their_names_are_free(pd: Any) -> None:  # noqa: ANN401
    index = pd.MultiIndex.from_tuples([(1, 2, "x"), (3, 4, "y")], names=["a", None, "c"])
    table = to_arrow_table(pd.DataFrame({"a": [7, 8]}, index=index))
    assert table is not None
    assert table.to_pydict() == {"a": [7, 8], "c": ["x", "y"]}
    zoned = pd.DatetimeIndex([LOCAL], name="t").tz_localize("Europe/Berlin")
    found = to_arrow_table(pd.DataFrame({"id": [1]}, index=zoned))
    assert found is not None
    assert (found.column_names, found.schema.field("t").type.tz) == (["id", "t"], "Europe/Berlin")


def test_extension_types_with_a_meaning_of_their_own_are_refused(pd: Any) -> None:  # noqa: ANN401
    table = to_arrow_table(pd.DataFrame({"p": pd.period_range("2026-01", periods=2, freq="M")}))
    assert table is not None
    for refused in (
        lambda: schema_of_arrow(table.schema),
        lambda: stored(table.column(0), "p"),
        lambda: delta_keys(table, LONG, "p"),
    ):
        with pytest.raises(
            InvalidArgumentError, match=r"column p is .*period.* in Arrow"
        ) as caught:
            refused()
        assert caught.value.hint
    flags = pa.chunked_array(
        [pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8()))]
    )
    assert stored(flags, "b").to_pylist() == [True, None]


def spark_rows(data: Any) -> tuple[list[Any], str]:  # noqa: ANN401
    """The values of the only column as Spark gets them, and its type there."""
    table = to_arrow_table(data)
    assert table is not None
    [field] = given_rows._fields(table.schema)
    found = given_rows._converted(table.column(0), field, exact=True)
    return found.to_pylist(), schema_of_arrow(table.schema)[0].dataType.simpleString()


@pytest.mark.parametrize("kind", ["Categorical", "Enum"])
def test_categories_of_polars_are_strings(kind: str, pl: Any) -> None:  # noqa: ANN401
    of = pl.Enum(["x", "y", "z"]) if kind == "Enum" else pl.Categorical
    values = pl.Series("c", ["y", None, "x"], dtype=of)
    lists = pl.Series([["x"], None, ["y", None]], dtype=pl.List(of))
    structs = pl.DataFrame({"c": [{"a": "z"}]}, schema={"c": pl.Struct({"a": of})})
    for rows, expected, wanted in (
        (pl.DataFrame(values), ["y", None, "x"], "string"),
        (pl.LazyFrame(values), ["y", None, "x"], "string"),
        (pl.DataFrame(values[:0]), [], "string"),
        (pl.DataFrame({"c": lists}), [["x"], None, ["y", None]], "array<string>"),
        (structs, [{"a": "z"}], "struct<a:string>"),
    ):
        assert spark_rows(rows) == (expected, wanted)
    assert pa.chunked_array(as_array(values)).to_pylist() == ["y", None, "x"]


def test_categories_of_pandas_and_runs_of_arrow_are_what_they_stand_for(pd: Any) -> None:  # noqa: ANN401
    names = pd.DataFrame({"c": pd.Categorical(["b", None, "a"], ["a", "b", "z"], ordered=True)})
    assert spark_rows(names) == (["b", None, "a"], "string")
    assert spark_rows(pd.DataFrame({"c": pd.Categorical([2, None, 1])})) == ([2, None, 1], "bigint")
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["p", "q"]))
    assert spark_rows(pa.table({"c": runs})) == (["p", "p", "q"], "string")


def test_columns_of_polars_that_arrow_lacks_are_refused(pl: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidArgumentError, match=r"(?s)cannot be read as Arrow.*cast the column"):
        to_arrow_table(pl.DataFrame({"c": pl.Series([1], dtype=pl.Int128)}))
    column = pl.Series("o", [object(), object()], dtype=pl.Object)  # of which it gets addresses
    with pytest.raises(InvalidArgumentError, match="column of Python objects"):
        to_arrow_table(column.to_frame())
    with pytest.raises(InvalidArgumentError, match="column of Python objects"):
        as_array(column)
