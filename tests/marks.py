"""Found for cases of which only some run each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


def slow_but(fast: Collection[str], names: Iterable[str]) -> list[Any]:
    """Mark all cases as slow that are not named among the fast ones."""
    missing = set(fast) - set(names)
    assert not missing, missing
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]
