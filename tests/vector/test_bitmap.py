from __future__ import annotations

import operator
import os
import pickle
from array import array
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from pyroaring import BitMap64

from delvec.errors import InvalidArgumentError
from delvec.vector import Bitmap
from delvec.vector.roaring import PAGE_BITS, PAGE_BYTES

# Around the edges of pages, containers and buckets, and anywhere.
EDGES = [0, PAGE_BITS, 1 << 16, 1 << 32, 3 << 32, 1 << 48, (1 << 63) - 70_000]
positions = st.one_of(
    st.integers(0, 300),
    st.builds(lambda edge, shift: max(0, edge + shift), st.sampled_from(EDGES), st.integers(-5, 5)),
    st.integers(0, 2**63 - 1),
)
position_sets = st.sets(positions, max_size=60)
ranges = st.builds(
    lambda start, length: (start, min(start + length, 2**63 - 1)), positions, st.integers(0, 5_000)
)


Pair = tuple[Bitmap, frozenset[int]]
OPERATIONS = (operator.or_, operator.and_, operator.sub)


class BitmapAgainstSet(RuleBasedStateMachine):
    """Every bitmap that any sequence of operations gives equals the set that it models."""

    pairs = Bundle("pairs")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Pair] = []

    def keep(self, bitmap: Bitmap, model: set[int] | frozenset[int]) -> Pair:
        self.seen.append((bitmap, frozenset(model)))
        return self.seen[-1]

    @rule(target=pairs, values=position_sets)
    def from_values(self, values: set[int]) -> Pair:
        shuffled = np.array(list(values) * 2, dtype=np.int64)
        return self.keep(Bitmap(shuffled), values)

    @rule(target=pairs, spans=st.lists(ranges, max_size=4))
    def from_ranges(self, spans: list[tuple[int, int]]) -> Pair:
        bitmap = Bitmap.from_ranges([a for a, _ in spans], [b for _, b in spans])
        return self.keep(bitmap, {value for span in spans for value in range(*span)})

    @rule(target=pairs, one=pairs, other=pairs, operation=st.sampled_from(OPERATIONS))
    def combined(self, one: Pair, other: Pair, operation: Callable[[Any, Any], Any]) -> Pair:
        return self.keep(operation(one[0], other[0]), operation(one[1], other[1]))

    @rule(target=pairs, pair=pairs)
    def through_bytes(self, pair: Pair) -> Pair:
        data = pair[0].to_bytes()
        assert pair[0].byte_size == len(data)
        assert f" {len(data):,} B)" in repr(pair[0])
        assert pickle.loads(pickle.dumps(pair[0])) == pair[0]  # noqa: S301
        return self.keep(Bitmap.from_bytes(data), pair[1])

    @rule(one=pairs, other=pairs)
    def compare(self, one: Pair, other: Pair) -> None:
        assert (one[0] == other[0]) == (one[1] == other[1])
        assert one[0].isdisjoint(other[0]) == one[1].isdisjoint(other[1])
        assert one[0].issubset(other[0]) == one[1].issubset(other[1])
        if one[0] == other[0]:
            assert hash(one[0]) == hash(other[0])
            assert one[0].to_bytes() == other[0].to_bytes()

    @rule(pair=pairs, probe=positions)
    def look(self, pair: Pair, probe: int) -> None:
        bitmap, model = pair
        assert (probe in bitmap) == (probe in model)
        assert bitmap.rank(probe) == sum(value <= probe for value in model)
        start, stop = max(0, probe - 100), min(probe + 100, 2**63 - 1)
        mask = bitmap.to_mask(start, stop)
        assert (np.flatnonzero(mask) + start).tolist() == sorted(
            value for value in model if start <= value < stop
        )

    @invariant()
    def all_as_modelled(self) -> None:
        # Not only the newest: an operation must not change what it was given.
        for bitmap, model in self.seen[-4:]:
            assert bitmap.cardinality == len(bitmap) == len(model)
            assert (bitmap.min, bitmap.max) == (min(model, default=None), max(model, default=None))
            assert bitmap.to_numpy().tolist() == sorted(model)


TestBitmapAgainstSet = BitmapAgainstSet.TestCase
TestBitmapAgainstSet.settings = settings(max_examples=40, stateful_step_count=15)


