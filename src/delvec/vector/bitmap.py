"""A set of 64-bit numbers as a compressed bitmap: row positions, or keys."""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyroaring import BitMap64

from delvec.errors import InvalidArgumentError
from delvec.vector import portable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import ArrayLike, NDArray

__all__ = ["PAGE_BITS", "PAGE_BYTES", "Bitmap"]

PAGE_BITS: Final = 32_768
PAGE_BYTES: Final = PAGE_BITS // 8

_LIMIT: Final = 2**63
_MAX_ARRAY: Final = 4096  # Roaring holds a container as sorted values up to this many
_EXPANDED_AT_ONCE: Final = 4096  # containers, at most 4,096 values of 8 bytes in each: 128 MiB
_WINDOW: Final = 1 << 24  # rows whose mask is held at once while words are made
_BUCKET_HEADER: Final = Struct("<III")  # key, cookie, container count
_COOKIE_WITHOUT_RUNS: Final = 12346


class Bitmap:
    """An immutable, compressed set of integers from 0 to 2**63 - 1.

    Built from anything that numpy reads as integers, in any order, duplicates allowed. Set
    operations give new bitmaps. Memory and time grow with the number of Roaring containers (one
    per 65,536 values of range that hold anything); no call loops in Python over single values.

    >>> deleted = Bitmap([3, 4, 7, 11, 18, 29])
    >>> deleted
    Bitmap(6 values in 3..29, 40 B)
    >>> 7 in deleted, len(deleted | Bitmap.from_ranges([0], [10]))
    (True, 13)
    """

    __slots__ = ("_bits",)
    _bits: BitMap64

    def __init__(self, values: ArrayLike = ()) -> None:
        self._bits = _from_values(_checked(values, "values"))

    @classmethod
    def from_ranges(cls, starts: ArrayLike, stops: ArrayLike) -> Bitmap:
        """Build from half-open ranges; they may touch, overlap or be empty.

        >>> Bitmap.from_ranges([0, 100], [500, 102])
        Bitmap(500 values in 0..499, 27 B)
        """
        firsts, lasts = _checked(starts, "starts"), _checked(stops, "stops", limit=_LIMIT)
        if firsts.shape != lasts.shape:
            raise InvalidArgumentError(
                f"ranges need as many stops as starts, got {len(lasts)} and {len(firsts)}"
            )
        bits = BitMap64()
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            bits.add_range(first, last)
        return _wrap(bits)

    @classmethod
    def from_pages(cls, buckets: ArrayLike, pages: Any) -> Bitmap:  # noqa: ANN401
        """Build from what Spark's `bitmap_construct_agg` returns for positions plus one.

        Spark numbers from one: the row at position p is bit p % 32,768 of bucket
        1 + p // 32,768 when `bitmap_bucket_number(p + 1)` and `bitmap_bit_position(p + 1)` made
        the pages. Pages of one bucket are united. Takes about three times the pages' bytes.

        Args:
            buckets: One bucket number per page, 1 or more.
            pages: The pages back to back as one buffer, or an array of shape (n, 4096).

        >>> page = bytes([0b1001]) + bytes(4095)
        >>> Bitmap.from_pages([1, 3], page * 2).to_numpy()
        array([    0,     3, 65536, 65539])
        """
        indexes = _checked(buckets, "buckets") - np.uint64(1)
        if (indexes >= np.uint64(_LIMIT // PAGE_BITS)).any():
            raise InvalidArgumentError(f"bucket numbers run from 1 to {_LIMIT // PAGE_BITS}")
        matrix = _as_bytes(pages)
        if matrix.size != len(indexes) * PAGE_BYTES:
            raise InvalidArgumentError(
                f"{len(indexes)} pages take {len(indexes) * PAGE_BYTES} bytes, got {matrix.size}",
                hint="pass the pages of bitmap_construct_agg, 4,096 bytes each",
            )
        return _wrap(_from_pages(indexes, matrix.reshape(-1, PAGE_BYTES)))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Bitmap:
        """Decode the portable 64-bit Roaring form.

        Raises:
            FormatError: If `data` is not exactly one valid bitmap.
        """
        return _wrap(portable.decode(memoryview(data)))

    def to_bytes(self) -> bytes:
        """Encode as the portable 64-bit Roaring form, run-optimised."""
        self._bits.run_optimize()
        return self._bits.serialize()

    @property
    def byte_size(self) -> int:
        """How many bytes `to_bytes` gives."""
        self._bits.run_optimize()
        return self._bits.__sizeof__()

    @property
    def cardinality(self) -> int:
        """How many values it holds."""
        return len(self._bits)

    @property
    def min(self) -> int | None:
        """The smallest value, None if empty."""
        return self._bits.min() if self._bits else None

    @property
    def max(self) -> int | None:
        """The largest value, None if empty."""
        return self._bits.max() if self._bits else None

    def rank(self, value: int) -> int:
        """Count the values that are at most `value`.

        >>> Bitmap([3, 4, 7]).rank(4)
        2
        """
        return 0 if value < 0 else self._bits.rank(min(value, _LIMIT - 1))

    def to_numpy(self) -> NDArray[np.int64]:
        """Give all values, ascending; 8 bytes for each."""
        return np.frombuffer(self._bits.to_array(), dtype=np.int64)

    def to_mask(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Give one boolean for each number of the window, True where it is held.

        >>> Bitmap([3, 4, 7]).to_mask(2, 6)
        array([False,  True,  True, False])
        """
        _check_window(start, stop)
        mask = np.zeros(stop - start, dtype=np.bool_)
        mask[self._window(start, stop) - start] = True
        return mask

    def to_words(self, length: int) -> NDArray[np.uint64]:
        """Give the numbers 0 to `length` - 1 as bits of 64-bit words, lowest bit first.

        Number p is bit p % 64 of word p // 64. Values from `length` up are left out.

        >>> Bitmap([0, 3, 64]).to_words(65)
        array([9, 1], dtype=uint64)
        """
        _check_window(0, length)
        words = np.zeros(-(-length // 64), dtype="<u8")
        octets = words.view(np.uint8)
        for start in range(0, length, _WINDOW):
            stop = min(start + _WINDOW, length)
            packed = np.packbits(self.to_mask(start, stop), bitorder="little")
            octets[start // 8 : start // 8 + len(packed)] = packed
        return words

    def isdisjoint(self, other: Bitmap) -> bool:
        """Tell whether the two share no value."""
        return self._bits.isdisjoint(other._bits)

    def issubset(self, other: Bitmap) -> bool:
        """Tell whether every value is in `other` too."""
        return self._bits.issubset(other._bits)

    def __or__(self, other: object) -> Bitmap:
        if not isinstance(other, Bitmap):
            return NotImplemented
        return _wrap(self._bits | other._bits)

    def __and__(self, other: object) -> Bitmap:
        if not isinstance(other, Bitmap):
            return NotImplemented
        return _wrap(self._bits & other._bits)

    def __sub__(self, other: object) -> Bitmap:
        if not isinstance(other, Bitmap):
            return NotImplemented
        return _wrap(self._bits - other._bits)

    def __contains__(self, value: int) -> bool:
        return 0 <= value < _LIMIT and value in self._bits

    def __len__(self) -> int:
        return len(self._bits)

    def __iter__(self) -> Iterator[int]:
        return iter(self._bits)

    def __eq__(self, other: object) -> bool:
        return self._bits == other._bits if isinstance(other, Bitmap) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.cardinality, self.min, self.max))

    def __reduce__(self) -> tuple[Any, ...]:
        return Bitmap.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        if not self._bits:
            return f"Bitmap(empty, {self.byte_size} B)"
        values = "value" if self.cardinality == 1 else "values"
        return (
            f"Bitmap({self.cardinality:,} {values} in {self.min}..{self.max}, {self.byte_size:,} B)"
        )

    def _window(self, start: int, stop: int) -> NDArray[np.int64]:
        """The values in [start, stop), without expanding the rest."""
        if start >= stop or self.max is None or self.max < start:
            return np.empty(0, dtype=np.int64)
        inside = self._bits & BitMap64(range(start, min(stop, self.max + 1)))
        return np.frombuffer(inside.to_array(), dtype=np.int64)


def _wrap(bits: BitMap64) -> Bitmap:
    bitmap = Bitmap.__new__(Bitmap)
    bitmap._bits = bits  # noqa: SLF001
    return bitmap


def _checked(
    values: ArrayLike | Iterable[int], what: str, limit: int = _LIMIT - 1
) -> NDArray[np.uint64]:
    """Give `values` as a flat array of unsigned numbers, refusing what is not in [0, limit]."""
    numbers = np.asarray(values)
    if numbers.size == 0:
        return np.empty(0, dtype=np.uint64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"{what} must be a flat sequence of integers from 0 to 2**63 - 1,"
            f" got {numbers.dtype} of shape {numbers.shape}"
        )
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high > limit:
        raise InvalidArgumentError(f"{what} must lie in 0 to {limit}, got {low} to {high}")
    return numbers.astype(np.uint64, copy=False)


def _check_window(start: int, stop: int) -> None:
    if not 0 <= start <= stop < _LIMIT:
        raise InvalidArgumentError(f"not a window of positions: {start} to {stop}")


def _as_bytes(pages: Any) -> NDArray[np.uint8]:  # noqa: ANN401
    if isinstance(pages, np.ndarray):
        return np.ascontiguousarray(pages).view(np.uint8).reshape(-1)
    return np.frombuffer(pages, dtype=np.uint8)


def _from_values(numbers: NDArray[np.uint64]) -> BitMap64:
    # CRoaring takes array.array by pointer; from any other buffer each number becomes an object.
    buffer = array("Q")
    buffer.frombytes(np.ascontiguousarray(numbers).data.cast("B"))
    return BitMap64(buffer, optimize=False)


def _from_pages(indexes: NDArray[np.uint64], pages: NDArray[np.uint8]) -> BitMap64:
    """Unite pages of 32,768 bits; full ones are copied as Roaring bitsets, never expanded."""
    indexes, pages = _united(indexes, pages)
    keys, slots = np.unique(indexes >> np.uint64(1), return_inverse=True)
    halves = np.zeros((len(keys), 2, PAGE_BYTES), dtype=np.uint8)
    halves[slots, indexes & np.uint64(1)] = pages
    bitsets = halves.reshape(len(keys), 2 * PAGE_BYTES)
    counts = np.bitwise_count(bitsets.view(np.uint64)).sum(axis=1, dtype=np.int64)
    dense = counts > _MAX_ARRAY
    bits = _from_bitsets(keys[dense], counts[dense], bitsets[dense])
    sparse = np.flatnonzero(~dense & (counts > 0))
    for first in range(0, len(sparse), _EXPANDED_AT_ONCE):
        chosen = sparse[first : first + _EXPANDED_AT_ONCE]
        ones = _ones(bitsets[chosen].reshape(-1))
        bits |= _from_values(
            keys[chosen][ones >> 16] << np.uint64(16) | (ones & 0xFFFF).view(np.uint64)
        )
    return bits


def _ones(octets: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The numbers of the bits that are set; only bytes that hold one are expanded."""
    used = np.flatnonzero(octets)
    hits = np.flatnonzero(np.unpackbits(octets[used], bitorder="little"))
    numbers: NDArray[np.int64] = used[hits >> 3] * 8 + (hits & 7)
    return numbers


def _united(
    indexes: NDArray[np.uint64], pages: NDArray[np.uint8]
) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """Sort pages by index and unite those that share one."""
    order = np.argsort(indexes, kind="stable")
    indexes, pages = indexes[order], pages[order]
    unique, firsts = np.unique(indexes, return_index=True)
    if len(unique) < len(indexes):
        pages = np.bitwise_or.reduceat(pages, firsts, axis=0)
    return unique, pages


def _from_bitsets(
    keys: NDArray[np.uint64], counts: NDArray[np.int64], bitsets: NDArray[np.uint8]
) -> BitMap64:
    """Build from containers of 65,536 bits that each hold over 4,096 values, keys ascending."""
    high = (keys >> np.uint64(16)).astype(np.uint32)
    buckets, firsts = np.unique(high, return_index=True)
    bounds = [*firsts.tolist(), len(keys)]
    parts = [len(buckets).to_bytes(8, "little")]
    for bucket, first, last in zip(buckets.tolist(), bounds, bounds[1:], strict=False):
        count = last - first
        header = np.empty((count, 2), dtype="<u2")
        header[:, 0] = keys[first:last] & np.uint64(0xFFFF)
        header[:, 1] = counts[first:last] - 1
        offsets = _containers_begin(count) + np.arange(count, dtype="<u4") * bitsets.shape[1]
        parts += [
            _BUCKET_HEADER.pack(bucket, _COOKIE_WITHOUT_RUNS, count),
            header.tobytes(),
            offsets.astype("<u4").tobytes(),
            bitsets[first:last].tobytes(),
        ]
    return BitMap64.deserialize(b"".join(parts))


def _containers_begin(count: int) -> int:
    return 8 + 8 * count  # cookie and count, then a header and an offset per container
