"""Resolving as a service: when it looks again, when it gives up, and what it counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from threading import Event, Thread, Timer

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


def cycles(results: Iterable[ResolveReport | Exception]) -> Callable[[], ResolveReport]:
    left = iter(results)

    def resolve() -> ResolveReport:
        found = next(left)
        if isinstance(found, Exception):
            raise found
        return found

    return resolve


def test_one_cycle_in_each_interval_and_what_changed_is_reported() -> None:
    stop = Rounds(4)
    seen: list[ResolveReport] = []
    counted: list[int] = []
    found = follow(
        cycles([IDLE, IDLE, BUSY, IDLE]),
        stop=stop,
        interval=30,
        on_report=seen.append,
        on_metrics=lambda metrics: counted.append(metrics.cycles),
    )
    assert seen == [IDLE, BUSY]
    assert stop.waits == pytest.approx([30] * 4, abs=0.5)
    assert counted == [1, 2, 3, 4]
    assert (found.cycles, found.idle_cycles, found.commits) == (4, 3, 1)
    assert (found.table, found.target, found.staging) == ("lake.db.t", "main", "stage")


def test_long_silence_is_broken_and_what_waits_is_told_before_a_cycle() -> None:
    told: list[str] = []
    ages: list[float] = []
    since = datetime.now(timezone.utc) - timedelta(seconds=100)
    oldest = iter([None, since, since, None, None])

    def on_metrics(metrics: Metrics) -> None:
        ages.append(round(metrics.oldest_unresolved_age_seconds, -1))

    follow(
        cycles([IDLE, ConflictError("lost"), BUSY, IDLE, IDLE]),
        stop=Rounds(5),
        interval=0,
        idle_after=0,
        oldest=lambda: next(oldest),
        on_report=lambda report: told.append(f"{report.commits} commits"),
        on_retry=lambda error, _: told.append(str(error)),
        on_idle=lambda metrics: told.append(f"{metrics.idle_cycles} idle"),
        on_metrics=on_metrics,
    )
    assert told == ["0 commits", "lost", "1 commits", "2 idle", "3 idle"]
    assert ages == [0, 100, 100, 0, 0, 0]


def test_a_conflict_doubles_the_pause_up_to_eight_intervals() -> None:
    stop = Rounds(7)
    told: list[tuple[DelvecError, float]] = []
    error = LockedError("t is locked by somebody", owner="somebody")
    found = follow(
        cycles([error, error, error, error, error, IDLE, error]),
        stop=stop,
        interval=10,
        on_report=lambda _: None,
        on_retry=lambda error, seconds: told.append((error, seconds)),
    )
    for wait, longest in zip(stop.waits, (10, 20, 40, 80, 80, 10, 10), strict=True):
        assert 0.75 * longest - 0.5 <= wait <= longest
    assert [seconds for _, seconds in told] == pytest.approx(
        [wait for at, wait in enumerate(stop.waits) if at != 5], abs=0.5
    )
    assert {each for each, _ in told} == {error}
    assert (found.conflicts, found.errors, found.cycles) == (6, 0, 7)


def test_pauses_of_several_resolvers_differ() -> None:
    pauses = {_Pace(10).after(ConflictError("x")) for _ in range(20)}
    assert len(pauses) > 10


@pytest.mark.parametrize("kind", [StorageError, EngineError])
def test_failures_are_tried_again_for_half_a_minute(kind: type[DelvecError]) -> None:
    stop = Rounds(100)
    told: list[float] = []
    metrics: list[Metrics] = []
    errors = [kind("away")] * 5 + [IDLE] + [kind("away")] * 6
    with pytest.raises(kind, match="away"):
        follow(
            cycles(errors),
            stop=stop,
            interval=3,
            on_report=lambda _: None,
            on_retry=lambda _, seconds: told.append(seconds),
            on_metrics=metrics.append,
        )
    assert told == [3, 3, 4, 8, 16] * 2
    assert (metrics[-1].errors, metrics[-1].cycles) == (11, 12)


@pytest.mark.parametrize(
    "error", [PlanError("no"), ConflictError("replaced", retryable=False)], ids=str
)
def test_what_a_retry_cannot_resolve_is_raised(error: DelvecError) -> None:
    seen: list[Metrics] = []
    with pytest.raises(type(error)):
        follow(cycles([error]), stop=Rounds(9), on_report=lambda _: None, on_metrics=seen.append)
    assert [each.conflicts + each.errors for each in seen] == [1]


def test_an_error_that_ends_it_has_what_was_committed_before() -> None:
    with pytest.raises(PlanError) as ended:
        follow(cycles([BUSY, PlanError("no")]), stop=Rounds(9), on_report=lambda _: None)
    assert isinstance(ended.value.report, Metrics)
    assert ended.value.report.commits == 1
    assert "no (committed before: 2 cycles: 1 commit, 0 keys, 0 rows deleted)" in str(ended.value)


def test_a_jvm_that_has_ended_is_told() -> None:
    with pytest.raises(EngineError, match="the JVM of this session has ended"):
        follow(cycles([ConnectionRefusedError()]), stop=Rounds(9), on_report=lambda _: None)


def test_the_running_cycle_is_completed() -> None:
    stop, running, go_on = Event(), Event(), Event()
    seen: list[ResolveReport] = []

    def resolve() -> ResolveReport:
        running.set()
        assert go_on.wait(30)
        return BUSY

    def run() -> None:
        follow(resolve, stop=stop, interval=600, on_report=seen.append)

    thread = Thread(target=run)
    thread.start()
    assert running.wait(30)
    stop.set()
    assert not seen
    go_on.set()
    thread.join(30)
    assert not thread.is_alive()
    assert seen == [BUSY]


def test_a_pause_ends_when_it_is_told_to_stop() -> None:
    stop = Event()
    Timer(0.2, stop.set).start()
    begin = time.monotonic()
    follow(cycles([IDLE]), stop=stop, interval=600, on_report=lambda _: None)
    assert time.monotonic() - begin < 30


def test_nothing_is_begun_after_stop() -> None:
    stop = Event()
    stop.set()
    assert follow(cycles([]), stop=stop, on_report=lambda _: None).cycles == 0


def test_an_interval_that_is_none_is_refused() -> None:
    for interval in (-1.0, float("nan"), 1e300):
        with pytest.raises(InvalidArgumentError, match="expected a number of seconds from 0 to"):
            follow(cycles([]), stop=Event(), interval=interval, on_report=lambda _: None)
