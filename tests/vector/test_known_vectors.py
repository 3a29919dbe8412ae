"""Vectors whose bytes are known, as delta-spark, kernel-rs, delta-rs and Iceberg write them."""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID
from zlib import crc32

import numpy as np
import pytest

from delvec.errors import FormatError
from delvec.vector import Bitmap, Descriptor, delta_file, encode_frame, pack
from delvec.vector import descriptor as z85
from delvec.vector.frame import decode_frame, decode_payload, frame_payload


class KnownVector(NamedTuple):
    """Positions and the exact payload (magic and bitmap) that engines write for them."""

    name: str
    positions: list[int]
    payload: bytes
    inline: str | None = None
    crc: str | None = None


_ARRAY = "d1d33964 0100000000000000 00000000 3a300000 01000000"

KNOWN: Final = [
    KnownVector(
        "specification example",
        [3, 4, 7, 11, 18, 29],
        bytes.fromhex(_ARRAY + "0000 0500 10000000 0300 0400 0700 0b00 1200 1d00"),
        inline="^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    ),
    KnownVector(
        "two rows, by Databricks",
        [0, 9],
        bytes.fromhex(_ARRAY + "0000 0100 10000000 0000 0900"),
        crc="2a671846",
    ),
    KnownVector(
        "one run, by delta-spark",
        list(range(500)),
        bytes.fromhex("d1d33964 0100000000000000 00000000 3b300000 01 0000 f301 0100 0000 f301"),
        crc="078dd0e0",
    ),
    KnownVector(
        "inline, by delta-rs",
        [0, 5],
        bytes.fromhex(_ARRAY + "0000 0100 10000000 0000 0500"),
        inline="^Bg9^0rr910000000000iXQKl0rr91000315c8Xg000f5",
    ),
    KnownVector(
        "inline with four rows, by delta-rs",
        [0, 1, 4, 5],
        bytes.fromhex(_ARRAY + "0000 0300 10000000 0000 0100 0400 0500"),
        inline="^Bg9^0rr910000000000iXQKl0rr91000935c8Xg000311onP9",
    ),
    KnownVector(
        "inline, zero-padded",
        [3],
        bytes.fromhex(_ARRAY + "0000 0000 10000000 0300"),
        inline="^Bg9^0rr910000000000iXQKl0rr91000005c8Xg0@@r3",
    ),
]

MARK_PADDED: Final = "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg##093"
"""Row 3 as the Rust crate pads it; read as zero-padded it would be row 28168."""

_ALL_CONTAINERS = [
    Bitmap([5, 7]),
    Bitmap.from_ranges([65_537, 131_073], [66_536, 196_607]),
    Bitmap(np.array([10, 20]) + 2**32),
    Bitmap.from_ranges([2**32 + 65_546, 2**32 + 131_073], [2**32 + 66_036, 2**32 + 196_607]),
]

ICEBERG: Final = {
    "empty": (Bitmap(), 20),
    "small alternating": (Bitmap([1, 3, 5, 7, 9]), 50),
    "small and large": (Bitmap([100, 101, 2147483747, 2147483748]), 56),
    "all container types": (
        _ALL_CONTAINERS[0] | _ALL_CONTAINERS[1] | _ALL_CONTAINERS[2] | _ALL_CONTAINERS[3],
        94,
    ),
}
"""Position sets of Iceberg's own golden blobs, with the length of the frame that Java writes."""


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_known_positions_are_the_bytes_that_engines_write(known: KnownVector) -> None:
    frame = encode_frame(Bitmap(known.positions))
    assert frame[:4] == len(known.payload).to_bytes(4, "big")
    assert frame[4:-4] == known.payload
    assert frame[-4:] == crc32(known.payload).to_bytes(4, "big")
    assert frame[-4:].hex() == (known.crc or frame[-4:].hex())
    bitmap = decode_payload(known.payload, cardinality=len(known.positions))
    assert bitmap.to_numpy().tolist() == known.positions
    assert frame_payload(known.payload) == frame


@pytest.mark.parametrize("known", [k for k in KNOWN if k.inline], ids=lambda known: known.name)
def test_inline_vectors_decode_and_encode(known: KnownVector) -> None:
    sizes = {"sizeInBytes": len(known.payload), "cardinality": len(known.positions)}
    for offset in ({}, {"offset": None}):
        entry = {"storageType": "i", "pathOrInlineDv": known.inline, **sizes, **offset}
        descriptor = Descriptor.from_json(entry)
        assert descriptor.decode().to_numpy().tolist() == known.positions
        assert z85.encode(known.payload) == known.inline
        assert descriptor.inline_frame() == encode_frame(Bitmap(known.positions))
        assert (descriptor.unique_id, descriptor.file_path) == (f"i{known.inline}", None)
        assert "offset" not in descriptor.to_json()
    marked = Descriptor("i", MARK_PADDED, None, 34, 1)
    assert marked.decode() == Bitmap([3]), "not another row"
    assert marked.inline_frame() == encode_frame(Bitmap([3]))


def test_the_whole_file_of_a_databricks_table() -> None:
    [file] = pack([Bitmap([0, 9])])
    assert file.data == bytes.fromhex("01 00000024") + KNOWN[1].payload + bytes.fromhex("2a671846")
    assert len(file.data) == 45
    assert [(d.offset, d.size_in_bytes, d.cardinality) for d in file.descriptors] == [(1, 36, 2)]
    assert list(delta_file.frame_ranges(file.data)) == [(1, 44)]


@pytest.mark.parametrize("name", ICEBERG)
def test_iceberg_golden_sets_take_the_length_that_java_writes(name: str) -> None:
    bitmap, length = ICEBERG[name]
    frame = encode_frame(bitmap)
    assert len(frame) == length
    assert decode_frame(frame) == bitmap
    if name == "all container types":
        assert bitmap.cardinality == 132_561


def test_one_array_container_takes_two_bytes_a_row_and_one_run_takes_31() -> None:
    for count in (1, 2, 6, 4096):
        assert len(encode_frame(Bitmap(range(0, 3 * count, 3)))) - 8 == 32 + 2 * count
    assert len(encode_frame(Bitmap(range(1000, 50_000)))) - 8 == 31


def test_the_example_of_the_delta_specification_is_refused_as_all_engines_do() -> None:
    old = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    with pytest.raises(FormatError, match="expected magic d1d33964"):
        Descriptor("i", old, None, 40, 6).decode()


# 32-bit Roaring bitmaps: {1}, {0} and none.
ONE = bytes.fromhex("3a300000 01000000 0000 0000 10000000 0100")
ZERO = bytes.fromhex("3a300000 01000000 0000 0000 10000000 0000")
EMPTY = bytes.fromhex("3a300000 00000000")


def test_java_writes_empty_buckets_for_gaps_and_they_are_read() -> None:
    """[1, 2**33] as Java has it: keys 0, 1 (empty) and 2."""
    keys = [key.to_bytes(4, "little") for key in range(3)]
    body = (3).to_bytes(8, "little") + keys[0] + ONE + keys[1] + EMPTY + keys[2] + ZERO
    frame = frame_payload(bytes.fromhex("d1d33964") + body)
    assert decode_frame(frame) == Bitmap([1, 2**33])
    assert len(encode_frame(Bitmap([1, 2**33]))) == len(frame) - 12
    # The end of a bitmap is found by its containers: runs, but for one.
    firsts = np.arange(17) << 16
    many = Bitmap.from_ranges(firsts, firsts + 9) - Bitmap.from_ranges([6 << 16], [7 << 16])
    many |= Bitmap([(6 << 16) + 5, (6 << 16) + 7])
    body = (2).to_bytes(8, "little") + keys[0] + EMPTY + keys[1] + encode_frame(many)[20:-4]
    decoded = decode_frame(frame_payload(bytes.fromhex("d1d33964") + body))
    assert decoded == Bitmap(many.to_numpy() + 2**32)


def test_the_native_layout_is_read_and_never_written() -> None:
    parts = [len(part).to_bytes(4, "little") + part for part in (ONE, EMPTY, ONE)]
    native = bytes.fromhex("d0d33964 03000000") + b"".join(parts)
    frame = b"".join((len(native).to_bytes(4, "big"), native, crc32(native).to_bytes(4, "big")))
    expected = Bitmap([1, 2**33 + 1])
    assert decode_frame(frame, allow_native=True) == expected
    descriptor = Descriptor("u", "0" * 20, 1, len(native), 2)
    assert descriptor.decode(frame) == expected
    with pytest.raises(FormatError, match="found d0d33964"):
        decode_frame(frame)
    assert encode_frame(expected)[4:8] == bytes.fromhex("d1d33964")


def test_a_prefix_is_a_folder() -> None:
    descriptor = Descriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)
    name = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert descriptor.file_path == f"ab/{name}"
    assert descriptor.unique_id == "uab^-aqEH.-t@S}K{vb[*k^@4"
    uuid = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
    written = Descriptor.relative(uuid, prefix="ab", offset=4, size_in_bytes=40, cardinality=6)
    assert written == descriptor
    assert Descriptor.from_json(written.to_json()) == descriptor


def test_an_absent_offset_means_the_first_vector_of_the_file() -> None:
    [file] = pack([Bitmap([0, 9])])
    descriptor = Descriptor("u", file.descriptors[0].path_or_inline, None, 36, 2)
    assert descriptor.file_range == (1, 44)
    assert descriptor.unique_id == f"u{descriptor.path_or_inline}"
    assert descriptor.decode(file.data[1:]) == Bitmap([0, 9])
