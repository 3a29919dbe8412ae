"""The vector core: encoding, decoding, copying, and what it costs to start the command."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap64

from benchmarks.runner import Contest, Peer, benchmark
from delvec.vector import Bitmap, blobs, copy_frames, decode_frame, encode_frame, pack
from delvec.vector.roaring import PAGE_BITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

MILLION = 1_000_000
COUNT = 10 * MILLION
BARE_AT_MOST = 1.3
COPY_AT_MOST = 5.0


def dense() -> NDArray[np.int64]:
    """Every second row of 20 million."""
    return np.arange(0, 2 * COUNT, 2)


def scattered() -> NDArray[np.int64]:
    """Ten million rows at random of a billion."""
    return np.unique(np.random.default_rng(1).integers(0, 1000 * MILLION, COUNT))


def clustered() -> NDArray[np.int64]:
    """Ten thousand runs of a thousand rows, over a billion."""
    starts = np.arange(0, 1000 * MILLION, 100_000)
    return (starts[:, None] + np.arange(1000)).reshape(-1)


SHAPES = {"dense": dense, "scattered": scattered, "clustered": clustered}


def bare_encode(positions: NDArray[np.int64]) -> bytes:
    """Encode by pyroaring alone, as fast as it can: numbers by pointer, no frame, no CRC."""
    buffer = array("Q")
    buffer.frombytes(positions.data.cast("B"))
    bitmap = BitMap64(buffer, optimize=False)
    bitmap.run_optimize()
    return bitmap.serialize()


def packed(positions: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The same rows as one bit each."""
    mask = np.zeros(int(positions[-1]) + 1, dtype=np.bool_)
    mask[positions] = True
    return np.packbits(mask, bitorder="little")


def encode(shape: Callable[[], NDArray[np.int64]]) -> Contest:
    positions = shape()

    def agree(ours: bytes, bare: bytes, bits: NDArray[np.uint8]) -> None:
        assert ours[8:-4] == bare
        assert int(np.bitwise_count(bits).sum()) == len(positions)

    return Contest(
        lambda: encode_frame(Bitmap(positions)),
        [
            Peer("bare pyroaring", lambda: bare_encode(positions), BARE_AT_MOST),
            Peer("numpy packbits", lambda: packed(positions)),
        ],
        agree,
    )


def decode(shape: Callable[[], NDArray[np.int64]]) -> Contest:
    positions = shape()
    frame = encode_frame(Bitmap(positions))
    bare, bits = frame[8:-4], packed(positions)

    def agree(*results: NDArray[np.int64]) -> None:
        assert all(np.array_equal(result, positions) for result in results)

    return Contest(
        lambda: decode_frame(frame, cardinality=len(positions)).to_numpy(),
        [
            Peer(
                "bare pyroaring",
                lambda: np.frombuffer(BitMap64.deserialize(bare).to_array(), dtype=np.int64),
                BARE_AT_MOST,
            ),
            Peer("numpy packbits", lambda: np.flatnonzero(np.unpackbits(bits, bitorder="little"))),
        ],
        agree,
    )


for shape_name, make in SHAPES.items():
    benchmark(f"core/encode/{shape_name}")(lambda make=make: encode(make))  # type: ignore[misc]
    benchmark(f"core/decode/{shape_name}")(lambda make=make: decode(make))  # type: ignore[misc]


def rows_hit(share: float) -> tuple[NDArray[np.bool_], Bitmap]:
    """Return the rows of a file of 20 million that a delete matches, as mask and as bitmap."""
    mask = np.random.default_rng(3).random(2 * COUNT) < share
    return mask, Bitmap(np.flatnonzero(mask))


