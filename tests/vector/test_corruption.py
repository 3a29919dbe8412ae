"""Every way in which bytes can be wrong has an error of its own that says what and where."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from struct import pack as pack_struct
from typing import Any, Literal
from zlib import crc32

import numpy as np
import pytest
from pyroaring import BitMap64

from delvec.errors import (
    ChecksumError,
    FormatError,
    InvalidArgumentError,
    MagicError,
    TruncatedError,
)
from delvec.vector import (
    Bitmap,
    Descriptor,
    Frames,
    copy_frames,
    decode_frame,
    delta_file,
    encode_frame,
    pack,
    puffin,
)
from delvec.vector import descriptor as z85
from delvec.vector import frame as frame_module
from delvec.vector.frame import (
    KEYS,
    MAX_POSITION,
    check_frame,
    decode_payload,
    frame_payload,
    portable_frame,
)
from tests.vector import mutations

MAGIC = bytes.fromhex("d1d33964")
ONE = bytes.fromhex("3a300000 01000000 0000 0000 10000000 0100")  # a 32-bit Roaring bitmap {1}


def buckets(*pairs: tuple[int, bytes], count: int | None = None) -> bytes:
    body = b"".join(pack_struct("<I", key) + bitmap for key, bitmap in pairs)
    return pack_struct("<Q", len(pairs) if count is None else count) + body


def one(text: str) -> bytes:
    """Give one bucket, of which the bitmap is written in hex."""
    return buckets((0, bytes.fromhex(text)))


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b"", TruncatedError, "ends inside the bucket count"),
        (b"\1\0\0", TruncatedError, "ends inside the bucket count"),
        (buckets(count=2**31), FormatError, "impossible bucket count .* at most 2147483647"),
        (buckets(count=2**64 - 1), FormatError, "impossible bucket count"),
        (buckets((0, ONE), count=7), TruncatedError, "too short for its 7 buckets"),
        (buckets((0, ONE), (1, b"\x3a\x30\0\0\0"), count=2), TruncatedError, "container count"),
        (buckets((0, ONE))[:-1], TruncatedError, "ends inside the Roaring container"),
        (buckets((0, ONE)) + b"xyz", FormatError, "bytes after the last bucket .* at byte 38"),
        (buckets((5, ONE), (3, ONE)), FormatError, "keys not ascending .* over 5, found 3"),
        (buckets((5, ONE), (5, ONE)), FormatError, "keys not ascending"),
        (buckets((2**31, ONE)), FormatError, "key out of bounds"),
        (buckets((2**32 - 1, ONE)), FormatError, "key out of bounds"),
        (buckets((2**31, bytes.fromhex("3a30000000000000"))), FormatError, "key out of bounds"),
        (buckets((0, b"\x39\x30\0\0" + ONE[4:])), MagicError, "expected cookie 12346 or 12347"),
        (buckets((0, ONE[:4] + pack_struct("<I", 65_537) + ONE[8:])), FormatError, "too many"),
        (buckets((0, ONE[:4] + pack_struct("<I", 60_000) + ONE[8:])), TruncatedError, "header"),
        (buckets((0, b"\x3b\x30\xff\xff" + ONE[4:])), TruncatedError, "run flags"),
        (one("3b300000 01 0000 0500 ff00 0000 0100"), TruncatedError, "inside the Roaring contain"),
        (one("3a300000 01000000 0000 0100 10000000 0900 0100"), FormatError, "not strictly incr"),
        (one("3b300000 01 0000 0500 0200 0000 0500 0300 0100"), FormatError, "invalid Roaring con"),
        (one("3a300000 01000000 0000 ffff 10000000" + "00" * 8192), FormatError, "cardinality is"),
    ],
)
def test_a_wrong_bitmap_is_named(body: bytes, kind: type[FormatError], message: str) -> None:
    with pytest.raises(kind, match=message) as failure:
        decode_frame(frame_payload(MAGIC + body))
    assert failure.value.offset is not None
    assert failure.value.offset >= 8  # behind length and magic
    with pytest.raises(kind):
        Bitmap.from_bytes(body)


def native(*bitmaps: bytes, count: int | None = None, lengths: list[int] | None = None) -> bytes:
    sizes = lengths or [len(bitmap) for bitmap in bitmaps]
    parts = [pack_struct("<I", size) + bitmap for size, bitmap in zip(sizes, bitmaps, strict=True)]
    head = pack_struct("<I", len(bitmaps) if count is None else count)
    return bytes.fromhex("d0d33964") + head + b"".join(parts)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (native()[:6], "too short for a bitmap count"),
        (native(ONE, count=2**32 - 1), "too short for its 4294967295 buckets"),
        (native(ONE, ONE, lengths=[18, 17]), "wrong bitmap length"),
        (native(ONE, ONE[:4], lengths=[18, 4]), "ends inside"),
        (native(ONE) + b"z", "bytes after the last bitmap"),
        (native(ONE + bytes(8), count=2), "wrong bitmap length"),
    ],
)
def test_a_wrong_native_layout_is_named(payload: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode_payload(payload, allow_native=True)


def frame(positions: list[int]) -> bytes:
    return encode_frame(Bitmap(positions))


def corrupt(data: bytes, at: int, bit: int = 0x40) -> bytes:
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (b"", TruncatedError, "at least 12 bytes, found 0 bytes"),
        (frame([1])[:11], TruncatedError, "too short for a frame"),
        (frame([1])[:-1], FormatError, "length field does not match .* expected 33, found 34"),
        (frame([1]) + b"\0", FormatError, "length field does not match"),
        (b"\xff\xff\xff\xff" + frame([1])[4:], FormatError, "found 4294967295"),
        (frame([1])[:20] + b"\1" + frame([1])[21:], ChecksumError, "CRC"),
        (frame([1])[:-1] + b"\0", ChecksumError, "checksum"),
        (encode_frame(Bitmap([1]), KEYS), MagicError, "expected magic d1d33964, found 45445631"),
    ],
)
def test_a_wrong_frame_is_named(data: bytes, kind: type[FormatError], message: str) -> None:
    with pytest.raises(kind, match=message):
        decode_frame(data)
    with pytest.raises(kind, match=message):
        check_frame(data)


def test_every_flipped_bit_of_a_frame_is_noticed_in_a_large_one_too() -> None:
    small = frame([3, 4, 7, 11, 18, 29])
    for bit in range(len(small) * 8):
        with pytest.raises(FormatError):
            decode_frame(corrupt(small, bit // 8, 1 << bit % 8))
    bitmap = Bitmap(np.random.default_rng(1).integers(0, 10**9, 600_000))
    good = encode_frame(bitmap)
    assert len(good) > 1 << 20
    assert decode_frame(good, cardinality=bitmap.cardinality) == bitmap
    for at in (9, 30, len(good) // 2, len(good) - 6, len(good) - 1):
        with pytest.raises(ChecksumError):
            decode_frame(corrupt(good, at))
    for data in (good, frame([1, 2])):
        with pytest.raises(FormatError, match="wrong number of values"):
            decode_frame(data, cardinality=1)


def test_a_keys_frame_is_never_taken_for_positions() -> None:
    with pytest.raises(MagicError):
        decode_frame(frame([1]), magic=KEYS)
    with pytest.raises(MagicError):
        frame_payload(encode_frame(Bitmap([1]), KEYS)[4:-4])


def test_positions_that_some_engine_cannot_hold_are_not_written() -> None:
    assert decode_frame(encode_frame(Bitmap([MAX_POSITION]))) == Bitmap([MAX_POSITION])
    with pytest.raises(InvalidArgumentError, match="largest that all engines read"):
        encode_frame(Bitmap([MAX_POSITION + 1]))
    keys = Bitmap([2**63 - 1])
    assert decode_frame(encode_frame(keys, KEYS), magic=KEYS) == keys


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"storageType": "x"}, "unknown storage type .* expected u, p or i, found 'x'"),
        ({"storageType": None}, "found None"),
        ({"storageType": ["u"]}, "found .'u'."),
        ({"storageType": "r"}, "Hint: relative-path vectors .* adaptiveMetadata"),
        ({"pathOrInlineDv": 7}, "pathOrInlineDv is not a string"),
        ({"offset": -1}, "offset of a deletion vector is out of bounds"),
        ({"offset": 2**31}, "from 0 to 2147483647, found 2147483648"),
        ({"offset": "1"}, "found '1'"),
        ({"sizeInBytes": None}, "sizeInBytes"),
        ({"sizeInBytes": 1.0}, "sizeInBytes"),
        ({"sizeInBytes": True}, "found True"),
        ({"cardinality": 2**63}, "cardinality"),
    ],
)
def test_a_wrong_descriptor_is_named(changes: dict[str, Any], message: str) -> None:
    right = {"storageType": "u", "pathOrInlineDv": "0" * 20, "offset": 1}
    right |= {"sizeInBytes": 34, "cardinality": 1}
    with pytest.raises(FormatError, match=re.compile(message, re.DOTALL)):
        Descriptor.from_json({**right, **changes})
    values: list[Any] = [None, [], "x", 7]
    for value in values:
        with pytest.raises(FormatError, match="not an object"):
            Descriptor.from_json(value)


OF_A_UUID = "0" * 20
LEADS_ELSEWHERE: dict[tuple[Literal["u", "p"], str], list[str]] = {
    ("u", "too short for a UUID"): ["0" * 19],
    ("u", "not a Z85 character"): ["0" * 19 + "é"],
    ("u", "too large"): ["#" * 20],
    ("u", "may lead out of the table"): [
        prefix + OF_A_UUID
        for prefix in ("../", "a/../b", "/etc", "a\\b", "a\0", "ä", "s3:", "%2e%2e")
    ],
    ("p", "not absolute and plain"): [
        *("relative/dv.bin", "s3://bucket/a/../../x.bin", "file:///a/%2e%2e/x.bin"),
        *("file:///a/x.bin?query", "/a/%00x.bin", "C:/dv.bin", "/a/%ff.bin", "/a/%zz.bin"),
        *("/a/%5c.bin", "/a/b\n.bin", " /a/b.bin"),
        *("s3://b/x.bin#", "s3://b/x.bin?", "s3://b//x.bin"),
    ],
    ("p", "names no bucket"): ["s3://[x/dv.bin", "s3://../dv.bin", "s3:/dv.bin"],
    ("p", "on another host"): ["file://host/dv.bin", "//host/share/dv.bin"],
}


@pytest.mark.parametrize(
    ("kind", "message", "path"),
    [(*case, path) for case, paths in LEADS_ELSEWHERE.items() for path in paths],
)
def test_paths_that_lead_away_are_refused(kind: Literal["u", "p"], message: str, path: str) -> None:
    with pytest.raises(FormatError, match=message):
        _ = Descriptor(kind, path, 1, 34, 1).file_path


@pytest.mark.parametrize(
    ("encoded", "path"),
    [
        ("file:///lake/a%20b/dv.bin", "/lake/a b/dv.bin"),
        ("file:/lake/a%2520b/dv.bin", "/lake/a%20b/dv.bin"),
        ("/lake/dv.bin", "/lake/dv.bin"),
        ("file://localhost/lake/dv.bin", "/lake/dv.bin"),
        ("/lake/é/dv.bin", "/lake/é/dv.bin"),
        ("s3a://bucket/lake/a%20b/dv.bin", "s3a://bucket/lake/a b/dv.bin"),
        ("abfss://c@a.dfs.core.windows.net/x.bin", "abfss://c@a.dfs.core.windows.net/x.bin"),
    ],
)
def test_absolute_paths_are_decoded_once(encoded: str, path: str) -> None:
    assert Descriptor("p", encoded, 1, 34, 1).file_path == path


def test_errors_of_a_vector_name_its_file_and_the_byte_in_it() -> None:
    [file] = pack([Bitmap([1]), Bitmap([2, 3])])
    descriptor = file.descriptors[1]
    start, length = descriptor.file_range
    bad = bytearray(file.data[start : start + length])
    bad[10] ^= 1
    with pytest.raises(ChecksumError) as failure:
        descriptor.decode(bytes(bad))
    assert (failure.value.path, failure.value.offset) == (file.path, start)
    with pytest.raises(FormatError, match="vector cut short"):
        descriptor.decode(bytes(bad)[:-1])
    with pytest.raises(FormatError, match="too many bytes"):
        descriptor.decode(bytes(bad) + b"z")
    wrong = Descriptor("u", descriptor.path_or_inline, start, descriptor.size_in_bytes, 9)
    with pytest.raises(FormatError, match=f"{file.path} at byte {start + 4}: expected 9, found 2"):
        wrong.decode(file.data[start : start + length])
    with pytest.raises(InvalidArgumentError, match=f"pass the {length} bytes from {start} on"):
        descriptor.decode()
    with pytest.raises(FormatError, match="in an inline deletion vector"):
        Descriptor("i", z85.encode(MAGIC + bytes(12)), None, 16, 1).decode()
    with pytest.raises(FormatError, match="in an inline deletion vector"):
        Descriptor("i", "0" * 40, None, 32, 1).inline_frame()


@pytest.mark.parametrize(
    ("text", "size", "message"),
    [
        ("abc", 2, "expected 5 characters for 2 bytes, found 3 characters"),
        ("0000î", 4, "not a Z85 character at byte 4: found 'î'"),
        ("000π0", 4, "not a Z85 character"),
        ('0000"', 4, "not a Z85 character"),
        ("0000\x7f", 4, "not a Z85 character"),
        ("0000\ud800", 4, "not a Z85 character"),
        ("%nSc1", 4, "too large at byte 0"),
        ("0000z%nSc1", 8, "too large at byte 5"),
        (300 * "0000z" + "%nSc1", 1204, "too large at byte 1500"),
        (70_000 * "0000z" + "%nSc1", 280_004, "too large at byte 350000"),
        (300 * "00000" + "0000î", 1204, "not a Z85 character at byte 1504"),
        ("HelloWorld", 12, "expected 15 characters for 12 bytes"),
        ("HelloWorld", 4, "wrong length"),
        ("HelloWorld", 7, "padding is not zero"),
        ("##093", 3, "padding does not match the size"),
        ("####0", 1, "padding does not match"),
        ("##zzz", 2, "too large"),
        ("##0é3", 2, "not a Z85 character at byte 3"),
    ],
    ids=lambda value: str(value)[-40:],
)
def test_wrong_z85_is_named(text: str, size: int, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        z85.decode(text, size)


def test_a_wrong_delta_file_is_named() -> None:
    [file] = pack([Bitmap([1]), Bitmap([2, 3])])
    forged = file.data[:43] + b"\xff\xff\xff\xff" + file.data[47:]
    for data, kind, message in (
        (b"\2" + file.data[1:], FormatError, "expected version 1, found 2"),
        (b"", FormatError, "found an empty file"),
        (file.data[:-1], TruncatedError, r"dv\.bin at byte 43: expected 44 bytes, found 43"),
        (forged, TruncatedError, "expected 4294967303 bytes"),
    ):
        with pytest.raises(kind, match=message):
            list(delta_file.frame_ranges(data, path="dv.bin"))


@pytest.mark.parametrize(
    ("change", "kind", "where"),
    [
        (lambda data, o, s: (corrupt(data, int(o[2]) + 9), o, s), ChecksumError, 2),
        (lambda data, o, s: (corrupt(data, int(o[1])), o, s), FormatError, 1),
        (lambda data, o, s: (corrupt(data, int(o[0]) + 4), o, s), ChecksumError, 0),
        (lambda data, o, s: (data[:-1], o, s), TruncatedError, 3),
        (lambda data, o, s: (data, o + np.array([0, 0, 1, 0]), s), FormatError, 2),
        (lambda data, o, s: (data, o, s + np.array([0, 1, 0, 0])), FormatError, 1),
        (lambda data, o, s: (data, o - np.array([9, 0, 0, 0]), s), TruncatedError, 0),
        (lambda data, o, s: (data, o, s - np.array([0, 0, 99, 0])), TruncatedError, 2),
        (lambda data, o, s: (data, o, s | np.array([0, 0, 0, 2**62])), TruncatedError, 3),
        (lambda data, o, s: (data, o, s | np.array([2**63 - 1, 0, 0, 0])), TruncatedError, 0),
    ],
)
def test_copying_frames_checks_each_and_names_the_first_that_is_wrong(
    change: Callable[..., Any], kind: type[FormatError], where: int
) -> None:
    [file] = pack([Bitmap([1]), Bitmap([2, 3]), Bitmap(range(99)), Bitmap([5])])
    offsets, lengths = np.array([descriptor.file_range for descriptor in file.descriptors]).T
    copied = copy_frames(file.data, offsets, lengths)
    assert copied.data == file.data[1:]
    data, wrong_offsets, wrong_lengths = change(file.data, offsets, lengths)
    with pytest.raises(kind) as failure:
        copy_frames(data, wrong_offsets, wrong_lengths)
    assert failure.value.offset is not None
    assert failure.value.offset - wrong_offsets[where] in (0, 4)


def test_copying_refuses_frames_that_iceberg_could_not_read() -> None:
    """A frame in the native layout is sound for Delta, but must not be carried over as it is."""
    payload = native(ONE)
    data = b"\1" + pack_struct(">I", len(payload)) + payload + pack_struct(">I", crc32(payload))
    with pytest.raises(MagicError):
        copy_frames(data, [1], [len(payload) + 8])
    assert portable_frame(data[1:]) == encode_frame(Bitmap([1]))
    inline = Descriptor("i", z85.encode(payload), None, len(payload), 1)
    assert inline.decode() == Bitmap([1])
    assert inline.inline_frame() == frame([1])
    assert portable_frame(frame([1])) == frame([1])
    with pytest.raises(ChecksumError):
        portable_frame(corrupt(data[1:], 20))
    magic_only = pack_struct(">I", 4) + MAGIC + pack_struct(">I", crc32(MAGIC))
    with pytest.raises(TruncatedError, match="vector without a bitmap"):
        copy_frames(magic_only, [0], [12])


@pytest.mark.parametrize(
    ("offsets", "lengths", "message"),
    [
        ([1], [2, 3], "1 offsets but 2 lengths"),
        ([None], [42], "offsets must be a flat sequence of integers"),
        ([1.0], [42], "offsets must be"),
        ([1], ["42"], "lengths must be"),
        ([[1]], [[42]], "offsets must be"),
    ],
)
def test_copying_takes_columns_of_integers(offsets: Any, lengths: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(InvalidArgumentError, match=message):
        copy_frames(b"\1" + frame([1]), offsets, lengths)


def test_frames_of_several_files_are_put_together() -> None:
    files = [b"\1" + frame([1]) + frame([2, 3]), frame(list(range(99)))]
    parts = [copy_frames(files[0], [43, 1], [44, 42]), copy_frames(files[1], [0], [39])]
    together = Frames.concat(parts)
    found = [
        decode_frame(together.data[start : start + length])
        for start, length in zip(together.offsets, together.lengths, strict=True)
    ]
    assert found == [Bitmap([2, 3]), Bitmap([1]), Bitmap(range(99))]
    assert Frames.concat([]).data == b""


def test_limits_of_the_formats_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = [Bitmap([1]), Bitmap([2, 3])]
    monkeypatch.setattr(delta_file, "MAX_FILE_SIZE", 60)
    assert len(list(pack(vectors, target_size=1 << 40))) == 2
    with pytest.raises(InvalidArgumentError, match="empty vector"):
        list(pack([Bitmap()]))
    with pytest.raises(InvalidArgumentError, match="letters and digits"):
        list(pack(vectors, prefix="../x"))
    with pytest.raises(InvalidArgumentError, match="do not fit one file"):
        delta_file.from_frames(Frames.join(map(encode_frame, vectors)), [1, 2])
    monkeypatch.setattr(frame_module, "_MAX_PAYLOAD", 35)
    assert encode_frame(vectors[0])
    with pytest.raises(InvalidArgumentError, match="the most that a frame can hold"):
        encode_frame(vectors[1])
    monkeypatch.setattr(puffin, "_MAX_FOOTER", 60)
    assert puffin.encode([]).data
    with pytest.raises(InvalidArgumentError, match="too long for one Puffin file"):
        puffin.encode([puffin.Blob("t", b"")])


def test_a_vector_that_claims_no_rows_but_has_bytes_is_refused() -> None:
    [file] = pack([Bitmap([1])])
    wrong = Descriptor("u", file.descriptors[0].path_or_inline, 1, 34, 0)
    with pytest.raises(FormatError, match="expected 0, found 1"):
        wrong.decode(file.data[1:])
    empty = Descriptor("i", "", None, 0, 0)  # as delta-spark writes it
    assert empty.decode() == Bitmap()
    assert empty.inline_frame() == encode_frame(Bitmap())


# A bucket that is announced with runs and has none is shorter than CRoaring would write it.
UNFLAGGED = bytes.fromhex("3b300000 00 0000 0000 0100")
FLAGGED_BEYOND = UNFLAGGED[:4] + b"\x02" + UNFLAGGED[5:]  # for a second container, and has one
KEYS_OF_FOUR = b"".join(pack_struct("<HH", key, 0) for key in range(4))
FOUR_UNFLAGGED = bytes.fromhex("3b300300 00") + KEYS_OF_FOUR + bytes(16) + b"\1\0" * 4
FOUR_TIMES = [(key, FOUR_UNFLAGGED) for key in range(4)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (buckets((0, UNFLAGGED)) + b"TRAILNG", "bytes after the last bucket"),
        (buckets((0, FLAGGED_BEYOND)) + b"TRAILNG", "bytes after the last bucket"),
        (buckets((0, ONE), (1, UNFLAGGED)) + b"TRAILNG", "bytes after the last bucket"),
        (buckets(*FOUR_TIMES, (2**31 + 5, bytes.fromhex("3a30000000000000"))), "key out of bounds"),
    ],
)
def test_nothing_hides_behind_a_bucket_shorter_than_usual(body: bytes, message: str) -> None:
    assert BitMap64.deserialize(body).__sizeof__() == len(body)  # sizes alone do not tell
    with pytest.raises(FormatError, match=message):
        Bitmap.from_bytes(body)
    assert Bitmap.from_bytes(buckets((0, UNFLAGGED))) == Bitmap([1])


def test_damaged_inputs_end_in_a_value_or_a_format_error() -> None:
    """In a process of its own: a crash of the C library or a runaway allocation is its end."""
    count = 5_000
    command = [sys.executable, "-m", "tests.vector.mutations", str(count), "1"]
    # An hour is no measurement, only an end for a decoder that hangs.
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)
    outcomes = Counter(report["outcomes"])
    damaged = {name: n for name, n in outcomes.items() if not name.endswith(": sound")}
    assert sum(damaged.values()) == count
    for name, _, _ in mutations.decoders():  # each decoder saw inputs that it refused
        assert any(key.startswith(f"{name}: ") and key.endswith("Error") for key in damaged), name
    for name in ("bitmap", "payload", "repaired frame", "keys", "footer", "descriptor"):
        assert outcomes[f"{name}: value"] > 0  # and some that were still fine
    assert report["grown_kib"] < 16 * 1024
