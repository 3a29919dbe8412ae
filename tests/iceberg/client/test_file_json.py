from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from delvec.iceberg.client import content_files as file_json
from delvec.iceberg.client.content_files import data_file_json, delete_file_json, json_arrays

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
    monkeypatch.setattr(file_json, "_FILES_PER_ARRAY", 3)
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
