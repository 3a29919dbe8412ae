"""Whatever goes in comes out again, in every form that a vector can take."""

from __future__ import annotations

from uuid import UUID

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from delvec.vector import (
    Bitmap,
    DeletionVector,
    Descriptor,
    EqualityDeleteVector,
    blobs,
    copy_frames,
    decode_frame,
    encode_frame,
    pack,
    puffin,
)
from delvec.vector import descriptor as z85
from delvec.vector.frame import KEYS, MAX_POSITION
from delvec.vector.frame_batch import Frames, count_positions
from delvec.vector.puffin import read_blob, read_footer, reader_of

numbers = st.one_of(st.integers(0, 1000), st.integers(0, 2**34), st.integers(0, MAX_POSITION))
spans = st.tuples(numbers, st.integers(1, 70_000))


@st.composite
def bitmaps(draw: st.DrawFn, *, empty: bool = True) -> Bitmap:
    """Scattered values, runs, and dense stretches that become bitsets."""
    values = Bitmap(draw(st.lists(numbers, max_size=30)))
    runs = draw(st.lists(spans, max_size=3))
    ends = [min(start + length, MAX_POSITION) for start, length in runs]
    result = values | Bitmap.from_ranges([start for start, _ in runs], ends)
    if draw(st.booleans()):
        start = draw(st.integers(0, 2**33))
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        result |= Bitmap(start + np.flatnonzero(rng.random(20_000) < 0.5))
    return result if result or empty else Bitmap([7])


@given(bitmaps())
def test_frames(bitmap: Bitmap) -> None:
    frame = encode_frame(bitmap)
    decoded = decode_frame(frame, cardinality=bitmap.cardinality)
    assert decoded == bitmap
    assert encode_frame(decoded) == frame
    assert decode_frame(encode_frame(bitmap, KEYS), magic=KEYS) == bitmap


@given(bitmaps(empty=False))
def test_inline_descriptors_in_both_paddings(bitmap: Bitmap) -> None:
    payload = encode_frame(bitmap)[4:-4]
    padded = z85.encode(payload)
    marked = padded
    if missing := -len(payload) % 4:
        tail = b"\0" * missing + payload[len(payload) - 4 + missing :]
        marked = padded[:-5] + "#" * missing + z85.encode(tail)[missing:]
    for text in {padded, marked}:
        descriptor = Descriptor("i", text, None, len(payload), bitmap.cardinality)
        assert Descriptor.from_json(descriptor.to_json()) == descriptor
        assert descriptor.decode() == bitmap
        assert descriptor.inline_frame() == encode_frame(bitmap)


@given(
    st.lists(bitmaps(empty=False), min_size=1, max_size=5),
    st.integers(1, 2**16),
    st.sampled_from(["", "ab", "Zz09"]),
)
def test_delta_files(vectors: list[Bitmap], target: int, prefix: str) -> None:
    decoded = []
    for file in pack(vectors, target_size=target, prefix=prefix):
        for descriptor in file.descriptors:
            assert Descriptor.from_json(descriptor.to_json()) == descriptor
            assert descriptor.file_path == file.path
            start, length = descriptor.file_range
            decoded.append(descriptor.decode(file.data[start : start + length]))
    assert decoded == vectors


@given(st.lists(st.tuples(bitmaps(empty=False), st.text(min_size=1, max_size=20)), max_size=4))
def test_puffin_files_of_positions(vectors: list[tuple[Bitmap, str]]) -> None:
    wanted = [DeletionVector(bitmap, name) for bitmap, name in vectors]
    data = puffin.encode([vector.to_blob() for vector in wanted]).data
    listed = read_footer(reader_of(data), len(data)).blobs
    found = [DeletionVector.from_blob(blob, read_blob(reader_of(data), blob)) for blob in listed]
    assert found == wanted
    frames = copy_frames(data, [blob.offset for blob in listed], [b.length for b in listed])
    names, counts = [v.data_file for v in wanted], [len(v.positions) for v in wanted]
    copied, _ = blobs.from_frames(frames, names, counts)
    assert read_footer(reader_of(copied), len(copied)).blobs == listed


@given(bitmaps(), st.integers(0, 2**31 - 1), st.one_of(st.none(), st.integers(0, 100)))
def test_puffin_files_of_keys(keys: Bitmap, field_id: int, spec_id: int | None) -> None:
    wanted = EqualityDeleteVector(keys, field_id, spec_id)
    data = puffin.encode([wanted.to_blob()]).data
    [blob] = read_footer(reader_of(data), len(data)).blobs
    assert EqualityDeleteVector.from_blob(blob, read_blob(reader_of(data), blob)) == wanted


@given(st.uuids())
def test_uuids_in_descriptors(uuid: UUID) -> None:
    descriptor = Descriptor.relative(uuid, offset=1, size_in_bytes=34, cardinality=1)
    assert descriptor.file_path == f"deletion_vector_{uuid}.bin"


@given(st.binary(max_size=64))
def test_z85(data: bytes) -> None:
    assert z85.decode(z85.encode(data), len(data)) == data


small = st.lists(st.integers(0, 70_000), max_size=20).map(lambda values: Bitmap(values))  # noqa: PLW0108


@given(st.lists(bitmaps() | small, max_size=6))
def test_positions_are_counted_by_headers_alone(many: list[Bitmap]) -> None:
    frames = Frames.join(encode_frame(bitmap) for bitmap in many)
    assert count_positions(frames).tolist() == [bitmap.cardinality for bitmap in many]
