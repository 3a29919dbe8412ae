"""Damaged inputs for every decoder: whatever comes in, a value or a `FormatError` comes out.

Run as a program it feeds `count` inputs, under a memory limit set by the operating system, and
prints what it saw: `python -m tests.vector.mutations COUNT SEED`. Sound inputs are damaged in the
ways that find bugs in decoders (bits, lengths, cuts, copies); frames are also repaired after the
damage, with the right length and CRC, since otherwise no damage would reach the bitmap.
"""

from __future__ import annotations

import json
import random
import resource
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from delvec.errors import FormatError
from delvec.vector import (
    Bitmap,
    DeletionVector,
    Descriptor,
    EqualityDeleteVector,
    copy_frames,
    decode_frame,
    delta_file,
    encode_frame,
    pack,
    portable,
    puffin,
)
from delvec.vector import descriptor as z85
from delvec.vector.frame import KEYS, POSITIONS, decode_payload, frame_payload
from delvec.vector.puffin import Blob, read_blob, read_footer, reader_of
from tests.vector import lz4

Decoder = tuple[str, "Callable[[bytes], object]", list[bytes]]

_MAGICS = (POSITIONS, KEYS, bytes.fromhex("d0d33964"))
MEMORY_HEADROOM = 512 << 20  # all inputs are under 64 KiB
_EXTREMES = [
    *(0, 1, 0x7F, 0xFF, 0xFFFF, 12346, 12347),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1),
]


def _bitmaps() -> list[Bitmap]:
    rng = np.random.default_rng(3)
    return [
        Bitmap(),
        Bitmap([3, 4, 7, 11, 18, 29]),
        Bitmap(range(500)),
        Bitmap(rng.integers(0, 200_000, 900)),
        Bitmap(rng.integers(0, 65_536, 9_000)),
        Bitmap([1, 2**33, 5 << 32]),
        Bitmap(rng.integers(0, 2**62, 40)),
        Bitmap.from_ranges(np.arange(0, 400_000, 50_000), np.arange(9, 400_009, 50_000)),
    ]


def _native(bitmap: Bitmap) -> bytes:
    body = bitmap.to_bytes()[12:]  # one bucket: behind count and key
    return bytes.fromhex("d0d33964 01000000") + len(body).to_bytes(4, "little") + body


def _repaired(payload: bytes) -> bytes:
    try:
        return frame_payload(payload)
    except FormatError:  # the damage hit the magic number
        return payload


def _json(data: bytes) -> Any:  # noqa: ANN401
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return {}


def _descriptor(data: bytes) -> object:
    value = _json(data)
    descriptor = Descriptor.from_json(value)
    path, span = descriptor.file_path, descriptor.file_range
    inline = descriptor.decode() if descriptor.storage_type == "i" else None
    return path, span, inline, Descriptor.from_json(descriptor.to_json())


