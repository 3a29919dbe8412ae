from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from delvec.errors import FormatError, InvalidArgumentError, MagicError, TruncatedError
from delvec.vector import (
    Bitmap,
    DeletionVector,
    EqualityDeleteVector,
    Frames,
    blobs,
    copy_frames,
    delta_file,
    encode_frame,
    puffin,
)
from delvec.vector import puffin as compression
from delvec.vector.puffin import Blob, BlobMetadata, read_blob, read_footer, reader_of
from tests.vector import lz4


def footer_of(data: bytes) -> puffin.Footer:
    return read_footer(reader_of(data), len(data))


def file_with(payload: bytes, *, flags: int = 0, body: bytes = b"") -> bytes:
    trailer = len(payload).to_bytes(4, "little") + flags.to_bytes(4, "little") + b"PFA1"
    return b"PFA1" + body + b"PFA1" + payload + trailer


def entry(**changes: Any) -> dict[str, Any]:  # noqa: ANN401
    numbers = {"fields": [1], "snapshot-id": 2, "sequence-number": 1, "offset": 4, "length": 3}
    return {"type": "t", **numbers, **changes}


def test_the_empty_file_is_laid_out_as_the_specification_says() -> None:
    data = file_with(b'{"blobs":[]}')
    assert len(data) == 32  # as Iceberg's own empty file
    assert footer_of(data) == puffin.Footer((), {}, 28)
    assert footer_of(puffin.encode([]).data).properties["created-by"].startswith("delvec ")
    data, offsets = blobs.from_frames(copy_frames(b"", [], []), [], [])
    assert (footer_of(data).blobs, len(offsets)) == ((), 0)


def test_any_blobs_go_in_and_come_out() -> None:
    written = [
        Blob("some-blob", b"abcdefghi", (1,), {}, 2, 1),
        Blob("other", b"", (2, 3), {"k": 'é"\\\n'}, -1, -1),
        Blob("third", bytes(20_000), (), {"a": "b"}),
    ]
    file = puffin.encode(written, {"created-by": "a test", "x": "y"})
    footer = footer_of(file.data)
    assert footer.blobs == file.blobs
    assert footer.properties == {"created-by": "a test", "x": "y"}
    assert [bytes(read_blob(reader_of(file.data), blob)) for blob in footer.blobs] == [
        blob.data for blob in written
    ]
    assert [blob.offset for blob in footer.blobs] == [4, 13, 13]
    assert [(b.type, b.fields, b.snapshot_id, b.properties) for b in footer.blobs] == [
        (b.type, b.fields, b.snapshot_id, b.properties) for b in written
    ]


def test_a_blob_of_a_large_file_costs_small_reads() -> None:
    file = puffin.encode([Blob("t", bytes(1_000_000)), Blob("u", b"needle")])
    reads: list[tuple[int, int]] = []

    def read(start: int, length: int) -> bytes:
        reads.append((start, length))
        return file.data[start : start + length]

    footer = read_footer(read, len(file.data))
    assert bytes(read_blob(read, footer.blobs[1])) == b"needle"
    assert len(reads) == 2
    assert sum(length for _, length in reads) < 10_000
    many = puffin.encode([Blob("t", b"", properties={"p": "x" * 100}) for _ in range(200)])
    reads.clear()
    file = many
    assert len(read_footer(read, len(many.data)).blobs) == 200
    assert len(reads) == 2  # the tail, then the whole footer


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_footers_and_blobs_are_read(codec: str) -> None:
    content = b"a blob that repeats itself, " * 50
    body = compressed(content, codec)
    listed = {"blobs": [entry(length=len(body), **{"compression-codec": codec})]}
    payload = compressed(json.dumps(listed).encode(), codec)
    data = file_with(payload, flags=1, body=body)
    [blob] = footer_of(data).blobs
    assert read_blob(reader_of(data), blob) == content


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (b"", TruncatedError, "too short for a Puffin file"),
        (b"PFA1PFA1" + bytes(11), TruncatedError, "at least 20 bytes, found 19 bytes"),
        (b"PFA2" + file_with(b'{"blobs":[]}')[4:], MagicError, "at byte 0: expected PFA1"),
        (file_with(b'{"blobs":[]}')[:-1] + b"2", MagicError, "at byte 28"),
        (b"PFA1xxxx" + file_with(b'{"blobs":[]}')[8:], MagicError, "at byte 4"),
        (file_with(b"{}")[:-12] + b"\xff\xff\xff\x7f" + bytes(4) + b"PFA1", FormatError, "size"),
        (file_with(b'{"blobs":[]}', flags=2), FormatError, "unknown flags"),
        (file_with(b'{"blobs":[]}', flags=1 << 31), FormatError, "unknown flags"),
        (file_with(b'{"blobs":[]}', flags=1), FormatError, "said to be compressed"),
        (file_with(b"\x04\x22\x4d\x18zzzzzzz", flags=1), FormatError, "found none"),
        (file_with(b"\x04\x22\x4d\x18\x68\x40\5" + bytes(9), flags=1), FormatError, "damaged lz4"),
        (file_with(b"\x28\xb5\x2f\xfd\x20\5", flags=1), FormatError, "damaged zstd frame"),
        (file_with(b"{"), FormatError, "not JSON"),
        (file_with(b"\xff"), FormatError, "not JSON"),
        (file_with('{"blobs":[]}'.encode("utf-16")), FormatError, "not JSON"),
        (file_with(b"[" * 100_000), FormatError, "not JSON"),
        (file_with(b"[]"), FormatError, "lists no blobs"),
        (file_with(b'{"blobs":{}}'), FormatError, "lists no blobs"),
        (file_with(b'{"blobs":[7]}'), FormatError, "expected an object"),
        (file_with(b'{"blobs":[],"properties":{"a":1}}'), FormatError, "are not strings"),
    ],
)
def test_a_wrong_file_is_named(data: bytes, kind: type[FormatError], message: str) -> None:
    with pytest.raises(kind, match=message):
        footer_of(data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"type": 1}, "type and compression-codec as strings"),
        ({"compression-codec": 1}, "as strings"),
        ({"fields": None}, "list of integers"),
        ({"fields": [True]}, "list of integers"),
        ({"snapshot-id": "1"}, "snapshot-id as an integer"),
        ({"sequence-number": None}, "sequence-number as an integer"),
        ({"offset": 3}, "outside the file"),
        ({"length": -1}, "outside the file"),
        ({"length": 4}, "expected within bytes 4 to 7, found 4 bytes from 4"),
        ({"length": 2**70}, "outside the file"),
        ({"properties": []}, "are not strings"),
    ],
)
def test_a_wrong_entry_is_named(changes: dict[str, Any], message: str) -> None:
    payload = json.dumps({"blobs": [entry(**changes)]}).encode()
    with pytest.raises(FormatError, match=message):
        footer_of(file_with(payload, body=b"abc"))


