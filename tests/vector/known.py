"""Vectors whose bytes are known, as delta-spark, kernel-rs, delta-rs and Iceberg write them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from delvec.vector import Bitmap


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
