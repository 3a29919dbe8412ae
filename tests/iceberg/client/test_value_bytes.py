from __future__ import annotations

from datetime import datetime, time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec.iceberg.client.content_files import hexadecimal


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.bool_(), True, "01"),
        (pa.bool_(), False, "00"),
        (pa.int8(), -1, "FFFFFFFF"),
        (pa.int32(), 258, "02010000"),
        (pa.int64(), 258, "0201000000000000"),
        (pa.date32(), 1, "01000000"),
        (pa.time64("us"), time(0, 0, 0, 1), "0100000000000000"),
        (pa.timestamp("us", "UTC"), 1, "0100000000000000"),
        (pa.timestamp("ns"), datetime(1970, 1, 1, 0, 0, 0, 1), "E803000000000000"),  # noqa: DTZ001
        (pa.float64(), 1.0, "000000000000F03F"),
        (pa.string(), "a", "61"),
        (pa.large_binary(), b"\x00\xff", "00FF"),
        (pa.binary(2), b"\x00\xff", "00FF"),
        (pa.large_binary(), b"", ""),
    ],
    ids=str,
)
def test_each_type_has_its_bytes(kind: pa.DataType, value: Any, expected: str) -> None:  # noqa: ANN401
    values = pa.array([None, value, None, value], kind)
    assert hexadecimal(values).to_pylist() == [None, expected, None, expected]
    assert hexadecimal(values.slice(2)).to_pylist() == [None, expected]


@given(st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1)))
def test_decimals_are_the_shortest_that_hold_the_sign(numbers: list[int | None]) -> None:
    values = pa.array([None if each is None else str(each) for each in numbers], pa.string())
    found = hexadecimal(values.cast(pa.decimal128(38, 0))).to_pylist()
    for number, text in zip(numbers, found, strict=True):
        if number is None:
            assert text is None
            continue
        assert int.from_bytes(bytes.fromhex(text), "big", signed=True) == number
        magnitude = number if number >= 0 else ~number
        assert len(text) == 2 * (magnitude.bit_length() // 8 + 1)


@given(st.lists(st.none() | st.text()), st.integers(0, 3))
def test_texts_are_utf_8(texts: list[str | None], start: int) -> None:
    found = hexadecimal(pa.array(texts, pa.string()).slice(start)).to_pylist()
    assert found == [
        None if text is None else text.encode().hex().upper() for text in texts[start:]
    ]
