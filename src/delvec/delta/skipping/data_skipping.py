"""Data skipping: which files a predicate prunes by their statistics, all files at once.

    may_match    False: no row of the file matches, so it need not be read
    must_match   True: all rows of the file match, so they need not be tested

A file of which something is not known is kept. Some writers omit NaN from statistics of floats, and
NaN is larger than any number: so a maximum never excludes what NaN would match.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from math import isnan
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.skipping import predicate as nodes
from delvec.delta.skipping.predicate import ColumnPath, Operator, Predicate, push_down_not


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """What is known of a column in each file: arrays of one entry per file, null if unknown."""

    minimum: pa.Array | None = None  # no value that is neither null nor NaN is smaller
    maximum: pa.Array | None = None  # no value that is neither null nor NaN is larger
    # Nulls among the rows; to be trusted where it is 0 or equals `row_count`.
    null_count: pa.Array | None = None
    row_count: pa.Array | None = None  # rows, nulls included


BoundsOf: TypeAlias = "Callable[[ColumnPath], ColumnBounds | None]"
_Mask: TypeAlias = "NDArray[np.bool_]"


def may_match(predicate: Predicate, bounds: BoundsOf, files: int) -> NDArray[np.bool_]:
    """Tell of each file whether any of its rows can satisfy a predicate.

    >>> ages = ColumnBounds(minimum=pa.array([1, 40, None]), maximum=pa.array([30, 60, None]))
    >>> may_match(nodes.Comparison(("age",), ">", 35), lambda column: ages, 3).tolist()
    [False, True, True]
    """
    return _possible(push_down_not(predicate), cache(bounds), files)


def must_match(predicate: Predicate, bounds: BoundsOf, files: int) -> NDArray[np.bool_]:
    """Tell of each file whether all of its rows surely satisfy a predicate.

    >>> ages = ColumnBounds(pa.array([1, 40]), pa.array([30, 60]), pa.array([0, 0]))
    >>> must_match(nodes.Comparison(("age",), ">", 35), lambda column: ages, 2).tolist()
    [False, True]
    """
    return ~_possible(_not_true(push_down_not(predicate)), cache(bounds), files)


def _not_true(predicate: Predicate) -> Predicate:
    """Return a predicate that is true for exactly the rows for which another is false or NULL."""
    match predicate:
        case nodes.And(children):
            return nodes.Or(tuple(map(_not_true, children)))
        case nodes.Or(children):
            return nodes.And(tuple(map(_not_true, children)))
        case nodes.Never():
            return nodes.Always()
        case nodes.Comparison(column, _, _) | nodes.In(column, _) | nodes.StartsWith(column, _):
            return nodes.Or((push_down_not(nodes.Not(predicate)), nodes.IsNull(column)))
        case nodes.Not(nodes.In(column, _) | nodes.StartsWith(column, _) as child):
            return nodes.Or((child, nodes.IsNull(column)))
        case _:
            return push_down_not(nodes.Not(predicate))


def _possible(predicate: Predicate, bounds: BoundsOf, files: int) -> _Mask:
    match predicate:
        case nodes.And(children):
            parts = (_possible(child, bounds, files) for child in children)
            return reduce(np.logical_and, parts, np.ones(files, np.bool_))
        case nodes.Or(children):
            parts = (_possible(child, bounds, files) for child in children)
            return reduce(np.logical_or, parts, np.zeros(files, np.bool_))
        case nodes.Never():
            return np.zeros(files, np.bool_)
        case nodes.Comparison() | nodes.In() | nodes.IsNull() | nodes.StartsWith():
            return _possible_leaf(predicate, bounds, files, negated=False)
        case nodes.Not(nodes.In() | nodes.IsNull() | nodes.StartsWith() as leaf):
            return _possible_leaf(leaf, bounds, files, negated=True)
        case _:
            return np.ones(files, np.bool_)


def _possible_leaf(
    leaf: nodes.Comparison | nodes.In | nodes.IsNull | nodes.StartsWith,
    bounds: BoundsOf,
    files: int,
    *,
    negated: bool,
) -> _Mask:
    known = bounds(leaf.column)
    if known is None:
        return np.ones(files, np.bool_)
    nulls = pa.nulls(files, pa.int64()) if known.null_count is None else known.null_count
    rows = pa.nulls(files, pa.int64()) if known.row_count is None else known.row_count
    if isinstance(leaf, nodes.IsNull):
        return ~_surely(pc.equal(nulls, rows if negated else 0))
    possible = ~_surely(pc.equal(nulls, rows))
    limits = _limits(known.minimum, known.maximum)
    literals = None if limits is None else nodes.comparable(nodes.values_of(leaf), limits[0].type)
    if limits is None or literals is None:
        return possible
    match leaf:
        case nodes.Comparison(_, op, _):
            excluded = _excludes(*limits, op, literals[0])
        case nodes.In():
            excluded = (_excludes_others if negated else _excludes_all)(*limits, literals)
        case nodes.StartsWith(_, prefix):
            excluded = _excludes_start(*limits, prefix, negated=negated)
    return possible if excluded is None else possible & ~_surely(excluded)


def _surely(answer: pa.Array) -> _Mask:
    """Tell where the answer is true; NULL, where statistics are missing, is not."""
    mask: _Mask = pc.fill_null(answer, False).to_numpy(zero_copy_only=False)
    return mask


def _limits(low: pa.Array | None, high: pa.Array | None) -> tuple[pa.Array, pa.Array] | None:
    """Return minima and maxima, null where they are none; None if there is nothing to compare."""
    present = high if low is None else low
    if present is None:
        return None
    absent = pa.nulls(len(present), present.type)
    low, high = (absent if side is None else side for side in (low, high))
    if low.type != high.type:
        return None
    if pa.types.is_floating(low.type):
        # Where a writer's comparisons made one NaN, the other may be wrong as well.
        broken = pc.or_(*(pc.fill_null(pc.is_nan(side), False) for side in (low, high)))
        nothing = pa.scalar(None, low.type)
        low, high = pc.if_else(broken, nothing, low), pc.if_else(broken, nothing, high)
    return low, high


def _excludes(low: pa.Array, high: pa.Array, op: Operator, literal: pa.Scalar) -> pa.Array | None:
    """Tell where no value but null can satisfy a comparison; None if nowhere, as all of these."""
    if pa.types.is_floating(low.type):
        if isnan(literal.as_py()):
            return pa.array([op == ">"] * len(low), pa.bool_())
        if op in (">", ">=", "!="):
            return None
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
    return excluded


def _excludes_all(low: pa.Array, high: pa.Array, literals: pa.Array) -> pa.Array | None:
    if pa.types.is_floating(low.type) and pc.any(pc.is_nan(literals)).as_py():
        return None
    low, high = low.cast(literals.type), high.cast(literals.type)
    ordered = literals.take(pc.array_sort_indices(literals))
    outside = pc.or_kleene(pc.greater(low, ordered[-1]), pc.less(high, ordered[0]))
    below, reached = _count_below(low, literals), _count_below(high, literals, or_equal=True)
    return pc.or_kleene(outside, pc.equal(below, reached))


def _count_below(points: pa.Array, values: pa.Array, *, or_equal: bool = False) -> pa.Array:
    """Count the values smaller than each point; null for a point that is null.

    By one stable sort of both together, which Arrow has for every type that has an order.
    """
    both, first = ([values, points], len(values)) if or_equal else ([points, values], 0)
    order = pc.array_sort_indices(pa.concat_arrays(both)).to_numpy().astype(np.int64) - first
    is_point = (order >= 0) & (order < len(points))
    counts = np.empty(len(points), np.int64)
    counts[order[is_point]] = np.cumsum(~is_point)[is_point]
    return pa.array(counts, mask=pc.is_null(points).to_numpy(zero_copy_only=False))


def _excludes_others(low: pa.Array, high: pa.Array, literals: pa.Array) -> pa.Array | None:
    """Tell where every value but null is one of some values."""
    if pa.types.is_floating(low.type):
        return None
    is_one = pc.is_in(low.cast(literals.type), value_set=literals)
    return pc.and_kleene(pc.equal(low, high), is_one)


def _excludes_start(
    low: pa.Array, high: pa.Array, prefix: str, *, negated: bool
) -> pa.Array | None:
    """Tell where no string begins with a prefix; if negated, where all do."""
    if not prefix:
        return None
    first = prefix.encode()
    after = first[:-1] + bytes([first[-1] + 1])  # no byte of UTF-8 is 0xFF
    low, high = low.cast(pa.binary()), high.cast(pa.binary())
    if negated:
        return pc.and_kleene(pc.greater_equal(low, first), pc.less(high, after))
    return pc.or_kleene(pc.less(high, first), pc.greater_equal(low, after))
