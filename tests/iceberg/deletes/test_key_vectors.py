from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delvec.errors import FormatError, ObjectNotFoundError, TruncatedError
from delvec.iceberg.client.files import EqualityDeleteFile
from delvec.iceberg.deletes.key_vectors import (
    encode_key_vectors,
    least_vector_bytes,
    read_key_vector,
    split_keys,
    vector_metrics,
)
from delvec.spark.input.keys import Keys
from delvec.storage import Storage
from delvec.vector import Bitmap, puffin
from delvec.vector.blobs import EqualityDeleteVector
from tests.iceberg.deletes.key_tables import column

KEYS = [3, 70_000, 5 << 33]


def stored(root: Path, data: bytes, keys: list[int] | None = None, **more: Any) -> Any:  # noqa: ANN401
    """A vector's file with the entry that a manifest has for these keys."""
    wanted = Keys.of(KEYS if keys is None else keys, [column()])
    metrics = vector_metrics(wanted)
    (root / "x-edv.puffin").write_bytes(data)
    entry = EqualityDeleteFile(
        f"file:{root}/x-edv.puffin",
        "parquet",
        2,
        "[]",
        (7,),
        len(wanted),
        len(data),
        1,
        {7: 0},
        {7: bytes.fromhex(metrics.lower or "")},
        {7: bytes.fromhex(metrics.upper or "")},
    )
    return replace(entry, **more)


def encoded(keys: list[int] | None = None, spec_id: int = 2) -> bytes:
    wanted = Keys.of(KEYS if keys is None else keys, [column()])
    return encode_key_vectors([wanted], spec_id).data


def read(root: Path, entry: EqualityDeleteFile) -> list[int]:
    found: list[int] = read_key_vector(Storage.open(root), entry).to_numpy().tolist()
    return found


