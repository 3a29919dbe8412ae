"""Ranges of one file, merged so that few reads return them."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Span = tuple[int, int]

__all__ = ["cut", "merge"]


def merge(spans: Iterable[Span], gap: int) -> Sequence[Span]:
    """Merge (start, end) spans that overlap or are at most a gap apart.

    >>> merge([(5_000_000, 5_000_001), (0, 4), (100, 104)], 1000)
    [(0, 104), (5000000, 5000001)]
    """
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def cut(merged: Sequence[Span], blocks: Sequence[bytes], span: Span) -> bytes:
    """Return the bytes of a span, from the merged span that contains it."""
    index = bisect_right(merged, span[0], key=lambda block: block[0]) - 1
    start = merged[index][0]
    return blocks[index][span[0] - start : span[1] - start]
