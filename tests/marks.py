"""Found for cases of which only some run each time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest


def slow_but(fast: Collection[str], names: Iterable[str]) -> list[Any]:
    """Mark all cases as slow that are not named among the fast ones."""
    missing = set(fast) - set(names)
    assert not missing, missing
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


# A mark that says how many cases of a test stay, and the mark that the others get.
_LIMITS = (("quick_cases", "slow"), ("first_cases", "more"))


def mark_other_cases(cases: Sequence[pytest.Function]) -> None:
    """Keep so many cases of a test as its marks of `_LIMITS` say, evenly chosen.

    Their choice is the same in each run, in whatever order the cases come.
    """
    left = list(cases)
    for name, other in _LIMITS:
        limits = [mark.args[0] for case in cases[:1] for mark in case.iter_markers(name)]
        left = [case for case in left if case.get_closest_marker(other) is None]
        if not limits or len(left) <= limits[0]:
            continue
        left.sort(key=lambda case: tuple(case.callspec.indices.values()))
        kept = [left[number * len(left) // limits[0]] for number in range(limits[0])]
        for case in left:
            if case not in kept:
                case.add_marker(other)
        left = kept
