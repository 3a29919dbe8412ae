"""Data skipping: which files a predicate prunes by their statistics, all files at once.

    may_match    False: no row of the file matches, so it need not be read
    must_match   True: all rows of the file match, so they need not be tested

A file of which something is not known is kept. Some writers omit NaN from statistics of floats, and
NaN is larger than any number: so a maximum never excludes what NaN would match.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, reduce
from math import isnan
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.pruning.literals import comparable
from delvec.delta.pruning.predicate import (
    Always,
    And,
    ColumnPath,
    Comparison,
    In,
    IsNull,
    Never,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    push_down_not,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["BoundsOf", "ColumnBounds", "may_match", "must_match"]


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """What is known of a column in each file: arrays of one entry per file, null if unknown.

    Attributes:
        minimum: No value that is neither null nor NaN is smaller.
        maximum: No value that is neither null nor NaN is larger.
        null_count: Nulls among the rows; to be trusted where it is 0 or equals `row_count`.
        row_count: Rows, nulls included.
    """

    minimum: pa.Array | None = None
    maximum: pa.Array | None = None
    null_count: pa.Array | None = None
    row_count: pa.Array | None = None


BoundsOf: TypeAlias = "Callable[[ColumnPath], ColumnBounds | None]"
_Mask: TypeAlias = "NDArray[np.bool_]"


def may_match(predicate: Predicate, bounds: BoundsOf, files: int) -> NDArray[np.bool_]:
    """Tell of each file whether any of its rows can satisfy a predicate.

    >>> ages = ColumnBounds(minimum=pa.array([1, 40, None]), maximum=pa.array([30, 60, None]))
    >>> may_match(Comparison(("age",), ">", 35), lambda column: ages, 3).tolist()
    [False, True, True]

    Args:
        predicate: Which rows match.
        bounds: Returns the statistics of a column, or None; called once per column.
        files: How many files there are, the length of all arrays in `bounds`.
    """
    return _possible(push_down_not(predicate), cache(bounds), files)


def must_match(predicate: Predicate, bounds: BoundsOf, files: int) -> NDArray[np.bool_]:
    """Tell of each file whether all of its rows surely satisfy a predicate.

    >>> ages = ColumnBounds(pa.array([1, 40]), pa.array([30, 60]), pa.array([0, 0]))
    >>> must_match(Comparison(("age",), ">", 35), lambda column: ages, 2).tolist()
    [False, True]

    Args:
        predicate: Which rows match.
        bounds: Returns the statistics of a column, or None; called once per column.
        files: How many files there are, the length of all arrays in `bounds`.
    """
    return ~_possible(_not_true(push_down_not(predicate)), cache(bounds), files)


def _not_true(predicate: Predicate) -> Predicate:
    """Return a predicate that is true for exactly the rows for which another is false or NULL."""
    match predicate:
        case And(children):
            return Or(tuple(map(_not_true, children)))
        case Or(children):
            return And(tuple(map(_not_true, children)))
        case Never():
            return Always()
        case Comparison(column, _, _) | In(column, _) | StartsWith(column, _):
            return Or((push_down_not(Not(predicate)), IsNull(column)))
        case Not(In(column, _) | StartsWith(column, _) as child):
            return Or((child, IsNull(column)))
        case _:
            return push_down_not(Not(predicate))


def _possible(predicate: Predicate, bounds: BoundsOf, files: int) -> _Mask:
    match predicate:
        case And(children):
            parts = (_possible(child, bounds, files) for child in children)
            return reduce(np.logical_and, parts, np.ones(files, np.bool_))
        case Or(children):
            parts = (_possible(child, bounds, files) for child in children)
            return reduce(np.logical_or, parts, np.zeros(files, np.bool_))
        case Never():
            return np.zeros(files, np.bool_)
        case Comparison() | In() | IsNull() | StartsWith():
            return _possible_leaf(predicate, bounds, files, negated=False)
        case Not(In() | IsNull() | StartsWith() as leaf):
            return _possible_leaf(leaf, bounds, files, negated=True)
        case _:
            return np.ones(files, np.bool_)


def _possible_leaf(
    leaf: Comparison | In | IsNull | StartsWith, bounds: BoundsOf, files: int, *, negated: bool
) -> _Mask:
    known = bounds(leaf.column)
    if known is None:
        return np.ones(files, np.bool_)
    nulls = pa.nulls(files, pa.int64()) if known.null_count is None else known.null_count
    rows = pa.nulls(files, pa.int64()) if known.row_count is None else known.row_count
    if isinstance(leaf, IsNull):
        return ~_surely(pc.equal(nulls, rows if negated else 0))
    possible = ~_surely(pc.equal(nulls, rows))
    limits = _limits(known.minimum, known.maximum)
    if limits is None:
        return possible
    match leaf:
        case Comparison(_, op, value):
            excluded = _excludes(*limits, op, value)
        case In(_, values):
            excluded = (_excludes_others if negated else _excludes_all)(*limits, values)
        case StartsWith(_, prefix):
            excluded = (_excludes_other_starts if negated else _excludes_start)(*limits, prefix)
    return possible & ~excluded


def _surely(answer: pa.Array) -> _Mask:
    """Tell where the answer is true; NULL, where statistics are missing, is not."""
    mask: _Mask = pc.fill_null(answer, False).to_numpy(zero_copy_only=False)
    return mask


def _limits(low: pa.Array | None, high: pa.Array | None) -> tuple[pa.Array, pa.Array] | None:
    """Return minima and maxima, null where they are none; None if there is nothing to compare."""
    if low is None or high is None:
        present = high if low is None else low
        if present is None:
            return None
        absent = pa.nulls(len(present), present.type)
        low, high = (absent, present) if low is None else (present, absent)
    if low.type != high.type:
        return None
    if pa.types.is_floating(low.type):
        # Where a writer's comparisons made one NaN, the other may be wrong as well.
        broken = pc.or_(*(pc.fill_null(pc.is_nan(side), False) for side in (low, high)))
        nothing = pa.scalar(None, low.type)
        low, high = pc.if_else(broken, nothing, low), pc.if_else(broken, nothing, high)
    return low, high


def _excludes(low: pa.Array, high: pa.Array, op: Operator, value: object) -> _Mask:
    """Tell where no value but null can satisfy a comparison."""
    literals = comparable([value], low.type)
    if literals is None:
        return np.zeros(len(low), np.bool_)
    literal = literals[0]
    if pa.types.is_floating(low.type):
        if isnan(literal.as_py()):
            return np.full(len(low), op == ">")
        if op in (">", ">=", "!="):
            return np.zeros(len(low), np.bool_)
    match op:
        case "<":
            excluded = pc.greater_equal(low, literal)
        case "<=":
            excluded = pc.greater(low, literal)
        case ">":
            excluded = pc.less_equal(high, literal)
        case ">=":
            excluded = pc.less(high, literal)
        case "!=":
            excluded = pc.and_kleene(pc.equal(low, literal), pc.equal(high, literal))
        case _:
            excluded = pc.or_kleene(pc.greater(low, literal), pc.less(high, literal))
    return _surely(excluded)


def _excludes_all(low: pa.Array, high: pa.Array, values: tuple[object, ...]) -> _Mask:
    """Tell where none of some values is between the limits."""
    literals = comparable(values, low.type)
    is_float = pa.types.is_floating(low.type)
    if literals is None or (is_float and pc.any(pc.is_nan(literals)).as_py()):
        return np.zeros(len(low), np.bool_)
    low, high = low.cast(literals.type), high.cast(literals.type)
    ordered = literals.take(pc.array_sort_indices(literals))
    outside = pc.or_kleene(pc.greater(low, ordered[-1]), pc.less(high, ordered[0]))
    below, reached = _count_below(low, literals), _count_reached(high, literals)
    return _surely(pc.or_kleene(outside, pc.equal(below, reached)))


def _count_below(points: pa.Array, values: pa.Array) -> pa.Array:
    """Count the values smaller than each point; null for a point that is null.

    By one stable sort of both together, which Arrow has for every type that has an order.
    """
    order = pc.array_sort_indices(pa.concat_arrays([points, values])).to_numpy()
    return _values_before(points, order, order < len(points))


def _count_reached(points: pa.Array, values: pa.Array) -> pa.Array:
    """Count the values that are not larger than each point; null for a point that is null."""
    order = pc.array_sort_indices(pa.concat_arrays([values, points])).to_numpy()
    is_point = order >= len(values)
    return _values_before(points, order - np.uint64(len(values)), is_point)


def _values_before(points: pa.Array, order: NDArray[np.uint64], is_point: _Mask) -> pa.Array:
    counts = np.empty(len(points), np.int64)
    counts[order[is_point]] = np.cumsum(~is_point)[is_point]
    return pa.array(counts, mask=pc.is_null(points).to_numpy(zero_copy_only=False))


def _excludes_others(low: pa.Array, high: pa.Array, values: tuple[object, ...]) -> _Mask:
    """Tell where every value but null is one of some values."""
    literals = comparable(values, low.type)
    if literals is None or pa.types.is_floating(low.type):
        return np.zeros(len(low), np.bool_)
    is_one = pc.is_in(low.cast(literals.type), value_set=literals)
    return _surely(pc.and_kleene(pc.equal(low, high), is_one))


def _excludes_start(low: pa.Array, high: pa.Array, prefix: str) -> _Mask:
    """Tell where no string begins with a prefix."""
    found = _range_of(prefix, low.type)
    if found is None:
        return np.zeros(len(low), np.bool_)
    low, high = low.cast(pa.binary()), high.cast(pa.binary())
    return _surely(pc.or_kleene(pc.less(high, found[0]), pc.greater_equal(low, found[1])))


def _excludes_other_starts(low: pa.Array, high: pa.Array, prefix: str) -> _Mask:
    """Tell where all strings begin with a prefix."""
    found = _range_of(prefix, low.type)
    if found is None:
        return np.zeros(len(low), np.bool_)
    low, high = low.cast(pa.binary()), high.cast(pa.binary())
    return _surely(pc.and_kleene(pc.greater_equal(low, found[0]), pc.less(high, found[1])))


def _range_of(prefix: str, kind: pa.DataType) -> tuple[bytes, bytes] | None:
    """Return the first bytes with a prefix and the first after them; None if there are none."""
    if not prefix or comparable([prefix], kind) is None:
        return None
    first = prefix.encode()
    return first, first[:-1] + bytes([first[-1] + 1])  # no byte of UTF-8 is 0xFF
