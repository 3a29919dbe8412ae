"""A set of 64-bit numbers as a compressed bitmap: row positions, or keys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import index
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pyroaring import BitMap64

from delvec.errors import InvalidArgumentError, PlanError
from delvec.vector import portable, roaring
from delvec.vector.roaring import PAGE_BITS, PAGE_BYTES

_LIMIT: Final = 2**63
_PARTS: Final = 60  # of the range, in the picture of a notebook
_BARS: Final = " ▁▂▃▄▅▆▇█"
_WIDEST: Final = 1 << 24  # the widest window of numbers that `batches` decodes at once


class Bitmap:
    """An immutable, compressed set of integers from 0 to 2**63 - 1.

    Built from anything that numpy reads as integers, in any order, duplicates allowed. Set
    operations return new bitmaps. Memory and time grow with the number of non-empty Roaring
    containers (each covers a range of 65,536 values); no call loops in Python over single values.

    >>> deleted = Bitmap([3, 4, 7, 11, 18, 29])
    >>> deleted
    Bitmap(6 values in 3..29, 40 B)
    >>> 7 in deleted, len(deleted | Bitmap.from_ranges([0], [10]))
    (True, 13)
    """

    __slots__ = ("_bits",)
    _bits: BitMap64

    def __init__(self, values: ArrayLike = ()) -> None:
        self._bits = roaring.from_numbers(_checked(values, "values"))

    @classmethod
    def from_ranges(cls, starts: ArrayLike, stops: ArrayLike) -> Bitmap:
        """Build from half-open ranges; they may touch, overlap or be empty. Loops over ranges.

        >>> Bitmap.from_ranges([0, 100], [500, 102])
        Bitmap(500 values in 0..499, 27 B)
        """
        firsts, lasts = _checked(starts, "starts"), _checked(stops, "stops", limit=_LIMIT)
        if firsts.shape != lasts.shape:
            raise InvalidArgumentError(
                f"ranges need as many stops as starts, got {len(lasts)} and {len(firsts)}"
            )
        if (lasts < firsts).any():
            raise InvalidArgumentError("a range ends before it starts")
        bits = BitMap64()
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            bits.add_range(first, last)
        return _wrap(bits)

    @classmethod
    def from_pages(cls, buckets: ArrayLike, pages: Any) -> Bitmap:  # noqa: ANN401
        """Build from what Spark's `bitmap_construct_agg` returns for positions plus one.

        Spark numbers from one: the row at position p is bit p % 32,768 of bucket
        1 + p // 32,768 when `bitmap_bucket_number(p + 1)` and `bitmap_bit_position(p + 1)` made
        the pages. Pages of one bucket are united. Takes about three times the memory of the
        pages.

        Args:
            buckets: One bucket number per page, 1 or more.
            pages: The pages, concatenated in one buffer or numpy array, or as an Arrow column.

        >>> page = bytes([0b1001]) + bytes(4095)
        >>> Bitmap.from_pages([1, 3], page * 2).to_numpy()
        array([    0,     3, 65536, 65539])
        """
        indexes = _checked(buckets, "buckets") - np.uint64(1)
        if (indexes >= np.uint64(_LIMIT // PAGE_BITS)).any():
            raise InvalidArgumentError(f"bucket numbers run from 1 to {_LIMIT // PAGE_BITS}")
        octets = _page_bytes(pages, len(indexes))
        return _wrap(roaring.from_pages(indexes, octets.reshape(-1, PAGE_BYTES)))

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
        """The number of bytes that `to_bytes` returns."""
        self._bits.run_optimize()
        return self._bits.__sizeof__()

    @property
    def cardinality(self) -> int:
        """The number of values."""
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
        """Return all values, ascending; 8 bytes each."""
        return np.frombuffer(self._bits.to_array(), dtype=np.int64)

    def batches(self, size: int) -> Iterator[NDArray[np.int64]]:
        """Yield all values, ascending, in batches of `size`; the last one may be smaller.

        Takes about 16 bytes of memory per value of one batch. Decodes window by window of `size`
        numbers, and only windows that are not empty.

        >>> [piece.tolist() for piece in Bitmap([3, 4, 7, 2**40]).batches(3)]
        [[3, 4, 7], [1099511627776]]
        """
        if size < 1:
            raise InvalidArgumentError(f"the size of a batch is 1 or more, got {size}")
        parts: list[NDArray[np.int64]] = []
        held = 0
        for found in self._windows(min(size, _WIDEST)):
            parts.append(found)
            held += len(found)
            if held >= size:
                joined = np.concatenate(parts)
                yield joined[:size]
                parts, held = [joined[size:]], held - size
        if held:
            yield np.concatenate(parts)

    def _windows(self, width: int) -> Iterator[NDArray[np.int64]]:
        """Yield the values of each window that is not empty; a window begins at a value."""
        start = self.min
        while start is not None:
            stop = min(start + width, _LIMIT)
            inside = self._bits & BitMap64(range(start, stop))
            yield np.frombuffer(inside.to_array(), dtype=np.int64)
            start = next(self._bits.iter_equal_or_larger(stop), None)

    def to_mask(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return a boolean for each number of the window, True for those in the set.

        >>> Bitmap([3, 4, 7]).to_mask(2, 6)
        array([False,  True,  True, False])
        """
        _check_window(start, stop)
        aligned = start >> 16 << 16
        octets = roaring.to_octets(self._bits, aligned, stop)
        mask = np.unpackbits(octets, count=stop - aligned, bitorder="little")
        return mask[start - aligned :].view(np.bool_)

    def to_words(self, length: int) -> NDArray[np.uint64]:
        """Return the numbers 0 to `length` - 1 as bits of 64-bit words, lowest bit first.

        Number p is bit p % 64 of word p // 64. Values of `length` and above are omitted.

        >>> Bitmap([0, 3, 64]).to_words(65)
        array([9, 1], dtype=uint64)
        """
        _check_window(0, length)
        words = roaring.to_octets(self._bits, 0, length).view("<u8")
        return words[: -(-length // 64)].astype(np.uint64, copy=False)

    def isdisjoint(self, other: Bitmap) -> bool:
        """Return whether the two have no value in common."""
        return self._bits.isdisjoint(other._bits)

    def issubset(self, other: Bitmap) -> bool:
        """Return whether every value is also in `other`."""
        return self._bits.issubset(other._bits)

    def __or__(self, other: object) -> Bitmap:
        return _wrap(self._bits | other._bits) if isinstance(other, Bitmap) else NotImplemented

    def __and__(self, other: object) -> Bitmap:
        return _wrap(self._bits & other._bits) if isinstance(other, Bitmap) else NotImplemented

    def __sub__(self, other: object) -> Bitmap:
        return _wrap(self._bits - other._bits) if isinstance(other, Bitmap) else NotImplemented

    def __contains__(self, value: int) -> bool:
        number = index(value)
        return 0 <= number < _LIMIT and number in self._bits

    def __len__(self) -> int:
        return len(self._bits)

    def __iter__(self) -> Iterator[int]:
        # Over a copy: encoding the bitmap meanwhile (run_optimize) moves its containers.
        return iter(self._bits.copy())

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

    def _repr_html_(self) -> str:
        """Show where the values are: the share of each of 60 equal parts of their range."""
        if not self._bits:
            return f"<pre>{self!r}</pre>"
        first, width = self.min or 0, (self.max or 0) - (self.min or 0) + 1
        edges = [first + width * part // _PARTS for part in range(_PARTS + 1)]
        ranks = [self._bits.rank(edge - 1) if edge else 0 for edge in edges]
        shares = (
            (after - before) / (high - low) if high > low else 0.0
            for before, after, low, high in zip(ranks, ranks[1:], edges, edges[1:], strict=False)
        )
        bars = "".join(_BARS[min(math.ceil(share * 8), 8)] for share in shares)
        return f"<pre>{self!r}\n{first} {bars} {self.max}</pre>"


def unite(old: Bitmap | None, found: Bitmap, *, rows: int, path: str) -> Bitmap:
    """Return the new vector of a data file: the rows deleted before, and those found now.

    Positions that cannot be right are refused here, before they delete other rows.

    >>> from delvec.vector import Bitmap
    >>> unite(Bitmap([1]), Bitmap([3]), rows=4, path="part-0.parquet").to_numpy().tolist()
    [1, 3]
    """
    if old is not None and not old.isdisjoint(found):
        raise PlanError(f"rows of {path} were found that are deleted already")
    united = found if old is None else old | found
    last = united.max
    if last is not None and last >= rows:
        raise PlanError(
            f"row {last} of {path} was found, and the log says that it has {rows} rows",
            hint="the statistics of the file are wrong; rewrite it with the engine that made it",
        )
    return united


def _wrap(bits: BitMap64) -> Bitmap:
    bitmap = Bitmap.__new__(Bitmap)
    bitmap._bits = bits  # noqa: SLF001
    return bitmap


def _checked(values: ArrayLike, what: str, limit: int = _LIMIT - 1) -> NDArray[np.uint64]:
    """Return `values` as a flat array of unsigned integers; reject values above the limit."""
    numbers = _as_integers(values)
    if numbers is None:
        raise InvalidArgumentError(
            f"{what} must be a flat sequence of integers from 0 to {limit},"
            f" got {getattr(values, 'dtype', type(values).__name__)}",
            hint="pass a list, a range or a numpy array of an integer type",
        )
    if numbers.size == 0:
        return np.empty(0, dtype=np.uint64)
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high > limit:
        raise InvalidArgumentError(f"{what} must lie in 0 to {limit}, got {low} to {high}")
    if numbers.dtype == np.int64:  # the usual case; none is negative, so no copy is needed
        return numbers.view(np.uint64)
    return numbers.astype(np.uint64)


def _as_integers(values: ArrayLike) -> NDArray[Any] | None:
    if isinstance(values, np.ma.MaskedArray):
        return None  # masked entries would be taken for values
    try:
        numbers = np.asarray(values)
        if numbers.dtype.kind == "f" and not isinstance(values, np.ndarray):
            numbers = np.array(values, dtype=object)  # numpy turns large integers into floats
    except ValueError:
        return None  # a list of lists of different lengths
    if numbers.ndim != 1:
        return None
    if numbers.dtype.kind in "iu" or numbers.size == 0:
        return numbers
    exact = numbers.dtype == object and all(type(number) is int for number in numbers)
    return numbers if exact else None


def _check_window(start: int, stop: int) -> None:
    if not 0 <= start <= stop <= _LIMIT:
        raise InvalidArgumentError(f"not a window of positions: {start} to {stop}")


def _page_bytes(pages: Any, count: int) -> NDArray[np.uint8]:  # noqa: ANN401
    """Return the bytes of `count` pages without copying them."""
    if hasattr(pages, "combine_chunks"):  # an Arrow column, maybe chunked
        pages = pages.combine_chunks()
    if hasattr(pages, "buffers"):
        octets, sizes = _arrow_bytes(pages)
    elif isinstance(pages, np.ndarray):
        octets, sizes = np.ascontiguousarray(pages).reshape(-1), set()
    else:
        octets, sizes = np.frombuffer(pages, dtype=np.uint8), set()
    if octets.dtype != np.uint8 or octets.size != count * PAGE_BYTES or sizes - {PAGE_BYTES}:
        raise InvalidArgumentError(
            f"{count} pages take {count * PAGE_BYTES} bytes, got {octets.size} of {octets.dtype}",
            hint="pass the pages of bitmap_construct_agg, 4,096 bytes each",
        )
    return octets


def _arrow_bytes(column: Any) -> tuple[NDArray[np.uint8], set[int]]:  # noqa: ANN401
    """Return the bytes of a binary Arrow column, and the distinct sizes of its values."""
    if column.null_count or str(column.type) not in ("binary", "large_binary"):
        raise InvalidArgumentError(
            f"pages must be binary and not null, got {column.type} with {column.null_count} nulls"
        )
    _, bounds, data = column.buffers()
    width = np.int32 if str(column.type) == "binary" else np.int64
    ends = np.frombuffer(bounds or bytes(8), dtype=width)[column.offset :][: len(column) + 1]
    octets = np.frombuffer(data or b"", dtype=np.uint8)
    return octets[ends[0] : ends[-1]], set(np.diff(ends).tolist())