def pages(share: float) -> Contest:
    """Convert pages, as Spark aggregates them, to a bitmap."""
    mask, bitmap = rows_hit(share)
    count = -(-len(mask) // PAGE_BITS)
    octets = np.packbits(np.pad(mask, (0, count * PAGE_BITS - len(mask))), bitorder="little")
    buckets = np.arange(1, count + 1)

    def bare() -> BitMap64:
        buffer = array("Q")
        buffer.frombytes(np.flatnonzero(np.unpackbits(octets, bitorder="little")).data.cast("B"))
        return BitMap64(buffer, optimize=False)

    def agree(ours: Bitmap, theirs: BitMap64) -> None:
        assert ours == bitmap
        assert ours.to_bytes() == bytes(_optimised(theirs).serialize())

    return Contest(
        lambda: Bitmap.from_pages(buckets, octets), [Peer("numpy and pyroaring", bare)], agree
    )


def words(share: float) -> Contest:
    """Convert a bitmap to the words that a scan tests bits in."""
    mask, bitmap = rows_hit(share)
    bits = BitMap64.deserialize(bitmap.to_bytes())

    def bare() -> NDArray[np.uint64]:
        dead = np.zeros(len(mask), dtype=np.bool_)
        dead[np.frombuffer(bits.to_array(), dtype=np.int64)] = True
        return np.packbits(dead, bitorder="little").view(np.uint64)

    def agree(ours: NDArray[np.uint64], theirs: NDArray[np.uint64]) -> None:
        assert np.array_equal(ours, theirs)

    return Contest(lambda: bitmap.to_words(len(mask)), [Peer("pyroaring and numpy", bare)], agree)


def _optimised(bits: BitMap64) -> BitMap64:
    bits.run_optimize()
    return bits


for percent in (1, 50):
    benchmark(f"core/pages/{percent}%")(lambda share=percent / 100: pages(share))  # type: ignore[misc]
    benchmark(f"core/words/{percent}%")(lambda share=percent / 100: words(share))  # type: ignore[misc]


@benchmark("core/repack")
def repack() -> Contest:
    """Copy 100,000 small vectors from a Delta file to Puffin, footer included."""
    count = 100_000
    rng = np.random.default_rng(2)
    vectors = [Bitmap(rng.integers(0, 100_000, rng.integers(1, 8))) for _ in range(count)]
    [file] = pack(vectors, target_size=1 << 30)
    offsets = np.array([descriptor.offset for descriptor in file.descriptors])
    lengths = np.array([descriptor.size_in_bytes + 8 for descriptor in file.descriptors])
    cardinalities = np.array([descriptor.cardinality for descriptor in file.descriptors])
    names = [
        f"s3://lake/orders/day={i % 28 + 1:02d}/part-{i:05d}.c000.parquet" for i in range(count)
    ]
    spans = list(zip(offsets.tolist(), lengths.tolist(), strict=True))
    view = memoryview(file.data)

    def ours() -> bytes:
        frames = copy_frames(file.data, offsets, lengths)
        return blobs.from_frames(frames, names, cardinalities)[0]

    def copy() -> bytes:
        out = bytearray(b"PFA1")
        for start, length in spans:
            out += view[start : start + length]
        return bytes(out)

    def agree(repacked: bytes, copied: bytes) -> None:
        assert repacked.startswith(copied)

    return Contest(ours, [Peer("copying the bytes", copy, COPY_AT_MOST)], agree)


@benchmark("command/start")
def start() -> Contest:
    """`delvec --version`, against a bare Python and one that imports what any command needs."""
    command = str(Path(sys.executable).with_name("delvec"))

    def run(*arguments: str) -> Callable[[], object]:
        return lambda: subprocess.run(arguments, check=True, capture_output=True)

    return Contest(
        run(command, "--version"),
        [
            Peer("python -c pass", run(sys.executable, "-c", "pass")),
            Peer("python -c 'import click'", run(sys.executable, "-c", "import click")),
        ],
        rounds=15,
    )


def limit(seconds: float) -> Peer:
    """Return a peer that takes so long: a command has to be faster."""
    return Peer(f"{seconds:g} s", lambda: time.sleep(seconds), 1.0)


def command(*arguments: str) -> Callable[[], object]:
    """Return a function that runs the command in a process of its own."""
    path = str(Path(sys.executable).with_name("delvec"))
    return lambda: subprocess.run([path, *arguments], check=True, capture_output=True)


@benchmark("command/help")
def show_help() -> Contest:
    """`delvec --help`, against 0.3 s."""
    return Contest(command("--help"), [limit(0.3)], rounds=15)


@benchmark("command/history")
def show_history() -> Contest:
    """`delvec history` of a table with 100 versions, against 1 s."""
    folder = Path(tempfile.mkdtemp(prefix="delvec-bench-"))
    log = folder / "_delta_log"
    log.mkdir()
    schema = {"type": "struct", "fields": []}
    metadata = {
        "id": "0",
        "format": {"provider": "parquet"},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
        "configuration": {},
    }
    first = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    for version in range(100):
        info = {"commitInfo": {"timestamp": version, "operation": "WRITE"}}
        lines = [info, *(first if version == 0 else ())]
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    return Contest(command("history", str(folder)), [limit(1.0)], rounds=9)
