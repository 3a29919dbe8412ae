"""Work in threads: requests to a store wait for the network, so many run at the same time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def gather(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int = 16
) -> list[_Result]:
    """Return the result for each item, in the order of the items.

    All results are held in memory; `map_in_order` streams them. A single item is processed in the
    calling thread. The error of the first item that fails is raised; items that no thread has
    begun by then are skipped, and those under way are waited for.

    >>> gather(len, ["a", "bc", ""])
    [1, 2, 0]
    """
    chosen = list(items)
    if len(chosen) <= 1:
        return [work(item) for item in chosen]
    pool = ThreadPoolExecutor(min(threads, len(chosen)), "delvec")
    try:
        return list(pool.map(work, chosen))
    finally:
        pool.shutdown(cancel_futures=True)


def map_in_order(
    work: Callable[[_Item], _Result],
    items: Iterable[tuple[_Item, int]],
    *,
    threads: int,
    budget: int,
) -> Generator[_Result, None, None]:
    """Yield the result for each item, in the order of the items, with bounded memory.

    Each item comes with a weight. Items under way and results not yet consumed weigh no more than
    the budget together, except for a single item that is heavier. Items are drawn as they are
    needed. After an error, or when the generator is closed, pending items are cancelled.

    >>> list(map_in_order(str.upper, [("a", 1), ("b", 9), ("c", 1)], threads=2, budget=3))
    ['A', 'B', 'C']
    """
    waiting: deque[tuple[Future[_Result], int]] = deque()
    held = 0
    pool = ThreadPoolExecutor(threads, "delvec")
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
