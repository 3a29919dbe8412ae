"""Whatever goes in comes out again, in every form that a vector can take."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from delvec.errors import FormatError
from delvec.vector import (
    Bitmap,
    DeletionVector,
    Descriptor,
    EqualityDeleteVector,
    blobs,
    copy_frames,
    decode_frame,
    delta_file,
    encode_frame,
    pack,
    puffin,
)
from delvec.vector import descriptor as z85
from delvec.vector.delta_file import VectorFile
from delvec.vector.frame import KEYS, MAX_POSITION, frame_payload
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
    files = list(pack(vectors, target_size=target, prefix=prefix))
    for file in files:
        assert len(file.data) <= target or len(file.descriptors) == 1
        for descriptor in file.descriptors:
            assert Descriptor.from_json(json.loads(json.dumps(descriptor.to_json()))) == descriptor
            assert descriptor.file_path == file.path
    assert len({file.path for file in files}) == len(files)
    assert decoded(*files) == vectors


def decoded(*files: VectorFile) -> list[Bitmap]:
    return [
        descriptor.decode(file.data[(span := descriptor.file_range)[0] : sum(span)])
        for file in files
        for descriptor in file.descriptors
    ]


@given(
    st.lists(
        st.tuples(bitmaps(empty=False), st.text(min_size=1, max_size=20)), min_size=1, max_size=4
    ),
    st.randoms(use_true_random=False),
)
def test_puffin_files_of_positions_however_they_come_there(
    vectors: list[tuple[Bitmap, str]],
    random: Any,  # noqa: ANN401
) -> None:
    [source] = pack([bitmap for bitmap, _ in vectors])
    order = random.sample(range(len(vectors)), len(vectors))
    wanted = [DeletionVector(*vectors[at]) for at in order]
    data = puffin.encode([vector.to_blob() for vector in wanted]).data
    listed = read_footer(reader_of(data), len(data)).blobs
    found = [DeletionVector.from_blob(blob, read_blob(reader_of(data), blob)) for blob in listed]
    assert found == wanted
    # By copying, from files of Delta and back into one.
    spans = [source.descriptors[at].file_range for at in order]
    frames = copy_frames(source.data, *zip(*spans, strict=True))
    names, counts = [v.data_file for v in wanted], [len(v.positions) for v in wanted]
    copied, offsets = blobs.from_frames(frames, names, counts)
    assert read_footer(reader_of(copied), len(copied)).blobs == listed
    assert [(blob.offset, blob.length) for blob in listed] == [
        *zip(offsets.tolist(), frames.lengths.tolist(), strict=True)
    ]
    back = copy_frames(copied, offsets, frames.lengths)
    file = delta_file.from_frames(back, np.array(counts), prefix="ab")
    assert {descriptor.file_path for descriptor in file.descriptors} == {file.path}
    assert file.path.startswith("ab/deletion_vector_")
    assert json.dumps([descriptor.to_json() for descriptor in file.descriptors])
    assert decoded(file) == [vector.positions for vector in wanted]


@given(bitmaps(), st.integers(0, 2**31 - 1), st.one_of(st.none(), st.integers(0, 100)))
def test_puffin_files_of_keys(keys: Bitmap, field_id: int, spec_id: int | None) -> None:
    wanted = EqualityDeleteVector(keys, field_id, spec_id)
    data = puffin.encode([wanted.to_blob()]).data
    [blob] = read_footer(reader_of(data), len(data)).blobs
    assert EqualityDeleteVector.from_blob(blob, read_blob(reader_of(data), blob)) == wanted


@given(st.binary(max_size=64), st.sampled_from([1, 100]))
@example(b"\xff" * 64, 100)
@example(bytes(range(255)), 1100)
def test_z85(data: bytes, times: int) -> None:
    """Short texts, long ones, and one that is decoded in pieces."""
    long = data * times
    assert z85.decode(z85.encode(long), len(long)) == long


small = st.lists(st.integers(0, 70_000), max_size=20).map(lambda values: Bitmap(values))  # noqa: PLW0108


@given(st.lists(bitmaps() | small, max_size=6))
def test_positions_are_counted_by_headers_alone(many: list[Bitmap]) -> None:
    frames = Frames.join(encode_frame(bitmap) for bitmap in many)
    assert count_positions(frames).tolist() == [bitmap.cardinality for bitmap in many]


def test_headers_of_all_lengths_are_counted_and_damaged_ones_refused() -> None:
    firsts = [np.arange(number) << 16 for number in (0, 1, 2, 7, 8, 9, 16, 17)]
    arrays = [Bitmap(first) for first in firsts]
    runs = [
        Bitmap.from_ranges(first, first + 60_000 + number) for number, first in enumerate(firsts)
    ]
    full = [Bitmap.from_ranges([0], [1 << 16]), Bitmap([5, 1 << 40]), Bitmap([1 << 40])]
    many = [*arrays, *runs, *full]
    encoded = [encode_frame(bitmap) for bitmap in many]
    counts = [bitmap.cardinality for bitmap in many]
    assert count_positions(Frames.join(encoded)).tolist() == counts
    assert [int(count_positions(Frames.join([each]))[0]) for each in encoded] == counts
    # One pair of key and cardinality too few; another cookie; nothing at all.
    for bitmap in ("3a300000 08000000" + 7 * "00000100", "3b300100 00 00000100", "39300000", ""):
        body = bytes.fromhex("d1d33964 0100000000000000 00000000" + bitmap)
        with pytest.raises(FormatError):
            count_positions(Frames.join([frame_payload(body)]))
