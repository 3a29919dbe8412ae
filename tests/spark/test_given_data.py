"""Python values and columns of pandas as Arrow: nothing changes on the way; no Spark."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from delvec.errors import InvalidArgumentError
from delvec.spark import given_rows
from delvec.spark.given_data import as_array, as_table, changed_by_arrow, stored
from delvec.spark.given_keys import given_keys
from delvec.spark.given_rows import schema_of_arrow

DAY, LOCAL = date(2020, 1, 1), datetime(2020, 1, 1, 5)  # noqa: DTZ001
ZONED = LOCAL.replace(tzinfo=timezone(timedelta(hours=2)))
MIXED: dict[str, list[Any]] = {
    "a date and a time": [DAY, LOCAL],
    "a time and a date": [LOCAL, DAY],
    "with a zone and without": [ZONED, LOCAL],
    "without a zone and with": [LOCAL, None, ZONED],
    "a date and a number": [DAY, 5],
    "a time and a number": [LOCAL, 5],
    "a half and an integer": [np.float16(3.5), 1],
    "bytes and text": [b"a", "a"],
    "a boolean of numpy": [np.bool_(True), 1],
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_values_are_refused_as_keys_and_as_rows(name: str) -> None:
    pd = pytest.importorskip("pandas")
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
        with pytest.raises(InvalidArgumentError, match=r"column k .* and ") as caught:
            given_keys(None, keys, ["k"], "delete")  # type: ignore[arg-type]
        assert caught.value.hint
    with pytest.raises(InvalidArgumentError, match="column k has"):
        as_table(pd.DataFrame({"id": range(len(values))}, index=pd.Index(column, name="k")))


def test_values_of_one_kind_are_taken() -> None:
    pd = pytest.importorskip("pandas")
    for values in (
        [1, 2.5, np.float32(3), np.int8(1), None],
        [Decimal(1), 2],
        [LOCAL, pd.Timestamp(LOCAL)],
        [ZONED, ZONED.astimezone(timezone.utc)],
        [[1], (2,), np.array([3])],
        [],
    ):
        assert changed_by_arrow(values) is None
    missing = pd.Series(["a", float("nan"), None, pd.NaT], dtype=object)
    found = as_array(missing)
    assert found is not None
    assert pa.chunked_array(found).to_pylist() == ["a", None, None, None]


def test_nanoseconds_of_keys_are_refused() -> None:
    pd = pytest.importorskip("pandas")
    moment = pd.Timestamp("2020-01-01 00:00:00.000000999")
    column = pd.Series([moment]).astype("datetime64[ns]")
    for keys in ([moment], column.astype(object), column, pa.table({"K": pa.array(column)})):
        with pytest.raises(InvalidArgumentError, match=r"nanoseconds|would lose data") as caught:
            given_keys(None, keys, ["k"], "delete")  # type: ignore[arg-type]
        assert caught.value.hint


def test_floats_that_may_have_been_rounded_are_refused() -> None:
    for keys in (
        np.array([2050], np.float16),
        [np.float32(2**24 + 2), 1],
        [1.0, None, np.float32(2**24 + 2)],
    ):
        with pytest.raises(InvalidArgumentError, match="skips integers beyond") as caught:
            given_keys(None, keys, ["k"], "delete")  # type: ignore[arg-type]
        assert caught.value.hint


def test_ranges_of_too_many_keys_are_refused() -> None:
    for keys in (range(10**10), range(0, -(10**30), -3), range(2**63, 2**63 + 10**6)):
        with pytest.raises(InvalidArgumentError) as caught:
            given_keys(None, keys, ["k"], "delete")  # type: ignore[arg-type]
        assert caught.value.hint
    with pytest.raises(InvalidArgumentError, match="not a key of a, b"):
        given_keys(None, range(10**10), ["a", "b"], "delete")  # type: ignore[arg-type]


def test_levels_of_an_index_are_columns_if_their_names_are_free() -> None:
    pd = pytest.importorskip("pandas")
    index = pd.MultiIndex.from_tuples([(1, 2, "x"), (3, 4, "y")], names=["a", None, "c"])
    table = as_table(pd.DataFrame({"a": [7, 8]}, index=index))
    assert table is not None
    assert table.to_pydict() == {"a": [7, 8], "c": ["x", "y"]}
    zoned = pd.DatetimeIndex([LOCAL], name="t").tz_localize("Europe/Berlin")
    found = as_table(pd.DataFrame({"id": [1]}, index=zoned))
    assert found is not None
    assert (found.column_names, found.schema.field("t").type.tz) == (["id", "t"], "Europe/Berlin")


def test_extension_types_with_a_meaning_of_their_own_are_refused() -> None:
    pd = pytest.importorskip("pandas")
    table = as_table(pd.DataFrame({"p": pd.period_range("2026-01", periods=2, freq="M")}))
    assert table is not None
    for refused in (
        lambda: schema_of_arrow(table.schema),
        lambda: stored(table.column(0), "p"),
        lambda: given_keys(None, table, ["p"], "delete"),  # type: ignore[arg-type]
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
    table = as_table(data)
    assert table is not None
    [field] = given_rows._fields(table.schema)
    found = given_rows._converted(table.column(0), field, exact=True)
    return found.to_pylist(), schema_of_arrow(table.schema)[0].dataType.simpleString()


@pytest.mark.parametrize("kind", ["Categorical", "Enum"])
def test_categories_of_polars_are_strings(kind: str) -> None:
    pl = pytest.importorskip("polars")
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


def test_categories_of_pandas_are_what_they_stand_for() -> None:
    pd = pytest.importorskip("pandas")
    names = pd.DataFrame({"c": pd.Categorical(["b", None, "a"], ["a", "b", "z"], ordered=True)})
    assert spark_rows(names) == (["b", None, "a"], "string")
    assert spark_rows(pd.DataFrame({"c": pd.Categorical([2, None, 1])})) == ([2, None, 1], "bigint")


def test_runs_of_arrow_are_values() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["p", "q"]))
    assert spark_rows(pa.table({"c": runs})) == (["p", "p", "q"], "string")


def test_a_type_of_polars_that_arrow_lacks_is_refused() -> None:
    pl = pytest.importorskip("polars")
    with pytest.raises(InvalidArgumentError, match=r"(?s)cannot be read as Arrow.*cast the column"):
        as_table(pl.DataFrame({"c": pl.Series([1], dtype=pl.Int128)}))


def test_python_objects_of_polars_are_refused() -> None:
    """Arrow would get their addresses."""
    pl = pytest.importorskip("polars")
    column = pl.Series("o", [object(), object()], dtype=pl.Object)
    with pytest.raises(InvalidArgumentError, match="column of Python objects"):
        as_table(column.to_frame())
    with pytest.raises(InvalidArgumentError, match="column of Python objects"):
        as_array(column)
