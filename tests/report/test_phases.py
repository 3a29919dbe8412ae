from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from delvec.report.rendering import Stopwatch


def test_the_times_of_a_phase_add_up_even_if_one_fails() -> None:
    stopwatch = Stopwatch()
    stopwatch.add("plan", 2.0)
    with pytest.raises(ZeroDivisionError), stopwatch.phase("plan"):
        raise ZeroDivisionError
    with stopwatch.phase("commit"):
        pass
    assert list(stopwatch.seconds) == ["plan", "commit"]
    assert 2.0 < stopwatch.seconds["plan"] < 3.0


def test_a_phase_is_described_for_as_long_as_it_runs() -> None:
    told = []

    @contextmanager
    def describe() -> Iterator[None]:
        told.append("begin")
        yield
        told.append("end")

    with Stopwatch().phase("find", describe()):
        told.append("work")
    assert told == ["begin", "work", "end"]