def test_unknown_compression_and_short_reads_are_refused() -> None:
    blob = BlobMetadata("t", (), 0, 0, 4, 3, "snappy")
    with pytest.raises(FormatError, match="expected lz4 or zstd, found snappy"):
        read_blob(reader_of(b"PFA1abc"), blob)
    with pytest.raises(FormatError, match="not a frame of zstd"):
        compression.decompress(b"abcdefgh", "zstd")
    with pytest.raises(TruncatedError, match="expected 9 bytes, found 3 bytes"):
        read_blob(reader_of(b"PFA1abc"), BlobMetadata("t", (), 0, 0, 4, 9))


def test_a_small_frame_cannot_ask_for_gigabytes() -> None:
    zstd, lz4_start, maximum = b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18\x68\x40", b"\xff" * 7
    for data, codec in (
        (pa.compress(bytes(50_000_000), codec="zstd", asbytes=True), "zstd"),
        (zstd + b"\xe0\xff" + maximum + bytes(20), "zstd"),  # content of 8 EiB
        (lz4_start + maximum + b"\x7f" + bytes(20), "lz4"),  # and here
        (zstd + bytes([0, 21 << 3]) + bytes(20), "zstd"),  # a window of 2 GiB
    ):
        with pytest.raises(FormatError, match="without a credible content size"):
            compression.decompress(data, codec)


def compressed(content: bytes, codec: str) -> bytes:
    if codec == "lz4":
        return lz4.compress(content)
    return bytes(pa.compress(content, codec=codec, asbytes=True))


@pytest.mark.parametrize("size", [1, 5, 255, 256, 300, 65_791, 65_792, 70_000])
def test_frames_whose_content_size_is_a_lie_are_refused(size: int) -> None:
    content = np.random.default_rng(size).bytes(size)
    zstd = compressed(content, "zstd")
    assert compression.decompress(zstd, "zstd") == content
    assert compression.decompress(lz4.compress(content), "lz4") == content
    for change in (1, -1, 100):
        lie = bytearray(zstd)
        where = 5 + (0 if lie[4] >> 5 & 1 else 1)
        lie[where] = (lie[where] + change) % 256
        with pytest.raises(FormatError):
            compression.decompress(bytes(lie), "zstd")
        with pytest.raises(FormatError):
            compression.decompress(lz4.compress(content, max(0, size + change)), "lz4")


DATA_FILE = "s3://lake/orders/part-0.parquet"


def test_a_deletion_vector_blob_has_what_iceberg_demands() -> None:
    vector = DeletionVector(Bitmap([1, 3, 5, 7, 9]), DATA_FILE)
    file = puffin.encode([vector.to_blob()])
    [blob] = footer_of(file.data).blobs
    properties = {"referenced-data-file": DATA_FILE, "cardinality": "5"}
    expected = ("deletion-vector-v1", (2147483645,), -1, -1, 4, 50, None, properties)
    assert blob == BlobMetadata(*expected)
    assert DeletionVector.from_blob(blob, read_blob(reader_of(file.data), blob)) == vector


