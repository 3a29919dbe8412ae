"""Found for cases of which only some run each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


def slow_but(fast: Collection[str], names: Iterable[str]) -> list[Any]:
    """Mark all cases as slow that are not named among the fast ones."""
    missing = set(fast) - set(names)
    assert not missing, missing
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


def mark_slow_cases(cases: Sequence[pytest.Function]) -> None:
    """Mark all cases of a test as slow but so many as its mark `quick_cases` says, evenly chosen.

    Their choice is the same in each run, in whatever order the cases come.
    """
    limits = [mark.args[0] for case in cases[:1] for mark in case.iter_markers("quick_cases")]
    quick = [case for case in cases if case.get_closest_marker("slow") is None]
    if not limits or len(quick) <= limits[0]:
        return
    quick.sort(key=lambda case: tuple(case.callspec.indices.values()))
    chosen = {number * len(quick) // limits[0] for number in range(limits[0])}
    for number, case in enumerate(quick):
        if number not in chosen:
            case.add_marker(pytest.mark.slow)
