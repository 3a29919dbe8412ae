"""Statistics from Parquet footers: each type, what is left out, and which columns have any."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec.delta.read.footer_statistics import file_statistics
from delvec.delta.schema.metadata import Metadata
from delvec.delta.skipping.statistics import statistics_json
from delvec.errors import FormatError
from tests.delta.builder import field_of, struct_of

LAST = "\U0010ffff"


def metadata_of(
    columns: Mapping[str, Any],
    properties: Mapping[str, str] | None = None,
    partitions: Sequence[str] = (),
) -> Metadata:
    text = json.dumps(struct(columns))
    told = {"partitionColumns": list(partitions), "configuration": dict(properties or {})}
    return Metadata.from_json({"schemaString": text, **told})


def struct(columns: Mapping[str, Any]) -> dict[str, Any]:
    return struct_of(*(field_of(name, kind) for name, kind in columns.items()))


def footer_of(table: pa.Table, **options: Any) -> pq.FileMetaData:  # noqa: ANN401
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


class JavaFooter:
    """A footer of Arrow's that Java's writer claims to have written: a NaN would be a maximum."""

    created_by = "parquet-mr version 1.16.0"

    def __init__(self, footer: pq.FileMetaData) -> None:
        self._footer = footer

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._footer, name)


def statistics_of(
    table: pa.Table,
    columns: Mapping[str, Any],
    properties: Mapping[str, str] | None = None,
    **options: Any,  # noqa: ANN401
) -> dict[str, Any]:
    footer = JavaFooter(footer_of(table, **options))
    return file_statistics(metadata_of(columns, properties), footer, tight_bounds=False)


def bounds_of(
    values: Sequence[Any],
    kind: pa.DataType,
    delta_type: str,
    properties: Mapping[str, str] | None = None,
    **options: Any,  # noqa: ANN401
) -> tuple[Any, Any]:
    table = pa.table({"x": pa.array(values, kind)})
    found = statistics_of(table, {"x": delta_type}, properties, **options)
    assert (found["numRecords"], found["nullCount"]) == (len(values), {"x": values.count(None)})
    return found.get("minValues", {}).get("x"), found.get("maxValues", {}).get("x")


UTC = timezone.utc
CASES: dict[str, tuple[list[Any], pa.DataType, Any, Any]] = {
    "byte": ([3, None, -1], pa.int8(), -1, 3),
    "short": ([3, None, -1], pa.int16(), -1, 3),
    "integer": ([3, None, -1], pa.int32(), -1, 3),
    "long": ([1 << 62, -(1 << 63)], pa.int64(), -(1 << 63), 1 << 62),
    "float": ([0.1, 2.5], pa.float32(), 0.10000000149011612, 2.5),
    "double": ([0.1, -1e300], pa.float64(), -1e300, 0.1),
    "date": ([date(1, 1, 1), date(9999, 12, 31)], pa.date32(), "0001-01-01", "9999-12-31"),
    "decimal(5,2)": ([Decimal("-1.50"), Decimal("2.00")], pa.decimal128(5, 2), "-1.50", "2.00"),
    "string": (["b", "a\u00fc"], pa.string(), "a\u00fc", "b"),
    "boolean": ([True, None, False], pa.bool_(), None, None),
    "binary": ([b"a", b"b"], pa.binary(), None, None),
    "timestamp": (
        [
            datetime(1969, 12, 31, 23, 59, 59, 999_900, UTC),
            datetime(2026, 1, 1, 0, 0, 0, 123_999, UTC),
        ],
        pa.timestamp("us", "UTC"),
        "1969-12-31T23:59:59.999Z",
        "2026-01-01T00:00:00.123Z",
    ),
    "timestamp_ntz": (
        [datetime(1, 1, 1), datetime(2026, 1, 1, 5)],  # noqa: DTZ001
        pa.timestamp("us"),
        "0001-01-01T00:00:00.000",
        "2026-01-01T05:00:00.000",
    ),
}


@pytest.mark.parametrize("delta_type", CASES)
def test_each_type_has_the_bounds_that_delta_keeps_of_it(delta_type: str) -> None:
    values, kind, low, high = CASES[delta_type]
    found = bounds_of(values, kind, delta_type)
    assert [None if each is None else type(low)(each) for each in found] == [low, high]


def test_bounds_are_those_of_all_row_groups() -> None:
    assert bounds_of([5, 9, None, None, -7, 3], pa.int64(), "long", row_group_size=2) == (-7, 9)
    # In units of UTF-16 the first one would be the greater.
    texts = ("\uffee", "\U00010000")
    assert bounds_of(list(texts), pa.string(), "string", row_group_size=1) == texts


def test_decimals_keep_all_digits_in_json() -> None:
    number = "1234567890123456789012345678.0123456789"
    values = pa.array([Decimal(number), Decimal("-0.0000000001")], pa.decimal128(38, 10))
    text = statistics_json(statistics_of(pa.table({"x": values}), {"x": "decimal(38,10)"}))
    assert f'"minValues":{{"x":-0.0000000001}},"maxValues":{{"x":{number}}}' in text


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ([1.0, float("inf")], (1.0, None)),
        ([float("-inf"), 1.0], (None, 1.0)),
        ([None, None], (None, None)),
        ([-0.0], (-0.0, 0.0)),
    ],
)
def test_odd_floats_are_no_bounds(values: list[float | None], bounds: tuple[Any, Any]) -> None:
    assert bounds_of(values, pa.float64(), "double", row_group_size=1) == bounds


def test_a_writer_that_passes_over_nan_is_not_believed_a_maximum_of_floats() -> None:
    footer = footer_of(pa.table({"x": [1.0, float("nan")]}))
    assert footer.row_group(0).column(0).statistics.max == 1.0
    found = file_statistics(metadata_of({"x": "double"}), footer, tight_bounds=False)
    assert found == {"numRecords": 2, "minValues": {"x": 1.0}, "nullCount": {"x": 0}}


def test_a_row_group_without_statistics_makes_bounds_unknown() -> None:
    table = pa.table({"x": [1, 2], "y": [1, 2]})
    found = statistics_of(table, {"x": "long", "y": "long"}, write_statistics=["y"])
    assert (found["minValues"], found["nullCount"]) == ({"y": 1}, {"y": 0})


def test_bounds_of_another_type_than_the_table_has_are_left_out() -> None:
    narrow = pa.table({"x": pa.array([1], pa.int32())})
    assert "minValues" not in statistics_of(narrow, {"x": "long"})
    stamps = pa.table({"x": pa.array([datetime(2026, 1, 1, tzinfo=UTC)])})
    old = statistics_of(stamps, {"x": "timestamp"}, use_deprecated_int96_timestamps=True)
    assert "minValues" not in old


def test_fields_of_structs_are_nested_and_count_the_nulls_of_their_struct() -> None:
    inner = pa.struct([("a", pa.int64()), ("deep", pa.struct([("b", pa.string())]))])
    rows = [{"a": 1, "deep": {"b": "x"}}, {"a": None, "deep": None}, None]
    table = pa.table({"s": pa.array(rows, inner), "s.a": ["text"] * 3})
    nested = struct({"a": "long", "deep": struct({"b": "string"})})
    found = statistics_of(table, {"s": nested, "s.a": "string"})
    assert found["minValues"] == {"s": {"a": 1, "deep": {"b": "x"}}, "s.a": "text"}
    assert found["nullCount"] == {"s": {"a": 2, "deep": {"b": 2}}, "s.a": 0}


def test_arrays_and_maps_have_none_and_do_not_shift_what_follows() -> None:
    array = {"type": "array", "elementType": "long", "containsNull": True}
    pairs = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
    stored = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))
    table = pa.table({"a": pa.array([[1, 2]]), "m": stored, "x": [7]})
    found = statistics_of(table, {"a": array, "m": pairs, "x": "long"})
    assert (found["minValues"], found["nullCount"]) == ({"x": 7}, {"x": 0})


def test_a_column_that_the_file_has_not_is_null_in_all_rows() -> None:
    found = statistics_of(pa.table({"x": [1, 2]}), {"x": "long", "y": "long", "z": "void"})
    assert found["nullCount"] == {"x": 0, "y": 2, "z": 2}


@given(st.text(max_size=80), st.integers(1, 34))
def test_cut_texts_still_bound_the_text(text: str, prefix: int) -> None:
    properties = {"delta.dataSkippingStringPrefixLength": str(prefix)}
    low, high = bounds_of([text], pa.string(), "string", properties)
    assert low.encode() <= text.encode()
    assert low == text[:prefix]
    assert high is None or (high.encode() >= text.encode() and len(high) <= 2 * prefix + 2)


@pytest.mark.parametrize(
    ("text", "high"),
    [
        ("a" * 32, "a" * 32),
        ("a" * 33, "a" * 32 + "\x7f"),
        ("\u00fc" * 33, "\u00fc" * 32 + LAST),
        ("a" * 31 + "\U0001f600" + "b", "a" * 31 + "\U0001f600" + "\x7f"),
        ("a" * 32 + LAST + "b", "a" * 32 + LAST + "\x7f"),
        ("a" * 32 + LAST * 40, None),
    ],
)
def test_texts_are_cut_as_delta_spark_cuts_them(text: str, high: str | None) -> None:
    assert bounds_of([text], pa.string(), "string") == (text[:32], high)


def indexed(columns: Mapping[str, Any], properties: Mapping[str, str]) -> Any:  # noqa: ANN401
    nested = {"a": 1, "b": 1}
    row = {name: nested if isinstance(kind, dict) else 1 for name, kind in columns.items()}
    return statistics_of(pa.Table.from_pylist([row]), columns, properties).get("minValues", {})


NESTED = {"s": struct({"a": "long", "b": "long"}), "x.y": "long", "Z": "long"}


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({"delta.dataSkippingNumIndexedCols": "0"}, {}),
        ({"delta.dataSkippingNumIndexedCols": "1"}, {"s": {"a": 1}}),
        ({"delta.dataSkippingNumIndexedCols": "3"}, {"s": {"a": 1, "b": 1}, "x.y": 1}),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, {"s": {"a": 1, "b": 1}, "x.y": 1, "Z": 1}),
        ({"delta.dataSkippingStatsColumns": "z, `x.y`"}, {"x.y": 1, "Z": 1}),
        ({"delta.dataSkippingStatsColumns": "S.b,none"}, {"s": {"b": 1}}),
        ({"delta.dataSkippingStatsColumns": "s"}, {"s": {"a": 1, "b": 1}}),
        ({"delta.dataSkippingStatsColumns": ""}, {}),
        ({"delta.dataSkippingNumIndexedCols": "many"}, None),
        ({"delta.dataSkippingStatsColumns": "a b`c"}, None),
        ({"delta.dataSkippingStatsColumns": "a,,b"}, None),
    ],
)
def test_properties_name_columns(properties: dict[str, str], found: dict[str, Any] | None) -> None:
    if found is None:
        with pytest.raises(FormatError, match="dataSkipping"):
            indexed(NESTED, properties)
    else:
        assert indexed(NESTED, properties) == found


def test_the_first_32_columns_have_statistics_partition_columns_not_counted() -> None:
    names = [f"c{number}" for number in range(40)]
    metadata = metadata_of(dict.fromkeys(("p", *names), "long"), partitions=["P"])
    footer = footer_of(pa.table({name: [1] for name in names}))
    found = file_statistics(metadata, footer, tight_bounds=False)
    assert list(found["minValues"]) == names[:32]
    assert "tightBounds" not in found
    assert file_statistics(metadata, footer, tight_bounds=True)["tightBounds"] is True
