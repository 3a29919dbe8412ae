from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import types as spark_types

from delvec.errors import InvalidArgumentError
from delvec.spark.input.arrow import stored
from delvec.spark.input.key_values import KeyColumn, SparkColumn, arrow_type
from delvec.spark.input.keys import Keys, shape_keys
from tests.iceberg.deletes.key_tables import column

LONGS = st.integers(-(2**63), 2**63 - 1)
BERLIN = timezone(timedelta(hours=2))
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


class TestCollections:
    @given(st.lists(st.none() | LONGS))
    def test_keys_are_distinct_and_sorted(self, values: list[int | None]) -> None:
        expected: list[int | None] = [None] if None in values else []
        expected += sorted({each for each in values if each is not None})
        assert listed(values) == expected
        assert listed(pa.array(values, pa.int64())) == expected
        assert Keys.of(values, [column()]).nulls == (None in values)

    @given(LONGS, st.integers(-50, 50).filter(bool), st.integers(0, 40))
    def test_ranges(self, start: int, step: int, count: int) -> None:
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
    def test_all_kinds(self, keys: Any) -> None:  # noqa: ANN401
        if isinstance(keys, pa.RecordBatchReader):
            keys = keys.read_all()
        assert listed(keys) == [1, 2, 3]
        shaped = shape_keys(keys, [SparkColumn("k", spark_types.LongType())])
        assert sorted(set(stored(shaped.column("k"), "k").to_pylist())) == [1, 2, 3]

    def test_pandas(self, pd: Any) -> None:  # noqa: ANN401
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

    def test_pandas_columns_of_mixed_times(self, pd: Any) -> None:  # noqa: ANN401
        mixed = pd.Series([date(2024, 5, 6), NOON], dtype=object)
        for keys in (mixed, pd.DataFrame({"k": mixed})):
            with pytest.raises(InvalidArgumentError, match="column k"):
                listed(keys, "date")
        with pytest.raises(InvalidArgumentError, match=r"pandas\.period"):
            listed(pd.Series(pd.period_range("2026-01", periods=1, freq="M")))

    def test_polars(self, pl: Any) -> None:  # noqa: ANN401
        for keys in (pl.Series([3, 1, 2]), pl.DataFrame({"K": [3, 1, 2]})):
            assert listed(keys) == [1, 2, 3]
        assert listed(pl.Series(["b", "a\0"], dtype=pl.Categorical), "string") == ["a\0", "b"]

    def test_integers_of_pandas_beyond_64_bits_are_named(self, pd: Any) -> None:  # noqa: ANN401
        column = pd.Series([1, 2**63], dtype=object)
        with pytest.raises(InvalidArgumentError, match="9223372036854775808 is not a value"):
            listed(column)
        assert listed(column, "decimal(38, 0)") == [Decimal(1), Decimal(2**63)]
        with pytest.raises(InvalidArgumentError, match="cannot be read as Arrow"):
            listed(pd.DataFrame({"k": column}))

    @pytest.mark.parametrize("kind", ["string", "binary"])
    def test_strings_of_numpy_are_not_cut_at_a_nul(self, kind: str) -> None:
        values = ["a", "a\0b"] if kind == "string" else [b"a", b"a\0b"]
        assert listed(np.array(values), kind) == values
        column = SparkColumn("k", spark_types.StringType())
        assert shape_keys(np.array(values), [column]).column(0).to_pylist() == values

    def test_long_ranges_with_a_wide_step_have_all_their_keys(self) -> None:
        keys = range(-(2**62), -(2**62) + 65_536 * 2**40 + 1, 2**40)
        assert listed(keys) == list(keys)
        last = range(2**63 - 70_000, 2**63)
        assert listed(last) == list(last)
        with pytest.raises(InvalidArgumentError, match="no column of integers holds"):
            listed(range(2**63, 2**63 + 70_000))

    def test_generators_no_keys_and_missing_values(self) -> None:
        assert listed(each for each in (2, 1)) == [1, 2]
        nothing: tuple[Any, ...] = ([], range(0), np.array([], int), pa.nulls(0))
        for none in nothing:
            assert listed(none) == []
        assert listed(pa.nulls(2)) == [None]
        assert listed(np.ma.array([1, 2, 3], mask=[False, True, False])) == [None, 1, 3]

    def test_composite(self) -> None:
        expected = [(1, "x"), (1, "y"), (2, None)]
        assert pairs([(2, None), (1, "y"), (1, "x"), (1, "y")]) == expected
        assert pairs([{"b": None, "a": 2}, {"a": 1, "b": "y"}, (1, "x")]) == expected
        assert pairs(pa.table({"b": ["y", None, "x"], "a": [1, 2, 1]})) == expected
        numbers = Keys.of(np.array([[2, 1], [1, 5]]), [A, KeyColumn(2, "b", "long", False)])
        assert numbers.table.to_pylist() == [{"a": 1, "b": 5}, {"a": 2, "b": 1}]
        assert Keys.of([(None, "x"), (1, "x")], [A, B]).nulls == 1

    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            ("abc", "keys come in a collection, got str"),
            ({"k": [1]}, "keys come in a collection, got dict"),
            (None, "keys come in a collection, got NoneType"),
            ([(1, 2)], r"\(1, 2\) is not a key of the columns k"),
            ([{"j": 1}], "a key has the columns j, expected k"),
            (pa.table({"j": [1]}), "the keys have no column k"),
            (pa.table([[1], [2]], ["K", "K"]), "more than one column k"),
            (np.zeros((1, 2), int), "the keys have 2 columns, expected k"),
            (np.zeros((1, 1, 1), int), "3 dimensions"),
            (range(2**40), "too many for the driver"),
        ],
    )
    def test_other_things_are_refused(self, keys: Any, message: str) -> None:  # noqa: ANN401
        with pytest.raises(InvalidArgumentError, match=message):
            listed(keys)

    def test_one_column_for_a_composite_key_is_refused(self) -> None:
        for keys in ([1], pa.array([1]), np.array([1])):
            with pytest.raises(InvalidArgumentError, match=r"columns? a, b|expected a, b"):
                pairs(keys)