@given(st.sets(st.integers(0, 2**63 - 1), min_size=1) | st.sets(st.integers(0, 300), min_size=1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keys_come_back(tmp_path: Path, keys: set[int]) -> None:
    ordered = sorted(keys)
    assert read(tmp_path, stored(tmp_path, encoded(ordered), ordered)) == ordered


def test_a_large_vector_comes_back(tmp_path: Path) -> None:
    keys = np.random.default_rng(2).integers(0, 1 << 40, 20_000).tolist()
    data = encoded(keys)
    assert len(data) > 100_000  # the first read has the footer only
    assert read(tmp_path, stored(tmp_path, data, keys)) == sorted(keys)


@given(
    st.sets(st.integers(0, 2**63 - 1), min_size=1)
    | st.builds(range, st.integers(1, 10**6))
    | st.builds(lambda step: range(0, 10**7, step), st.integers(1000, 10**6))
)
def test_the_least_size_is_not_over_the_size(values: set[int] | range) -> None:
    keys = Keys.of(values, [column()])
    [blob] = encode_key_vectors([keys], 0).blobs
    assert least_vector_bytes(keys) <= blob.length


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_negative_values_and_null_are_split_off(values: list[int | None]) -> None:
    split = split_keys(Keys.of(values, [column()]))
    distinct = set(values)
    assert split.eligible.numbers.tolist() == sorted(
        v for v in distinct if v is not None and v >= 0
    )
    assert split.rest.numbers.tolist() == sorted(v for v in distinct if v is not None and v < 0)
    assert (split.nulls, len(split.eligible) + len(split.rest)) == (None in distinct, len(distinct))


def forged(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The file with another footer."""
    data = encoded()
    footer = puffin.read_footer(puffin.reader_of(data), len(data))
    begin = len(data) - footer.size
    content = json.loads(data[begin + 4 : -12])
    change(content)
    payload = json.dumps(content).encode()
    trailer = struct.pack("<i", len(payload)) + bytes(4) + b"PFA1"
    return data[: begin + 4] + payload + trailer


def blob(**changes: object) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["blobs"][0].update(changes)


def prop(name: str, value: str | None) -> Callable[[dict[str, Any]], None]:
    """Set a property of the blob, or take it away."""

    def change(content: dict[str, Any]) -> None:
        properties = content["blobs"][0]["properties"]
        del properties[name]
        properties |= {} if value is None else {name: value}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (blob(type="deletion-vector-v1"), "wrong type of the blob"),
        (blob(fields=[8]), "wrong fields of the blob"),
        (blob(fields=[7, 8]), "wrong fields of the blob"),
        (blob(**{"compression-codec": "zstd"}), "must not be compressed"),
        (blob(offset=5), "length field does not match|magic|outside"),
        (blob(length=10), "too short"),
        (blob(length=1 << 60), "outside the file"),
        (lambda c: c["blobs"].append(c["blobs"][0]), "wrong number of vectors"),
        (lambda c: c["blobs"].clear(), "wrong number of vectors"),
        (prop("equality-field-id", "8"), "wrong fields of the blob"),
        (prop("cardinality", "4"), "wrong number of values"),
        (prop("value-min", "2"), "wrong value-min"),
        (prop("value-max", "2"), "wrong value-max"),
        (prop("value-encoding", "zigzag"), "wrong value-encoding"),
        (prop("partition-spec-id", "3"), "wrong partition spec"),
        *(
            (prop(name, None), "lacks the property|wrong partition spec")
            for name in (
                "equality-field-id",
                "cardinality",
                "value-encoding",
                "value-min",
                "value-max",
                "partition-spec-id",
            )
        ),
    ],
)
def test_forged_footers_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    data = forged(change)
    with pytest.raises(FormatError, match=message) as error:
        read(tmp_path, stored(tmp_path, data))
    assert error.value.path == f"file:{tmp_path}/x-edv.puffin"


def of_positions() -> puffin.Blob:
    blob = EqualityDeleteVector(Bitmap(KEYS), 7, 2).to_blob()
    body = bytes.fromhex("d1d33964") + blob.data[8:-4]
    framed = struct.pack(">I", len(body)) + body + struct.pack(">I", crc32(body))
    return replace(blob, data=framed)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"equality_ids": (8,)}, "wrong key column"),
        ({"equality_ids": (7, 8)}, "wrong key column"),
        ({"record_count": 2}, "wrong number of keys"),
        ({"spec_id": 0}, "wrong partition spec"),
        ({"lower": {7: (2).to_bytes(8, "little")}}, "wrong bound of the keys"),
        ({"upper": {7: (2).to_bytes(8, "little")}}, "wrong bound of the keys"),
        ({"size": 1 << 62}, "ends beyond|truncated|shorter|bytes"),
        ({"size": 30}, "not a Puffin file"),
        ({"size": 3}, "too short for a Puffin file"),
        ({"blob": EqualityDeleteVector(Bitmap(), 7, 2).to_blob(), "record_count": 0}, "empty"),
        ({"blob": of_positions()}, "not a vector of this kind"),
    ],
)
def test_a_vector_that_is_not_what_the_manifest_says_is_refused(
    tmp_path: Path, entry: dict[str, Any], message: str
) -> None:
    data = puffin.encode([entry.pop("blob")]).data if "blob" in entry else encoded()
    with pytest.raises(FormatError, match=message) as error:
        read(tmp_path, stored(tmp_path, data, **entry))
    assert "x-edv.puffin" in str(error.value)


def test_entries_without_bounds_and_bounds_from_before_a_promotion_are_read(tmp_path: Path) -> None:
    assert read(tmp_path, stored(tmp_path, encoded(), lower={}, upper={})) == KEYS
    short = {7: (3).to_bytes(4, "little")}
    assert read(tmp_path, stored(tmp_path, encoded(), lower=short)) == KEYS


def test_damaged_truncated_and_missing_files_are_refused(tmp_path: Path) -> None:
    data = encoded()
    for place in range(4 + 58 + 4):  # header, blob, the footer's magic
        damaged = bytearray(data)
        damaged[place] ^= 1
        with pytest.raises(FormatError):
            read(tmp_path, stored(tmp_path, bytes(damaged)))
    for end in range(len(data)):
        with pytest.raises(FormatError):
            read(tmp_path, stored(tmp_path, data[:end]))
    with pytest.raises(TruncatedError):
        read(tmp_path, stored(tmp_path, data[:-20], size=len(data)))
    with pytest.raises(ObjectNotFoundError, match=r"y-edv\.puffin"):
        read(tmp_path, stored(tmp_path, data, path=f"file:{tmp_path}/y-edv.puffin"))
