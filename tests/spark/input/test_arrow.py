"""Python values and columns of pandas as Arrow: nothing changes on the way; no Spark."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types

from delvec.errors import InvalidArgumentError
from delvec.spark.input import rows as given_rows
from delvec.spark.input.arrow import as_array, find_inexact, stored, to_arrow_table
from delvec.spark.input.key_values import SparkColumn
from delvec.spark.input.keys import to_frame
from delvec.spark.input.rows import schema_of_arrow

DAY, LOCAL = date(2020, 1, 1), datetime(2020, 1, 1, 5)  # noqa: DTZ001
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

TYPES = (
    spark_types.BooleanType(),
    spark_types.LongType(),
    spark_types.DecimalType(9, 2),
    spark_types.StringType(),
    spark_types.BinaryType(),
    spark_types.DateType(),
    spark_types.TimestampType(),
    spark_types.TimestampNTZType(),
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
    for keys in (
        values,
        objects,
        column,
        [(each,) for each in values],
        pd.DataFrame({"k": column}),
    ):
        for kind in TYPES:
            with pytest.raises(
                InvalidArgumentError, match=r"is not a value of column k|column k has .* and "
            ):
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
    for kind in (spark_types.LongType(), spark_types.DoubleType()):
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
            delta_keys(keys, spark_types.LongType())
        assert caught.value.hint
    with pytest.raises(InvalidArgumentError, match="the keys have 1 column, expected a, b"):
        delta_keys(range(10**6), spark_types.LongType(), "a", "b")


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
        lambda: delta_keys(table, spark_types.LongType(), "p"),
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
    assert spark_rows(pl.DataFrame(values)) == (["y", None, "x"], "string")
    assert spark_rows(pl.LazyFrame(values)) == (["y", None, "x"], "string")
    assert spark_rows(pl.DataFrame(values[:0])) == ([], "string")
    lists = pl.DataFrame({"c": pl.Series([["x"], None, ["y", None]], dtype=pl.List(of))})
    assert spark_rows(lists) == ([["x"], None, ["y", None]], "array<string>")
    structs = pl.DataFrame({"c": [{"a": "z"}]}, schema={"c": pl.Struct({"a": of})})
    assert spark_rows(structs) == ([{"a": "z"}], "struct<a:string>")
    keys = as_array(values)
    assert isinstance(keys, pa.ChunkedArray)
    assert keys.to_pylist() == ["y", None, "x"]


def test_categories_of_pandas_are_what_they_stand_for(pd: Any) -> None:  # noqa: ANN401
    names = pd.DataFrame({"c": pd.Categorical(["b", None, "a"], ["a", "b", "z"], ordered=True)})
    assert spark_rows(names) == (["b", None, "a"], "string")
    assert spark_rows(pd.DataFrame({"c": pd.Categorical([2, None, 1])})) == ([2, None, 1], "bigint")


def test_runs_of_arrow_are_values() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["p", "q"]))
    assert spark_rows(pa.table({"c": runs})) == (["p", "p", "q"], "string")


def test_a_type_of_polars_that_arrow_lacks_is_refused(pl: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidArgumentError, match=r"(?s)cannot be read as Arrow.*cast the column"):
        to_arrow_table(pl.DataFrame({"c": pl.Series([1], dtype=pl.Int128)}))


def test_python_objects_of_polars_are_refused(pl: Any) -> None:  # noqa: ANN401
    """Arrow would get their addresses."""
    column = pl.Series("o", [object(), object()], dtype=pl.Object)
    with pytest.raises(InvalidArgumentError, match="column of Python objects"):
        to_arrow_table(column.to_frame())
    with pytest.raises(InvalidArgumentError, match="column of Python objects"):
        as_array(column)