def test_an_equality_delete_vector_blob_says_what_it_is() -> None:
    for keys, spec in (([], None), ([0, 2**63 - 1], 7)):
        vector = EqualityDeleteVector(Bitmap(keys), field_id=1, partition_spec_id=spec)
        file = puffin.encode([vector.to_blob()])
        [blob] = footer_of(file.data).blobs
        assert (blob.type, blob.fields) == ("equality-delete-vector-v1", (1,))
        assert blob.properties["cardinality"] == str(len(keys))
        assert ("value-min" in blob.properties) == bool(keys)
        with pytest.raises(FormatError):
            DeletionVector.from_blob(blob, read_blob(reader_of(file.data), blob))
        for unreadable in (replace(vector, field_id=-1), replace(vector, partition_spec_id=-1)):
            with pytest.raises(InvalidArgumentError, match="ids are not negative"):
                unreadable.to_blob()


def changed(blob: Blob, **properties: str | None) -> BlobMetadata:
    merged = dict(blob.properties) | {name.replace("_", "-"): v for name, v in properties.items()}
    kept = {name: value for name, value in merged.items() if value is not None}
    return BlobMetadata(blob.type, blob.fields, -1, -1, 4, len(blob.data), None, kept)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"cardinality": "4"}, "expected 4, found 3"),
        ({"cardinality": None}, "lacks the property cardinality"),
        ({"cardinality": "three"}, "not a number"),
        ({"cardinality": "-3"}, "not a number"),
        ({"cardinality": "9" * 5000}, "not a number"),
        ({"equality_field_id": "2"}, r"wrong fields of the blob .* expected \[2\], found \[1\]"),
        ({"value_encoding": "zigzag"}, "wrong value-encoding"),
        ({"value_encoding": None}, "lacks the property value-encoding"),
        ({"value_min": "99"}, "wrong value-min .* expected 100, found 99"),
        ({"value_max": "1001"}, "wrong value-max"),
        ({"partition_spec_id": "x"}, "partition-spec-id is not a number"),
    ],
)
def test_an_equality_delete_vector_is_checked_against_its_properties(
    properties: dict[str, str | None], message: str
) -> None:
    blob = EqualityDeleteVector(Bitmap([100, 500, 1000]), 1).to_blob()
    with pytest.raises(FormatError, match=message):
        EqualityDeleteVector.from_blob(changed(blob, **properties), blob.data)


def test_a_deletion_vector_is_checked_against_its_properties() -> None:
    blob = DeletionVector(Bitmap([1]), DATA_FILE).to_blob()
    packed = replace(changed(blob), compression_codec="zstd")
    for metadata, data, message in (
        (changed(blob, referenced_data_file=None), blob.data, "lacks the property referenced-data"),
        (changed(blob, cardinality="2"), blob.data, "expected 2, found 1"),
        (changed(blob), blob.data + b"z", "wrong length of the blob"),
        (packed, blob.data, "must not be compressed"),
    ):
        with pytest.raises(FormatError, match=message):
            DeletionVector.from_blob(metadata, data)


@pytest.mark.parametrize(
    ("names", "counts", "message"),
    [
        (["a", None, "c"], [1, 1, 1], "3 vectors need as many data files, got 2"),
        (["a", "b", "c"], [1, None, 1], "3 vectors need as many cardinalities, got 2"),
        (["a", "", "c"], [1, 1, 1], "no name of a data file"),
        (["a", "b", "c"], [1, 0, 1], "or no rows"),
        (["a", "b", "c"], ["x", "y", "z"], "cardinalities must be of type int64"),
        (["a", "\ud800", "c"], [1, 1, 1], "data files must be of type large_string"),
        (["a", "b"], [1, 1, 1], "got 2"),
    ],
)
def test_no_vector_is_left_out_of_a_footer(names: Any, counts: Any, message: str) -> None:  # noqa: ANN401
    frames = Frames.join([encode_frame(Bitmap([1]))] * 3)
    with pytest.raises(InvalidArgumentError, match=message):
        blobs.from_frames(frames, names, counts)
    with pytest.raises(InvalidArgumentError, match="3 frames but 0 cardinalities"):
        delta_file.from_frames(frames, [])


def test_blobs_of_copied_frames_can_have_more_properties_and_columns_any_form() -> None:
    frames = Frames.join([encode_frame(Bitmap([1]))] * 2)
    texts = {"origin": ['u"x\\', "ü"], 'a "name"': pa.array(["", "b"])}
    data, _ = blobs.from_frames(frames, ["a", "b"], [1, 1], properties=texts)
    pieces = pa.chunked_array([["a"], ["b"]])
    for names, counts in ((pieces, np.array([1, 1])), (pa.array(["a", "b"]), pa.array([1, 1]))):
        assert blobs.from_frames(frames, names, counts, properties=texts)[0] == data
    assert [dict(blob.properties) for blob in footer_of(data).blobs] == [
        {"referenced-data-file": "a", "cardinality": "1", "origin": 'u"x\\', 'a "name"': ""},
        {"referenced-data-file": "b", "cardinality": "1", "origin": "ü", 'a "name"': "b"},
    ]
    with pytest.raises(InvalidArgumentError, match="as many values of property origin, got 1"):
        blobs.from_frames(frames, ["a", "b"], [1, 1], properties={"origin": ["x"]})
