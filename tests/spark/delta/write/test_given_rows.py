"""Rows of pandas, polars, DuckDB and Arrow as rows to be written; delta-spark reads them."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.errors import InvalidArgumentError
from delvec.spark.input.rows import rows_of_arrow
from tests.marks import slow_but
from tests.spark.delta.readers import settings_of
from tests.spark.delta.spark_tables import as_delta_spark_reads, collected
from tests.spark.delta.write.judge import New

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(2)]

ROWS = pa.table({"id": [1, 2], "v": ["a", None]})
# A local time that Berlin skips, and an instant.
SKIPPED = datetime(2026, 3, 29, 2, 30)  # noqa: DTZ001
INSTANT = datetime(2026, 3, 29, 2, 30, tzinfo=timezone.utc)


def duckdb_rows() -> Any:  # noqa: ANN401
    duckdb = pytest.importorskip("duckdb")
    return duckdb.sql("SELECT * FROM (VALUES (1::BIGINT, 'a'), (2::BIGINT, NULL)) t(id, v)")


def polars_rows() -> Any:  # noqa: ANN401
    return pytest.importorskip("polars").DataFrame({"id": [1, 2], "v": ["a", None]})


GIVEN: dict[str, Callable[[], Any]] = {
    "Arrow table": lambda: ROWS,
    "Arrow batch": lambda: ROWS.to_batches()[0],
    "Arrow reader": ROWS.to_reader,
    "pandas": ROWS.to_pandas,
    "pandas without some rows": lambda: pa.concat_tables([ROWS, ROWS]).to_pandas()[2:],
    "pandas by its index": lambda: ROWS.to_pandas().set_index("id"),
    "polars": polars_rows,
    "lazy polars": lambda: polars_rows().lazy(),
    "DuckDB": duckdb_rows,
}


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    return DeltaTable.create(spark, tmp_path_factory.mktemp("given") / "t", "id long, v string")


def read(spark: SparkSession, table: DeltaTable) -> list[tuple[Any, ...]]:
    df = as_delta_spark_reads(spark, table.storage.root)  # type: ignore[arg-type]
    return sorted(map(tuple, collected(df)), key=repr)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", slow_but({"Arrow table", "pandas", "polars"}, GIVEN))
def test_rows_of_libraries_are_written(spark: SparkSession, table: DeltaTable, name: str) -> None:
    report = table.overwrite(GIVEN[name]())
    assert report.rows_inserted == 2
    assert read(spark, table) == [(1, "a"), (2, None)]


def test_rows_of_libraries_are_merged(spark: SparkSession, table: DeltaTable) -> None:
    table.overwrite(ROWS)
    table.append(pa.table({"id": pa.array([3], pa.int8())}))
    source = polars_rows()
    merge = table.merge(source.with_columns(v=source["v"].fill_null("new")), on="t.id = s.id")
    merge.when_matched_update_all().when_not_matched_by_source_delete().execute()
    assert read(spark, table) == [(1, "a"), (2, "new")]


def test_an_empty_table_writes_nothing(table: DeltaTable) -> None:
    nested = pa.table({"id": pa.array([], pa.int64()), "v": pa.array([]).dictionary_encode()})
    assert table.append(nested).version is None
    assert table.append(nested.to_pandas()).version is None


HALF = Decimal("1.5")
BOOL8 = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8()))
NANOSECONDS = pa.array([1_000_000_001, -1], pa.int64()).view(pa.timestamp("ns"))
EPOCH, UUID_1 = datetime(1970, 1, 1), UUID(int=1).bytes  # noqa: DTZ001
SLICED = pa.array([[], None, [SKIPPED], []], pa.list_(pa.timestamp("us")))[1:]
LARGE = pa.array([["a"], None], pa.large_list(pa.large_string()))
STRUCTS = pa.array([{"q": 1}, None], pa.struct([("q", pa.uint16())]))
MAPS = pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.uint8()))
# A type of Arrow and values, the type of Spark, and its values.
TYPES: dict[str, tuple[pa.Array, str, list[object]]] = {
    "unsigned": (pa.array([2**64 - 1 >> 1, None], pa.uint64()), "bigint", [2**63 - 1, None]),
    "small unsigned": (pa.array([255], pa.uint8()), "smallint", [255]),
    "half": (pa.array(np.array([1.5], np.float16)), "float", [1.5]),
    "dictionary": (pa.array(["a", None, "a"]).dictionary_encode(), "string", ["a", None, "a"]),
    "nulls": (pa.nulls(2), "void", [None, None]),
    "large string": (pa.array(["a"], pa.large_string()), "string", ["a"]),
    "string view": (pa.array(["a"], pa.string_view()), "string", ["a"]),
    "fixed binary": (pa.array([b"ab"], pa.binary(2)), "binary", [bytearray(b"ab")]),
    "uuid": (pa.array([UUID_1], pa.uuid()), "binary", [bytearray(UUID_1)]),
    "bool8": (BOOL8, "boolean", [True, None]),
    "date64": (pa.array([date(2026, 1, 31)], pa.date64()), "date", [date(2026, 1, 31)]),
    "decimal256": (pa.array([HALF], pa.decimal256(20, 1)), "decimal(20,1)", [HALF]),
    "local time": (pa.array([SKIPPED], pa.timestamp("s")), "timestamp_ntz", [SKIPPED]),
    "nanoseconds": (
        NANOSECONDS,
        "timestamp_ntz",
        [EPOCH + timedelta(seconds=1), EPOCH - timedelta(microseconds=1)],
    ),
    "sliced lists": (SLICED, "array<timestamp_ntz>", [None, [SKIPPED], []]),
    "large lists": (LARGE, "array<string>", [["a"], None]),
    "fixed lists": (pa.array([[1, 2]], pa.list_(pa.uint32(), 2)), "array<bigint>", [[1, 2]]),
    "structs": (STRUCTS, "struct<q:int>", [(1,), None]),
    "maps": (MAPS, "map<string,smallint>", [{"a": 1}, None]),
}


@pytest.mark.parametrize("name", TYPES)
def test_types_of_arrow_become_types_of_spark(spark: SparkSession, name: str) -> None:
    values, kind, expected = TYPES[name]
    with settings_of(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        empty = rows_of_arrow(spark, pa.table({"c": values[:0]}))
        df = rows_of_arrow(spark, pa.table({"c": values}))
        assert [each.schema[0].dataType.simpleString() for each in (empty, df)] == [kind, kind]
        assert [row.c for row in df.collect()] == expected


OPAQUE = pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "x", "y"), pa.array([5]))
LISTS = pa.array([[1]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("ns")))
REFUSED: dict[str, tuple[pa.Array, str]] = {
    "a number too large": (
        pa.array([2**63], pa.uint64()),
        "uint64 in Arrow, does not fit into int64",
    ),
    "a time of day": (pa.array([1], pa.time64("us")), "is time64.us. in Arrow, which no column"),
    "a large decimal": (pa.array([1]).cast(pa.decimal256(60, 0)), r"decimal256\(60, 0\) in Arrow"),
    "another type": (OPAQUE, ".*opaque.* in Arrow"),
    "nanoseconds in a list": (LISTS, "does not fit into list"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_values_that_would_change_are_refused(spark: SparkSession, name: str) -> None:
    values, message = REFUSED[name]
    with pytest.raises(InvalidArgumentError, match=f"column c.* {message}") as caught:
        rows_of_arrow(spark, pa.table({"c": values}))
    assert caught.value.hint


def test_times_with_and_without_a_zone_are_kept(spark: SparkSession, new: New) -> None:
    table = new("a timestamp, b timestamp, c timestamp_ntz")
    local = datetime(2026, 1, 31, 12)  # noqa: DTZ001
    zoned = pa.array([INSTANT], pa.timestamp("ms", "America/New_York"))
    columns = {"a": zoned, "b": pa.array([local], pa.timestamp("ns"))}
    rows = pa.table(columns | {"c": pa.array([SKIPPED], pa.timestamp("us"))})
    with settings_of(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        table.append(rows)
        table.append(rows.to_pandas())
    noon = datetime(2026, 1, 31, 11, tzinfo=timezone.utc)  # at twelve in Berlin
    expected = {"a": INSTANT, "b": noon, "c": SKIPPED}
    assert table.to_arrow().to_pylist() == [expected, expected]


def test_missing_values_of_pandas_are_null(
    new: New,
    pd: Any,  # noqa: ANN401
) -> None:
    table = new("x double, t timestamp_ntz, s string")
    missing = {"x": [float("nan"), 1.0], "t": [pd.NaT, SKIPPED], "s": [None, "a"]}
    table.append(pd.DataFrame(missing))
    table.append(pd.DataFrame({"x": pd.array([pd.NA, 2.0], dtype="Float64")}))
    table.append(pa.table({"x": [float("nan")]}))
    found = sorted(map(str, table.to_arrow(columns=["x"])["x"].to_pylist()))
    assert found == ["1.0", "2.0", "None", "None", "nan"]
    assert table.count([("s", "=", None)]) == table.count([("t", "=", None)]) == 4


def test_the_active_session_opens_a_table(spark: SparkSession, table: DeltaTable) -> None:
    root = table.storage.root
    for opened in (DeltaTable(root), DeltaTable(spark, root), DeltaTable(os.fspath(root))):
        assert opened.spark is not None
        assert opened.to_df().columns == ["id", "v"]
