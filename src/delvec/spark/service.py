"""A service: one cycle of work in each interval until told to stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import uniform
from threading import TIMEOUT_MAX, Event
from typing import Any, Final, Generic, TypeAlias, TypeVar

from delvec.errors import (
    ConflictError,
    DelvecError,
    EngineError,
    InvalidArgumentError,
    StorageError,
)
from delvec.spark.failures import jvm_has_ended
from delvec.spark.metrics import ServiceMetrics

_M = TypeVar("_M", bound=ServiceMetrics)
Waits: TypeAlias = Callable[[int | None], None]

_LOG: Final = logging.getLogger("delvec")
# Half a minute in all: longer than a store or a catalog takes to restart.
WAITS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
_MOST_DOUBLINGS: Final = 3
IDLE_SECONDS: Final = 600.0
"""After so long without anything to tell, a service tells that it is idle."""


def log_retry(error: DelvecError, seconds: float) -> None:
    """Log what failed, and when it is tried again."""
    _LOG.warning("trying again in %g s: %s", seconds, error)


@dataclass(frozen=True)
class Listeners:
    """Who is told what a service does.

    Attributes:
        on_report: Gets the report of the first cycle, and of each that changed something.
        on_retry: Gets the error of a cycle, and the seconds until the next one.
        on_metrics: Gets the metrics after each cycle, and when one knows what waits.
        on_idle: Gets the metrics after a long time without one of the first two.
    """

    on_report: Callable[[Any], None]
    on_retry: Callable[[DelvecError, float], None] = log_retry
    on_metrics: Callable[[Any], None] = lambda _: None
    on_idle: Callable[[Any], None] = lambda _: None


def repeat(
    cycle: Callable[[Waits], Any],
    metrics: _M,
    listeners: Listeners,
    *,
    stop: Event,
    interval: float,
    idle_after: float = IDLE_SECONDS,
) -> _M:
    """Run one cycle in each interval until `stop` is set, and return the metrics of all.

    A cycle that runs when `stop` is set is completed. It calls what it is given with the time, in
    milliseconds, at which the oldest change was committed that it is to take over. After a conflict
    the pause grows from one interval to eight, less a random part. An error that ends the service
    has a report of what was committed: that of its cycle, or else the metrics.
    """
    if not 0 <= interval <= TIMEOUT_MAX:
        raise InvalidArgumentError(
            f"interval is {interval!r}, expected a number of seconds from 0 to {TIMEOUT_MAX:.0f}",
            hint="follow(..., interval=30), or --interval 30s",
        )

    return _Service(metrics, listeners, interval, idle_after).run(cycle, stop)


@dataclass
class _Service(Generic[_M]):
    """A service that runs."""

    metrics: _M
    listeners: Listeners
    interval: float
    idle_after: float
    is_first: bool = True

    def __post_init__(self) -> None:
        self.pace = _Pace(self.interval)
        self.told = time.monotonic()

    def run(self, cycle: Callable[[Waits], Any], stop: Event) -> _M:
        while not stop.is_set():
            begin, begin_time = time.monotonic(), time.time()
            try:
                report = cycle(self._wait_since)
            except DelvecError as error:
                self._keep(self.metrics.after_failure(error))
                is_last = stop.is_set() and not isinstance(error, ConflictError)
                if is_last or not self.pace.allows(error):
                    if error.report is None and self.metrics.commits:
                        error.report = self.metrics
                    raise
                pause = self.pace.after(error)
                self._tell(self.listeners.on_retry, error, pause)
            except ConnectionError as error:
                raise jvm_has_ended() from error
            else:
                pause = self.interval
                self._succeed(report, begin_time)
            stop.wait(max(0.0, begin + pause - time.monotonic()))
        return self.metrics

    def _succeed(self, report: Any, begin: float) -> None:  # noqa: ANN401
        is_idle = self.metrics.is_idle(report)
        self._keep(self.metrics.after(report, begin))
        if self.is_first or not is_idle:
            self._tell(self.listeners.on_report, report)
        elif time.monotonic() - self.told >= self.idle_after:
            self._tell(self.listeners.on_idle, self.metrics)
        self.is_first = False
        self.pace = _Pace(self.interval)

    def _keep(self, metrics: _M) -> None:
        self.metrics = metrics
        self.listeners.on_metrics(metrics)

    def _wait_since(self, since_ms: int | None) -> None:
        if since_ms != self.metrics.waiting_ms:
            self._keep(replace(self.metrics, waiting_ms=since_ms))

    def _tell(self, listener: Callable[..., None], *told: object) -> None:
        listener(*told)
        self.told = time.monotonic()


@dataclass
class _Pace:
    """How long to wait after failures in a row, and how many there may be."""

    interval: float
    conflicts: int = 0
    failures: int = 0

    def allows(self, error: DelvecError) -> bool:
        if isinstance(error, ConflictError):
            return error.retryable
        return isinstance(error, (StorageError, EngineError)) and self.failures < len(WAITS)

    def after(self, error: DelvecError) -> float:
        if isinstance(error, ConflictError):
            longest = self.interval * (1 << min(self.conflicts, _MOST_DOUBLINGS))
            self.conflicts += 1
            return longest * uniform(0.75, 1.0)
        self.failures += 1
        return max(self.interval, WAITS[self.failures - 1])
