"""Python values and columns of pandas as Arrow: nothing changes on the way; no Spark."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from delvec.errors import InvalidArgumentError
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