class TestValues:
    @pytest.mark.parametrize(
        ("kind", "given", "expected"),
        [
            ("boolean", [True, np.bool_(False)], [False, True]),
            ("int", [2**31 - 1, -(2**31)], [-(2**31), 2**31 - 1]),
            (
                "date",
                [date(2024, 1, 1), np.datetime64("1960-01-02")],
                [date(1960, 1, 2), date(2024, 1, 1)],
            ),
            ("time", [time(1, 2, 3, 4)], [time(1, 2, 3, 4)]),
            ("timestamp", [NOON, np.datetime64(NOON)], [NOON]),
            (
                "timestamptz",
                [
                    NOON.replace(tzinfo=BERLIN),
                    (NOON - timedelta(hours=2)).replace(tzinfo=timezone.utc),
                ],
                [(NOON - timedelta(hours=2)).replace(tzinfo=timezone.utc)],
            ),
            ("string", ["b", "", "zoë"], ["", "b", "zoë"]),
            (
                "uuid",
                [uuid.UUID(int=5), str(uuid.UUID(int=5)), bytes(15) + b"\x05"],
                [bytes(15) + b"\x05"],
            ),
            ("fixed[2]", [b"ab", bytearray(b"aa")], [b"aa", b"ab"]),
            ("binary", [b"b", memoryview(b"a"), b""], [b"", b"a", b"b"]),
            (
                "decimal(5, 2)",
                [Decimal("1.50"), 2, Decimal("1.5000")],
                [Decimal("1.50"), Decimal("2.00")],
            ),
            ("decimal(38,0)", [Decimal(10**38 - 1)], [Decimal(10**38 - 1)]),
        ],
    )
    def test_python_values(self, kind: str, given: list[Any], expected: list[Any]) -> None:
        assert listed(given, kind) == expected
        assert listed([*given, None], kind) == [None, *expected]

    @pytest.mark.parametrize(
        ("kind", "given", "expected"),
        [
            ("int", pa.array([5], pa.uint64()), [5]),
            ("date", pa.array([date(2024, 1, 1)], pa.date64()), [date(2024, 1, 1)]),
            ("time", pa.array([5], pa.time32("s")), [time(0, 0, 5)]),
            ("timestamp", pa.array([NOON], pa.timestamp("ns")), [NOON]),
            ("timestamp", np.array([NOON], "datetime64[us]"), [NOON]),
            ("string", pa.array(["a"], pa.large_string()), ["a"]),
            ("string", dictionary(["b", "a"], pa.string_view()), ["a", "b"]),
            ("binary", dictionary([b"b", b"a"], pa.binary_view()), [b"a", b"b"]),
            ("uuid", pa.array(["00000000-0000-0000-0000-000000000005"]), [bytes(15) + b"\x05"]),
            ("uuid", pa.array([bytes(15) + b"\x05"], pa.binary()), [bytes(15) + b"\x05"]),
            ("binary", pa.array([b"ab"], pa.binary(2)), [b"ab"]),
            ("decimal(5, 2)", pa.array([Decimal("1.5")]), [Decimal("1.50")]),
            ("decimal(5, 2)", pa.array([7]), [Decimal("7.00")]),
        ],
    )
    def test_columns(self, kind: str, given: Any, expected: list[Any]) -> None:  # noqa: ANN401
        assert listed(given, kind) == expected

    def test_nanoseconds_stay_or_are_refused(self, pd: Any) -> None:  # noqa: ANN401
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

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            ("int", 2**31),
            ("long", -(2**63) - 1),
            ("long", True),
            ("long", "1"),
            ("long", 1.5),
            ("long", 1.0),
            ("long", np.float64(1)),
            ("long", float("nan")),
            ("long", float("inf")),
            ("long", float(2**53 + 2)),
            ("long", np.float32(2**24 + 2)),
            ("long", Decimal("1.5")),
            ("boolean", 1),
            ("date", NOON),
            ("date", "2024-01-01"),
            ("time", time(1, tzinfo=timezone.utc)),
            ("timestamp", NOON.replace(tzinfo=BERLIN)),
            ("timestamptz", NOON),
            ("timestamptz", np.datetime64(NOON)),
            ("timestamp", date(2024, 1, 1)),
            ("timestamp_ns", datetime(1500, 1, 1)),  # noqa: DTZ001
            ("string", 5),
            ("string", "\ud800"),
            ("uuid", "not one"),
            ("uuid", b"short"),
            ("fixed[2]", b"abc"),
            ("binary", "text"),
            ("decimal(5, 2)", Decimal("1.234")),
            ("decimal(5, 2)", Decimal(1000)),
            ("decimal(5, 2)", Decimal("1E+999999")),
            ("decimal(5, 2)", 1.5),
        ],
    )
    def test_values_that_do_not_fit_are_named(self, kind: str, value: Any) -> None:  # noqa: ANN401
        with pytest.raises(InvalidArgumentError) as error:
            listed([value], kind)
        assert repr(value)[:60] in str(error.value)
        assert "column k" in str(error.value)

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
            (
                "long",
                pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "x", "y"), pa.array([5])),
                "opaque",
            ),
            ("long", np.array([True]), "the keys are bool"),
            ("long", pa.array(["1"]), "the keys are string"),
            ("string", pa.array([1]), "the keys are int64"),
            ("timestamptz", pa.array([NOON]), "timestamptz takes values with a time zone"),
            ("timestamp", pa.array([NOON], pa.timestamp("us", "UTC")), "without a time zone"),
            (
                "timestamp",
                pa.array([1001], pa.timestamp("ns")),
                "1970-01-01 00:00:00.000001001 is not",
            ),
            ("date", pa.array([NOON]), "the keys are timestamp"),
            ("decimal(5, 2)", pa.array([Decimal("1.234")]), "1.234 is not a value"),
            ("decimal(5, 2)", pa.array([1000]), "1000 is not a value"),
            ("fixed[2]", pa.array([b"ab", b"abc"]), "is not a value of column k, which is fixed"),
            ("long", np.array([1 + 2j]), "complex128"),
        ],
    )
    def test_columns_that_do_not_fit(self, kind: str, given: Any, message: str) -> None:  # noqa: ANN401
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


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (LONG, [1, 2**63]),
        (LONG, [1, "1"]),
        (LONG, [Decimal(1), 1.0]),
        (DOUBLE, [Decimal("0.1"), 0.1]),
        (DOUBLE, [Decimal("NaN")]),
        (DOUBLE, [2**53 + 1, 0.5]),
        (DECIMAL, [Decimal(1), 1.0]),
        (DECIMAL, [10**38]),
        (spark_types.NullType(), [1, "1"]),
        (spark_types.TimestampType(), [NOON, NOON.replace(tzinfo=BERLIN)]),
    ],
)
def test_mixed_values_are_refused_for_spark(kind: Any, keys: list[Any]) -> None:  # noqa: ANN401
    with pytest.raises(InvalidArgumentError, match="is not a value of column k, which is"):
        shape_keys(keys, [SparkColumn("k", kind)])


def test_names_that_begin_with_a_dot_are_no_paths() -> None:
    columns = [replace(column("int"), name=name) for name in (".x", "x")]
    keys = Keys.of(pa.table({".x": [2, 1, 2], "x": [1, 2, 1]}), columns)
    assert keys.table.to_pylist() == [{".x": 1, "x": 2}, {".x": 2, "x": 1}]
