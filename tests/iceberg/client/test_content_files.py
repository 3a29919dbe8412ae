"""Content files as Iceberg's JSON, and values of bounds as its bytes."""

from __future__ import annotations

import json
from datetime import datetime, time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec.iceberg.client import content_files
from delvec.iceberg.client.content_files import (
    data_file_json,
    delete_file_json,
    hexadecimal,
    json_arrays,
)

STRANGE = ['file:/a "b"\\c', "file:/ü\t\x01\U0001f600", "s3://b/x=a%20b/f", "file:/"]


def test_data_files_of_any_name_are_json() -> None:
    texts = data_file_json(
        pa.array(STRANGE),
        np.array([1, 2, 3, 2**62]),
        pa.array([10, 0, 2**40, 1]),
        4,
        pa.array(["[]", '["x"]', "[null,1]", "[]"]),
        pa.array(["", '"value-counts":{"keys":[1],"values":[2]}', "", ""]),
    )
    found = [json.loads(text) for text in texts.to_pylist()]
    assert [each["file-path"] for each in found] == STRANGE
    assert [each["file-size-in-bytes"] for each in found] == [1, 2, 3, 2**62]
    assert [each["record-count"] for each in found] == [10, 0, 2**40, 1]
    assert [each["partition"] for each in found] == [[], ["x"], [None, 1], []]
    assert {(each["spec-id"], each["content"], each["file-format"]) for each in found} == {
        (4, "data", "parquet")
    }
    assert "value-counts" in found[1]
    assert "value-counts" not in found[0]


@pytest.mark.parametrize("kind", ["puffin", "parquet"])
def test_delete_files_name_their_data_file_and_where_their_vector_is(kind: str) -> None:
    frames = (np.array([4, 2**33]), np.array([40, 2**31])) if kind == "puffin" else None
    texts = delete_file_json(
        pa.array(["file:/d/1", "file:/d/2"]),
        np.array([100, 200]),
        np.array([1, 2**40]),
        pa.array(STRANGE[:2]),
        0,
        pa.array(["[]", "[]"]),
        frames=frames,
    )
    found = [json.loads(text) for text in texts.to_pylist()]
    assert [each["referenced-data-file"] for each in found] == STRANGE[:2]
    assert {(each["content"], each["file-format"]) for each in found} == {
        ("position-deletes", kind)
    }
    assert [each["record-count"] for each in found] == [1, 2**40]
    expected = [4, 2**33] if frames else [None, None]
    assert [each.get("content-offset") for each in found] == expected
    expected = [40, 2**31] if frames else [None, None]
    assert [each.get("content-size-in-bytes") for each in found] == expected
    paths = [{"keys": [2147483546], "values": [path.encode().hex().upper()]} for path in STRANGE]
    for side in ("lower-bounds", "upper-bounds"):
        assert [each.get(side) for each in found] == ([None, None] if frames else paths[:2])


def test_files_go_to_java_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_files, "_FILES_PER_ARRAY", 3)
    texts = pa.array([json.dumps({"n": number}) for number in range(7)], pa.large_string())
    arrays = [json.loads(text) for text in json_arrays(texts)]
    assert [len(each) for each in arrays] == [3, 3, 1]
    assert [each["n"] for array in arrays for each in array] == list(range(7))
    assert list(json_arrays(texts[:0])) == []


def test_no_files_are_no_texts() -> None:
    nothing = pa.array([], pa.string())
    none = np.empty(0, np.int64)
    assert len(data_file_json(nothing, none, pa.array(none), 0, nothing, nothing)) == 0
    for frames in (None, (none, none)):
        assert len(delete_file_json(nothing, none, none, nothing, 0, nothing, frames=frames)) == 0


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
