"""Work done side by side, its results taken in order, no more of it in memory than allowed."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

__all__ = ["in_order"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_order(
    work: Callable[[_Item], _Result],
    items: Iterable[tuple[_Item, int]],
    *,
    threads: int,
    budget: int,
) -> Generator[_Result, None, None]:
    """Do the work of each item in threads and give the results in the items' order.

    Items come with a weight. What is under way or waits to be taken weighs no more than the budget,
    but for a single item that is heavier; and the items are drawn as they are needed.

    >>> list(in_order(str.upper, [("a", 1), ("b", 9), ("c", 1)], threads=2, budget=3))
    ['A', 'B', 'C']
    """
    waiting: deque[tuple[Future[_Result], int]] = deque()
    held = 0
    pool = ThreadPoolExecutor(threads, "delvec-vectors")
    try:
        for item, weight in items:
            while waiting and (held + weight > budget or len(waiting) >= 2 * threads):
                done, freed = waiting.popleft()
                yield done.result()
                held -= freed
            waiting.append((pool.submit(work, item), weight))
            held += weight
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        pool.shutdown(cancel_futures=True)
