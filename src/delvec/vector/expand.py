"""Fast expansion of bitmaps to bits, container by container.

CRoaring returns values one by one, 8 bytes each, which for ten million rows is far more than the
rows take as bits. Here the portable form is read instead: bitset containers are copied, runs are
filled, and only sparse containers are expanded value by value.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import numpy as np
from pyroaring import BitMap64

from delvec.vector.portable import BITSET_SIZE, COOKIE_WITHOUT_RUNS, MAX_ARRAY, OFFSETS_FROM

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["to_octets"]

_COUNT: Final = Struct("<Q")
_KEY_AND_COOKIE: Final = Struct("<II")
_U32: Final = Struct("<I")
_CONTAINER_BITS: Final = 8 * BITSET_SIZE
# Up to these counts, setting single bits or runs is faster than packing 65,536 booleans.
_FEW_VALUES: Final = 512
_FEW_RUNS: Final = 64


def to_octets(bits: BitMap64, start: int, stop: int) -> NDArray[np.uint8]:
    """Return the numbers of [start, stop) as bits, lowest first, zero-padded to a container.

    `start` must be a multiple of 65,536. Takes one bit of memory per number of the window, and the
    encoded size of the values in it.
    """
    octets = np.zeros(-(-(stop - start) // _CONTAINER_BITS) * BITSET_SIZE, dtype=np.uint8)
    if not bits or bits.min() >= stop or bits.max() < start:
        return octets
    inside = bits
    if bits.min() < start or bits.max() >= stop:
        inside = bits & BitMap64(range(max(start, bits.min()), min(stop, bits.max() + 1)))
    data = memoryview(inside.serialize())
    position = _COUNT.size
    for _ in range(_COUNT.unpack_from(data)[0]):
        position = _expand_bucket(data, position, octets, start)
    return octets


def _expand_bucket(data: memoryview, position: int, octets: NDArray[np.uint8], start: int) -> int:
    """Set the bits of one bucket of valid bytes; return where the next one begins."""
    key, cookie = _KEY_AND_COOKIE.unpack_from(data, position)
    cookie_at = position + 4
    if cookie == COOKIE_WITHOUT_RUNS:
        count: int = _U32.unpack_from(data, cookie_at + 4)[0]
        header, is_run = cookie_at + 8, np.zeros(count, dtype=np.uint8)
    else:
        count = (cookie >> 16) + 1
        header = cookie_at + 4 + (count + 7) // 8
        flags = np.frombuffer(data[cookie_at + 4 : header], dtype=np.uint8)
        is_run = np.unpackbits(flags, count=count, bitorder="little")
    keys, less = np.frombuffer(data, dtype="<u2", count=2 * count, offset=header).reshape(-1, 2).T
    bodies = header + 4 * count
    if cookie == COOKIE_WITHOUT_RUNS or count >= OFFSETS_FROM:
        bodies += 4 * count
    places = ((key << 16) + keys.astype(np.int64)) * BITSET_SIZE - start // 8
    at, sparse = bodies, []
    for place, cardinality, runs in zip(
        places.tolist(), (less.astype(np.int64) + 1).tolist(), is_run.tolist(), strict=True
    ):
        target = octets[place : place + BITSET_SIZE]
        if runs:
            at = _fill_runs(data, at, target)
        elif cardinality > MAX_ARRAY:
            target[:] = np.frombuffer(data, np.uint8, BITSET_SIZE, at)
            at += BITSET_SIZE
        else:
            lows = np.frombuffer(data, "<u2", cardinality, at)
            at += 2 * cardinality
            if cardinality <= _FEW_VALUES:
                sparse.append(lows.astype(np.int64) + 8 * place)
                continue
            mask = np.zeros(_CONTAINER_BITS, dtype=np.bool_)
            mask[lows] = True
            target[:] = np.packbits(mask, bitorder="little")
    if sparse:
        _set(octets, np.concatenate(sparse))
    return at


def _fill_runs(data: memoryview, at: int, target: NDArray[np.uint8]) -> int:
    count = int.from_bytes(data[at : at + 2], "little")
    runs = np.frombuffer(data, "<u2", 2 * count, at + 2).reshape(-1, 2).astype(np.int64)
    if count <= _FEW_RUNS:
        for first, length in runs.tolist():
            _fill(target, first, first + length)
        return at + 2 + 4 * count
    edges = np.zeros(_CONTAINER_BITS + 1, dtype=np.int8)
    edges[runs[:, 0]] = 1
    edges[runs[:, 0] + runs[:, 1] + 1] = -1  # runs do not touch, so no edge is both
    target[:] = np.packbits(np.cumsum(edges[:-1], dtype=np.int8), bitorder="little")
    return at + 2 + 4 * count


def _fill(target: NDArray[np.uint8], first: int, last: int) -> None:
    """Set the bits from first to last, inclusive."""
    start, end = first >> 3, last >> 3
    head, tail = 0xFF << (first & 7) & 0xFF, 0xFF >> (7 - (last & 7))
    if start == end:
        target[start] |= head & tail
        return
    target[start] |= head
    target[start + 1 : end] = 0xFF
    target[end] |= tail


def _set(octets: NDArray[np.uint8], numbers: NDArray[np.int64]) -> None:
    """Set the bits of sorted numbers; bits of one byte are combined first."""
    places = numbers >> 3
    firsts = np.flatnonzero(np.diff(places, prepend=-1))
    bits = np.left_shift(np.uint8(1), (numbers & 7).astype(np.uint8))
    octets[places[firsts]] = np.bitwise_or.reduceat(bits, firsts)