@pytest.mark.slow
class TestBitmapAgainstSetForLong(BitmapAgainstSet.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(
        max_examples=int(os.environ.get("DELVEC_SLOW_EXAMPLES") or 20_000) // 10,
        stateful_step_count=40,
    )


@given(
    pages=st.dictionaries(
        st.one_of(st.integers(1, 6), st.integers(2**17 - 1, 2**17 + 3), st.just(2**48)),
        st.tuples(st.integers(0, 2**32 - 1), st.sampled_from([0.0001, 0.01, 0.3, 1.0])),
        max_size=6,
    ),
    repeat=st.booleans(),
)
@settings(max_examples=40)
def test_pages_of_spark_are_positions(pages: dict[int, tuple[int, float]], *, repeat: bool) -> None:
    buckets, rows, expected = [], [], []
    for bucket, (seed, density) in pages.items():
        bits = np.random.default_rng(seed).random(PAGE_BITS) < density
        halves = [bits & (np.arange(PAGE_BITS) % 2 == side) for side in (0, 1)]
        for part in halves if repeat else [bits]:  # pages of one bucket are united
            buckets.append(bucket)
            rows.append(np.packbits(part, bitorder="little"))
        expected.append((bucket - 1) * PAGE_BITS + np.flatnonzero(bits))
    matrix = np.array(rows, dtype=np.uint8).reshape(-1, PAGE_BYTES)
    wanted = Bitmap(np.concatenate(expected)) if expected else Bitmap()
    assert Bitmap.from_pages(buckets, matrix) == wanted
    assert Bitmap.from_pages(buckets, matrix.tobytes()) == wanted
    assert Bitmap.from_pages(buckets, matrix).to_bytes() == wanted.to_bytes()
    column = pa.array([row.tobytes() for row in rows], pa.binary())
    assert Bitmap.from_pages(buckets, column) == wanted
    pieces = pa.chunked_array([column[:1], column[1:]], pa.binary())
    assert Bitmap.from_pages(buckets, pieces) == wanted
    assert Bitmap.from_pages(buckets[2:], column[2:]) == Bitmap.from_pages(buckets[2:], matrix[2:])


stretches = st.lists(
    st.tuples(
        st.integers(0, 3_000_000),  # how far on it begins
        st.integers(1, 400_000),  # how long it is
        st.sampled_from([0.0005, 0.01, 0.0626, 0.3, 1.0]),  # around 1/16 arrays become bitsets
    ),
    min_size=1,
    max_size=8,
)


@given(
    stretches=stretches,
    start=st.sampled_from([0, 65_535, 2**32 - 200_000, 2**40, 15 * 2**32, 2**63 - 2**26]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_ascending_numbers_are_laid_out_as_croaring_would(
    stretches: list[tuple[int, int, float]], start: int, seed: int
) -> None:
    rng, position, parts = np.random.default_rng(seed), start, []
    for gap, length, density in stretches:
        position += gap
        parts.append(position + np.flatnonzero(rng.random(length) < density))
        position += length
    numbers = np.concatenate(parts)
    by_croaring = BitMap64(array("Q", numbers.tolist()))
    bitmap = Bitmap(numbers)
    assert np.array_equal(bitmap.to_numpy(), numbers)
    assert bitmap.to_bytes() == by_croaring.serialize()
    assert Bitmap(numbers[::-1]) == bitmap  # not ascending: handed over
    assert Bitmap(np.repeat(numbers[:5000], 2)) == Bitmap(numbers[:5000])


def test_numbers_over_several_blocks_and_thousands_of_buckets() -> None:
    """Three million numbers are three blocks; the step decides what their containers become."""
    for step in (1, 2, 15, 16, 17, 1000):
        numbers = 2**32 - 1_500_000 + np.arange(0, 3_000_000 * step, step)
        assert np.array_equal(Bitmap(numbers).to_numpy(), numbers)
    keys = np.sort(np.random.default_rng(4).integers(0, 2**63 - 1, 20_000))
    assert np.array_equal(Bitmap(keys).to_numpy(), keys)
    assert Bitmap.from_bytes(Bitmap(keys).to_bytes()) == Bitmap(keys)


@given(
    stretches=stretches,
    runs=st.lists(ranges, max_size=5),
    window=st.tuples(st.integers(0, 3_000_000), st.integers(0, 3_000_000)),
    optimised=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_masks_and_words_of_all_kinds_of_containers(
    stretches: list[tuple[int, int, float]],
    runs: list[tuple[int, int]],
    window: tuple[int, int],
    *,
    optimised: bool,
    seed: int,
) -> None:
    rng, position, mask = np.random.default_rng(seed), 0, np.zeros(6_000_000, dtype=np.bool_)
    for gap, length, density in stretches:
        position += gap // 8
        piece = mask[position : position + length]
        piece |= rng.random(len(piece)) < density
        position += length
    for first, last in runs:
        mask[first % 5_000_000 : first % 5_000_000 + last - first] = True
    bitmap = Bitmap(np.flatnonzero(mask))
    if optimised:
        bitmap.to_bytes()
    start, stop = min(window), max(window)
    assert np.array_equal(bitmap.to_mask(start, stop), mask[start:stop])
    words = bitmap.to_words(stop)
    bits = np.unpackbits(words.view(np.uint8), count=stop, bitorder="little")
    assert np.array_equal(bits.view(np.bool_), mask[:stop])
    assert not np.unpackbits(words.view(np.uint8), bitorder="little")[stop:].any()


def test_masks_over_borders_of_buckets_and_far_out() -> None:
    edge = 2**32
    bitmap = Bitmap.from_ranges([edge - 3, 5 * edge + 100_000], [edge + 2, 5 * edge + 300_000])
    assert np.flatnonzero(bitmap.to_mask(edge - 10, edge + 10)).tolist() == [7, 8, 9, 10, 11]
    assert bitmap.to_mask(5 * edge, 5 * edge + 400_000).sum() == 200_000
    assert not bitmap.to_mask(2 * edge, 2 * edge + 100).any()
    assert not Bitmap().to_mask(7, 9).any()
    assert len(bitmap.to_mask(9, 9)) == 0


@pytest.mark.parametrize("size", [1, 3, 999, 65_536, 70_001, 2**40])
def test_pieces_of_the_values_are_full_but_for_the_last(size: int) -> None:
    scattered = np.random.default_rng(5).integers(0, 2**40, 300)
    dense = (np.arange(70, 500), np.arange(100_000, 101_000, 2))
    numbers = np.unique(np.concatenate([*dense, scattered, [2**62, 2**63 - 2, 2**63 - 1]]))
    pieces = list(Bitmap(numbers).batches(size))
    assert np.array_equal(np.concatenate(pieces), numbers)
    assert {piece.dtype for piece in pieces} == {np.dtype(np.int64)}
    assert [len(piece) for piece in pieces[:-1]] == [size] * (len(pieces) - 1)
    assert 0 < len(pieces[-1]) <= size
    assert list(Bitmap().batches(size)) == []


def test_encoding_disturbs_nobody_who_iterates() -> None:
    """To optimise for runs moves containers; an iterator must not notice."""
    bitmap = Bitmap(np.arange(200_000))
    numbers, pieces = iter(bitmap), bitmap.batches(70_000)
    first, piece = [next(numbers) for _ in range(100)], next(pieces)
    bitmap.to_bytes()
    assert first + list(numbers) == list(range(200_000))
    assert np.array_equal(np.concatenate([piece, *pieces]), np.arange(200_000))


def test_the_edges_of_what_a_bitmap_holds() -> None:
    last = 2**63 - 1
    bitmap = Bitmap.from_ranges([0, last - 1], [5, 2**63])
    assert bitmap.to_numpy().tolist() == [0, 1, 2, 3, 4, last - 1, last]
    assert [bitmap.rank(each) for each in (last, 2**70, -1)] == [7, 7, 0]
    assert [each in bitmap for each in (last, -1, 2**63, 2**64)] == [True, False, False, False]
    assert bitmap.to_mask(last - 2, 2**63).tolist() == [False, True, True]


@pytest.mark.parametrize("kind", ["u1", "i2", "<i4", ">i4", ">i8", "u8", ">u8"])
@pytest.mark.parametrize("count", [2, 100, 30_000])
def test_any_integer_type_will_do(kind: str, count: int) -> None:
    values = np.arange(min(count, np.iinfo(kind).max)).astype(kind)
    assert Bitmap(values).to_numpy().tolist() == values.tolist()
    assert Bitmap(values[::-3]) == Bitmap(values.tolist()[::-3])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bitmap([-1, 5]), "must lie in 0 to 9223372036854775807, got -1 to 5"),
        (lambda: Bitmap(np.array([2**63], dtype=np.uint64)), "got 9223372036854775808"),
        (lambda: Bitmap([2**64]), "got 18446744073709551616"),
        (lambda: Bitmap([1.5]), "flat sequence of integers .* got list"),
        (lambda: Bitmap(np.array([1.5])), "got float64"),
        (lambda: Bitmap([[1]]), "flat sequence of integers"),
        (lambda: Bitmap([[1], [2, 3]]), "flat sequence of integers"),
        (lambda: Bitmap([True]), "flat sequence of integers"),
        (lambda: Bitmap(["x"]), "flat sequence of integers"),
        (lambda: Bitmap(np.ma.array([1, 2], mask=[False, True])), "flat sequence of integers"),
        (lambda: Bitmap.from_ranges([1], [2, 3]), "as many stops as starts"),
        (lambda: Bitmap.from_ranges([10], [5]), "ends before it starts"),
        (lambda: Bitmap.from_pages([0], bytes(PAGE_BYTES)), "bucket numbers run from 1"),
        (lambda: Bitmap.from_pages([2**48 + 1], bytes(PAGE_BYTES)), "bucket numbers run from 1"),
        (lambda: Bitmap.from_pages([1], bytes(5)), "1 pages take 4096 bytes, got 5"),
        (lambda: Bitmap.from_pages([1], np.zeros((1, PAGE_BYTES), bool)), "got 4096 of bool"),
        (lambda: Bitmap.from_pages([1, 2], pa.array([bytes(1), bytes(8191)])), "2 pages take"),
        (lambda: Bitmap.from_pages([1], pa.array([None], pa.binary())), "binary and not null"),
        (lambda: Bitmap.from_pages([1], pa.array(["x"])), "binary and not null, got string"),
        (lambda: Bitmap().to_mask(5, 2), "not a window"),
        (lambda: Bitmap().to_words(-1), "not a window"),
    ],
)
def test_bad_arguments_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidArgumentError, match=message):
        make()


def test_bitmaps_do_not_mix_with_other_sets() -> None:
    for operation in OPERATIONS:
        with pytest.raises(TypeError):
            operation(Bitmap(), {1})
    assert Bitmap([1]) != {1}
