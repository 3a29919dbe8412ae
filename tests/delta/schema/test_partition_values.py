"""`delvec.delta.schema.partition_values`: partition values from the text of the log."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec.delta.schema import partition_values as values
from delvec.delta.schema.types import ArrayType, PrimitiveType, arrow_type
from delvec.errors import FormatError, InvalidArgumentError

UTC = timezone.utc


def parse(text: str | None, kind: str, zone: str = "UTC") -> values.PartitionValue | None:
    return values.parse_partition_value(text, PrimitiveType(kind), zone)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", " a=b%20é", " a=b%20é"),
        ("binary", "\x01é", b"\x01\xc3\xa9"),
        ("boolean", "true", True),
        ("boolean", "FALSE", False),
        ("byte", "-128", -128),
        ("short", "32767", 32767),
        ("integer", "+7", 7),
        ("long", "-9223372036854775808", -(2**63)),
        ("double", "1.0E10", 1e10),
        ("double", "-Infinity", -math.inf),
        ("double", "inf", math.inf),
        ("double", "-0.0", -0.0),
        ("float", "0.1", 0.10000000149011612),
        ("float", "3.4028235E38", 3.4028234663852886e38),
        ("decimal(10,2)", "1.5", Decimal("1.50")),
        ("decimal(10,2)", "-12345678.90", Decimal("-12345678.90")),
        ("decimal(38,10)", "0E-10", Decimal("0E-10")),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("date", "2021-09-08", date(2021, 9, 8)),
        ("timestamp", "2021-09-08 11:11:11", datetime(2021, 9, 8, 11, 11, 11, tzinfo=UTC)),
        ("timestamp", "2021-09-08 11:11:11.5", datetime(2021, 9, 8, 11, 11, 11, 500000, UTC)),
        ("timestamp", "2021-09-08T11:11:11.000001Z", datetime(2021, 9, 8, 11, 11, 11, 1, UTC)),
        ("timestamp", "2021-09-08T11:11:11+02:00", datetime(2021, 9, 8, 9, 11, 11, tzinfo=UTC)),
        ("timestamp", "2021-09-08", datetime(2021, 9, 8, tzinfo=UTC)),
        ("timestamp_ntz", "2021-09-08 11:11:11.123456", datetime(2021, 9, 8, 11, 11, 11, 123456)),  # noqa: DTZ001
        ("timestamp_ntz", "0001-01-01T00:00:00", datetime(1, 1, 1)),  # noqa: DTZ001
    ],
)
def test_a_text_becomes_a_value(kind: str, text: str, value: object) -> None:
    found = parse(text, kind)
    assert (found, str(found)) == (value, str(value))
    assert type(found) is type(value)
    column = values.partition_column(pa.array([None, text, text]), PrimitiveType(kind))
    assert column.type == arrow_type(PrimitiveType(kind))
    assert column.to_pylist() == [None, value, value]
    assert parse(None, kind) is parse("", kind) is None
    if kind in ("float", "double"):
        assert math.isnan(parse("NaN", kind))  # type: ignore[arg-type]


WRONG = {
    "boolean": ["1"],
    "byte": ["128", " 1"],
    "integer": ["1.0", "0x10"],
    "long": ["9223372036854775808", "1_000", "\u0661"],
    "double": ["1_0.0", "one"],
    "decimal(10,2)": ["1.005", "123456789.00", "NaN", "1E999999999"],
    "date": ["2021-9-8", "2021-02-29", "2021-09-08 00:00:00"],
    "timestamp": [
        *("2021-09-08 25:00:00", "2021-09-08 11:11:11.0000001"),
        *("2021-09-08Z", "9999-12-31 23:59:59-01:00"),
    ],
    "timestamp_ntz": ["2021-09-08T11:11:11Z", "yesterday"],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, each) for kind in WRONG for each in WRONG[kind]])
def test_a_wrong_text_is_refused_with_type_and_value(kind: str, text: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse(text, kind)
    assert kind in str(caught.value)
    assert repr(text) in str(caught.value)
    with pytest.raises(FormatError):
        values.partition_column(pa.array([text]), PrimitiveType(kind))


@pytest.mark.parametrize(
    ("clock", "utc"),
    [
        ("2024-01-15 12:00:00", "2024-01-15 11:00:00"),
        ("2024-07-15 12:00:00", "2024-07-15 10:00:00"),
        ("2024-03-31 02:30:00", "2024-03-31 01:30:00"),  # skipped: Java takes 03:30
        ("2024-10-27 02:30:00", "2024-10-27 00:30:00"),  # twice: Java takes the first
        ("1800-01-01 00:53:28", "1800-01-01 00:00:00"),  # before time zones: 53 min 28 s
    ],
)
def test_clocks_are_read_as_java_reads_them(clock: str, utc: str) -> None:
    expected = datetime.fromisoformat(utc).replace(tzinfo=UTC)
    assert parse(clock, "timestamp", "Europe/Berlin") == expected
    assert parse(f"{clock}Z", "timestamp", "Europe/Berlin") == parse(clock, "timestamp")


@pytest.mark.parametrize(
    ("zone", "hour"),
    [("UTC", 12), ("Z", 12), ("+02:00", 10), ("GMT-3", 15), ("UTC+0530", 6), ("Etc/GMT+1", 13)],
)
def test_zones_are_names_or_offsets(zone: str, hour: int) -> None:
    value = parse("2024-01-15 12:00:00", "timestamp", zone)
    assert isinstance(value, datetime)
    assert value.hour == hour


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "+19:00"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidArgumentError, match="no time zone"):
        parse("2024-01-15 12:00:00", "timestamp", zone)


@pytest.mark.parametrize(
    "kind", [PrimitiveType("variant"), PrimitiveType("void"), ArrayType(PrimitiveType("long"))]
)
def test_some_types_cannot_partition(kind: PrimitiveType) -> None:
    with pytest.raises(FormatError, match="cannot partition"):
        values.parse_partition_value("1", kind)


@given(st.lists(st.none() | st.sampled_from(["", "1", "22", "-3"])), st.integers(0, 3))
def test_columns_agree_with_single_values(texts: list[str | None], start: int) -> None:
    column = pa.chunked_array([pa.array(texts, pa.string()).slice(start), ["7"]])
    found = values.partition_column(column, PrimitiveType("long")).to_pylist()
    assert found == [parse(text, "long") for text in [*texts[start:], "7"]]


@pytest.mark.parametrize(
    ("folder", "value"),
    [
        ("c=a%2Fb%3Dc %25", "a/b=c %"),
        ("c=%zz%4", "%zz%4"),
        ("c=__HIVE_DEFAULT_PARTITION__", None),
        ("c=K%C3%B6ln", "K\u00f6ln"),  # bytes of UTF-8
        ("c=K%F6ln", "K\u00f6ln"),  # a character, as Spark reads it: no replacement character
    ],
)
def test_names_of_folders_are_read_in_one_way(folder: str, value: str | None) -> None:
    assert values.folder_values(f"a/{folder}/part-0.parquet") == [("c", value)]
