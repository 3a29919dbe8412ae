"""Work in threads: results in order, and the rest left undone after a failure."""

from __future__ import annotations

from collections.abc import Iterator
from time import sleep

import pytest

from delvec.storage.parallel import gather, map_in_order


def test_results_come_in_the_order_of_the_items() -> None:
    def late_first(number: int) -> int:
        sleep(0.02 if number == 0 else 0)
        return -number

    assert gather(late_first, range(40), threads=4) == [-number for number in range(40)]
    assert gather(late_first, []) == []


def test_the_first_error_in_order_is_raised_and_pending_items_are_skipped() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        sleep(0.005)
        if number in (3, 4):
            raise ValueError(number)
        return number

    with pytest.raises(ValueError, match="3"):
        gather(work, range(1000), threads=4)
    assert len(begun) < 100


def test_no_more_items_are_drawn_after_a_failure_than_the_budget_allows() -> None:
    drawn: list[int] = []

    def items() -> Iterator[tuple[int, int]]:
        for number in range(1000):
            drawn.append(number)
            yield number, 1

    with pytest.raises(ZeroDivisionError):
        list(map_in_order(lambda number: 1 // (50 - number), items(), threads=4, budget=10))
    assert len(drawn) < 70
