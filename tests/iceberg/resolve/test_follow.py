"""Resolving as a service: when it looks again, when it gives up, and what it counts."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from threading import Event, Thread, Timer
from typing import Any

import pytest

from delvec.errors import (
    ConflictError,
    DelvecError,
    EngineError,
    InvalidArgumentError,
    LockedError,
    PlanError,
    StorageError,
)
from delvec.iceberg.resolve.follow import Metrics, follow
from delvec.iceberg.resolve.report import ResolveReport
from delvec.spark.service import _Pace

IDLE = ResolveReport("lake.db.t", "main", "stage")
BUSY = ResolveReport("lake.db.t", "main", "stage", snapshot_id=7, commits=1, staged_snapshots=2)


class Rounds(Event):
    """Is set after so many waits, and waits for none of them."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        self.left -= 1
        if self.left <= 0:
            self.set()
        return self.is_set()


def followed(
    *results: ResolveReport | Exception,
    stop: Event | None = None,
    **options: Any,  # noqa: ANN401
) -> Metrics:
    """Follow cycles with these results."""
    left = iter(results)

    def resolve() -> ResolveReport:
        found = next(left)
        if isinstance(found, Exception):
            raise found
        return found

    given: dict[str, Any] = {"on_report": lambda _: None, **options}
    return follow(resolve, stop=stop or Rounds(len(results)), **given)


def test_one_cycle_in_each_interval_and_what_changed_is_reported() -> None:
    stop = Rounds(4)
    seen: list[ResolveReport] = []
    counted: list[Metrics] = []
    options = {"interval": 30, "on_report": seen.append, "on_metrics": counted.append}
    found = followed(IDLE, IDLE, BUSY, IDLE, stop=stop, **options)
    assert (seen, stop.waits) == ([IDLE, BUSY], pytest.approx([30] * 4, abs=0.5))
    assert [each.cycles for each in counted] == [1, 2, 3, 4]
    assert (found.cycles, found.idle_cycles, found.commits) == (4, 3, 1)
    assert (found.table, found.target, found.staging) == ("lake.db.t", "main", "stage")


def test_long_silence_is_broken_and_what_waits_is_told_before_a_cycle() -> None:
    told: list[str] = []
    ages: list[float] = []
    since = datetime.now(timezone.utc) - timedelta(seconds=100)
    oldest = iter([None, since, since, None, None])
    followed(
        *(IDLE, ConflictError("lost"), BUSY, IDLE, IDLE),
        interval=0,
        idle_after=0,
        oldest=lambda: next(oldest),
        on_report=lambda report: told.append(f"{report.commits} commits"),
        on_retry=lambda error, _: told.append(str(error)),
        on_idle=lambda metrics: told.append(f"{metrics.idle_cycles} idle"),
        on_metrics=lambda now: ages.append(round(now.oldest_unresolved_age_seconds, -1)),
    )
    assert told == ["0 commits", "lost", "1 commits", "2 idle", "3 idle"]
    assert ages == [0, 100, 100, 0, 0, 0]


def test_a_conflict_doubles_the_pause_up_to_eight_intervals() -> None:
    stop = Rounds(7)
    told: list[tuple[DelvecError, float]] = []
    error = LockedError("t is locked by somebody", owner="somebody")
    results: list[Any] = [*[error] * 5, IDLE, error]
    found = followed(*results, stop=stop, interval=10, on_retry=lambda *each: told.append(each))
    for wait, longest in zip(stop.waits, (10, 20, 40, 80, 80, 10, 10), strict=True):
        assert 0.75 * longest - 0.5 <= wait <= longest
    assert [seconds for _, seconds in told] == pytest.approx(
        [wait for at, wait in enumerate(stop.waits) if at != 5], abs=0.5
    )
    assert {each for each, _ in told} == {error}
    assert (found.conflicts, found.errors, found.cycles) == (6, 0, 7)
    pauses = {_Pace(10).after(ConflictError("x")) for _ in range(20)}
    assert len(pauses) > 10, "those of several resolvers differ"


@pytest.mark.parametrize("kind", [StorageError, EngineError])
def test_failures_are_tried_again_for_half_a_minute(kind: type[DelvecError]) -> None:
    told: list[float] = []
    metrics: list[Metrics] = []
    errors = [kind("away")] * 5 + [IDLE] + [kind("away")] * 6
    options = {"interval": 3, "on_retry": lambda _, seconds: told.append(seconds)}
    with pytest.raises(kind, match="away"):
        followed(*errors, stop=Rounds(100), on_metrics=metrics.append, **options)
    assert (told, metrics[-1].errors, metrics[-1].cycles) == ([3, 3, 4, 8, 16] * 2, 11, 12)


NO_RETRY = [
    (PlanError("no"), PlanError, "no .committed before: 2 cycles: 1 commit, 0 keys, 0 rows del"),
    (ConflictError("replaced", retryable=False), ConflictError, "replaced"),
    (ConnectionRefusedError(), EngineError, "the JVM of this session has ended"),
]


@pytest.mark.parametrize(("error", "kind", "words"), NO_RETRY, ids=str)
def test_what_a_retry_cannot_resolve_is_raised_with_what_was_committed_before(
    error: Exception, kind: type[DelvecError], words: str
) -> None:
    seen: list[Metrics] = []
    with pytest.raises(kind, match=words) as ended:
        followed(BUSY, error, stop=Rounds(9), on_metrics=seen.append)
    if kind is not EngineError:  # which nobody can count
        assert [each.conflicts + each.errors for each in seen] == [0, 1]
        assert isinstance(ended.value.report, Metrics)
        assert ended.value.report.commits == 1


def test_the_running_cycle_is_completed() -> None:
    stop, running, go_on = Event(), Event(), Event()
    seen: list[ResolveReport] = []

    def resolve() -> ResolveReport:
        running.set()
        assert go_on.wait(30)
        return BUSY

    options: dict[str, Any] = {"stop": stop, "interval": 600, "on_report": seen.append}
    thread = Thread(target=follow, args=(resolve,), kwargs=options)
    thread.start()
    assert running.wait(30)
    stop.set()
    assert not seen
    go_on.set()
    thread.join(30)
    assert (thread.is_alive(), seen) == (False, [BUSY])


def test_a_stop_ends_a_pause_and_lets_nothing_begin() -> None:
    stop = Event()
    Timer(0.2, stop.set).start()
    begin = time.monotonic()
    followed(IDLE, stop=stop, interval=600)
    assert time.monotonic() - begin < 30
    assert followed(stop=stop).cycles == 0


@pytest.mark.parametrize("interval", [-1.0, float("nan"), 1e300])
def test_an_interval_that_is_none_is_refused(interval: float) -> None:
    with pytest.raises(InvalidArgumentError, match="expected a number of seconds from 0 to"):
        followed(interval=interval)