def _z85(data: bytes) -> object:
    return z85.decode(data.decode("latin-1"), len(data) // 5 * 4 - data[-1:].count(b"3"))


def _puffin(data: bytes) -> object:
    read = reader_of(data)
    footer = read_footer(read, len(data))
    for blob in footer.blobs:
        content = read_blob(read, blob)
        if blob.type == "deletion-vector-v1":
            DeletionVector.from_blob(blob, content)
        elif blob.type == "equality-delete-vector-v1":
            EqualityDeleteVector.from_blob(blob, content)
    return footer


def _blobs() -> list[Blob]:
    bitmaps = _bitmaps()[:4]
    positions = [DeletionVector(bitmap, "s3://b/x.parquet").to_blob() for bitmap in bitmaps]
    return positions + [EqualityDeleteVector(bitmap, 1, 0).to_blob() for bitmap in bitmaps]


def _with_footer(payload: bytes, flags: int = 0) -> object:
    """Damage of the footer alone, behind sound blobs."""
    body = b"".join(blob.data for blob in _BLOBS)
    trailer = len(payload).to_bytes(4, "little") + flags.to_bytes(4, "little") + b"PFA1"
    return _puffin(b"PFA1" + body + b"PFA1" + payload + trailer)


def _footer(blobs: list[Blob]) -> bytes:
    return puffin.encode(blobs).data[4 + sum(len(blob.data) for blob in blobs) + 4 : -12]


def _copy(data: bytes) -> object:
    spans = list(delta_file.frame_ranges(data))
    return copy_frames(data, [start for start, _ in spans], [length for _, length in spans])


_BLOBS = _blobs()


def decoders() -> list[Decoder]:
    """Name, decoder and sound inputs."""
    bitmaps = _bitmaps()
    payloads = [encode_frame(bitmap)[4:-4] for bitmap in bitmaps]
    natives = [_native(bitmap) for bitmap in bitmaps[1:5]]
    keys = [encode_frame(bitmap, KEYS)[4:-4] for bitmap in bitmaps]
    inline = [
        json.dumps(
            Descriptor("i", z85.encode(payload), None, len(payload), len(bitmap)).to_json()
        ).encode()
        for bitmap, payload in zip(bitmaps[1:3], payloads[1:3], strict=True)
    ]
    relative = [
        json.dumps(d.to_json()).encode() for file in pack(bitmaps[1:4]) for d in file.descriptors
    ]
    absolute = [json.dumps(Descriptor("p", "s3://b/a%20b/x.bin", 1, 40, 6).to_json()).encode()]
    files = [puffin.encode(_BLOBS).data, puffin.encode([]).data]
    footers = [_footer(_BLOBS[:count]) for count in range(len(_BLOBS) + 1)]
    squeezed = [pa.compress(footer, codec="zstd", asbytes=True) for footer in footers[:3]]
    squeezed += [lz4.compress(footer) for footer in footers[:3]]
    return [
        ("bitmap", Bitmap.from_bytes, [bitmap.to_bytes() for bitmap in bitmaps]),
        ("payload", lambda data: decode_payload(data, allow_native=True), payloads + natives),
        ("frame", decode_frame, [encode_frame(bitmap) for bitmap in bitmaps]),
        ("repaired frame", lambda data: decode_frame(_repaired(data), allow_native=True), payloads),
        ("keys", lambda data: decode_payload(data, magic=KEYS), keys),
        ("z85", _z85, [z85.encode(payload).encode() for payload in payloads]),
        ("descriptor", _descriptor, inline + relative + absolute),
        ("delta file", _copy, [file.data for file in pack(bitmaps[1:])]),
        ("puffin", _puffin, files),
        ("footer", _with_footer, footers),
        ("compressed footer", lambda data: _with_footer(data, flags=1), squeezed),
    ]


def _check_value(bitmap: Bitmap, data: bytes) -> None:
    """What was accepted is a whole and proper bitmap: nothing in the input was passed over."""
    values = bitmap.to_numpy() if len(bitmap) < 10**6 else np.empty(0, np.int64)
    assert (np.diff(values) > 0).all()
    assert Bitmap.from_bytes(bitmap.to_bytes()) == bitmap
    if data[:4] not in _MAGICS and len(data) >= 8:  # the bare form, of which all must be used
        count = int.from_bytes(data[:8], "little")
        assert portable._end_of_buckets(memoryview(data), count) == len(data)


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Change a sound input in one to three places."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(7):
            case 0 if at < len(out):
                out[at] ^= 1 << chance.randrange(8)
            case 1 if at < len(out):
                out[at] = chance.randrange(256)
            case 2:
                del out[at:]
            case 3:
                del out[at : at + chance.randrange(1, 9)]
            case 4:
                out[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 5:
                width, order = chance.choice((2, 4, 8)), chance.choice(("little", "big"))
                value = chance.choice(_EXTREMES) & ((1 << 8 * width) - 1)
                out[at : at + width] = value.to_bytes(width, order)  # type: ignore[arg-type]
            case _:
                other = chance.randrange(len(out) + 1)
                out[at:at] = out[other : other + chance.randrange(1, 33)]
    return bytes(out)


def run(count: int, seed: int) -> Counter[str]:
    """Feed `count` damaged inputs and count the outcomes; anything unexpected is raised."""
    chance = random.Random(seed)
    seen: Counter[str] = Counter()
    targets = decoders()
    for name, decode, samples in targets:
        for sample in samples:
            decode(sample)  # undamaged they are fine
        seen[f"{name}: sound"] += len(samples)
    for number in range(count):
        name, decode, samples = targets[number % len(targets)]
        data = damaged(chance.choice(samples), chance)
        try:
            value = decode(data)
            if isinstance(value, Bitmap):
                _check_value(value, data)
        except FormatError as error:
            str(error)  # must print, too
            seen[f"{name}: {type(error).__name__}"] += 1
        except BaseException as error:
            raise AssertionError(f"{name}: {type(error).__name__} for {data.hex()}") from error
        else:
            seen[f"{name}: value"] += 1
    return seen


def _limit_memory() -> None:
    with open("/proc/self/statm") as statm:  # noqa: PTH123
        pages = int(statm.read().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_HEADROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    run(200, 0)  # imports and caches are in before the limit is set
    if sys.platform == "linux":
        _limit_memory()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = run(int(sys.argv[1]), int(sys.argv[2]))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    sys.stdout.write(json.dumps({"outcomes": outcomes, "grown_kib": grown}))
