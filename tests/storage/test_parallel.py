from __future__ import annotations

import threading
from time import sleep

import pytest

from delvec.storage.parallel import gather


def test_results_come_in_the_order_of_the_items() -> None:
    def late_first(number: int) -> int:
        sleep(0.02 if number == 0 else 0)
        return -number

    assert gather(late_first, range(40), threads=4) == [-number for number in range(40)]
    assert gather(late_first, []) == []


def test_a_single_item_needs_no_thread() -> None:
    assert gather(lambda _: threading.current_thread(), ["a"]) == [threading.current_thread()]


def test_no_more_threads_run_than_allowed() -> None:
    def name(_: int) -> str:
        sleep(0.01)
        return threading.current_thread().name

    assert len(set(gather(name, range(30), threads=3))) <= 3


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
