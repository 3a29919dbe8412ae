"""Resolving again and again, until told to stop."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from random import uniform
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Final

from delvec.errors import (
    ConflictError,
    DelvecError,
    EngineError,
    InvalidArgumentError,
    StorageError,
)
from delvec.iceberg.resolve.metrics import Metrics
from delvec.spark.failures import jvm_has_ended

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from delvec.iceberg.resolve.report import ResolveReport

__all__ = ["follow"]

_LOG: Final = logging.getLogger("delvec")
# Half a minute in all: longer than a store or a catalog takes to restart.
_WAITS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
_MOST_DOUBLINGS: Final = 3


def _logged(error: DelvecError, seconds: float) -> None:
    _LOG.warning("trying again in %g s: %s", seconds, error)


def _unseen(_: Metrics) -> None:
    pass


def follow(
    resolve: Callable[[], ResolveReport],
    *,
    stop: Event,
    on_report: Callable[[ResolveReport], None],
    on_retry: Callable[[DelvecError, float], None] = _logged,
    on_metrics: Callable[[Metrics], None] = _unseen,
    interval: float = 30.0,
    metrics: Metrics | None = None,
) -> Metrics:
    """Resolve once in each interval until `stop` is set.

        stop = threading.Event()
        follow(lambda: t.resolve("id", staging="changes"), stop=stop, on_report=print)

    A cycle that runs when `stop` is set is completed, with all its commits: one cycle takes all
    staged snapshots, also where a commit takes a limited number of them. After a conflict, such as
    a lock that somebody else has, the pause grows from one interval to eight, less a random part.

    Args:
        resolve: One cycle, such as a call of `IcebergTable.resolve`.
        stop: Set it from another thread to end this call.
        on_report: Called with the report of the first cycle, and of each that committed something.
        on_retry: Called with an error and the seconds until the next cycle; logs a warning by
            default.
        on_metrics: Called after each cycle.
        interval: Seconds from the start of one cycle to the start of the next.
        metrics: What they begin with.

    Returns:
        The metrics of all cycles.

    Raises:
        StorageError: A store failed six times in a row, over half a minute or more.
        EngineError: Spark or the catalog failed as often.
        DelvecError: Errors that a retry cannot resolve are raised at once.
    """
    if not 0 <= interval <= TIMEOUT_MAX:
        raise InvalidArgumentError(
            f"interval is {interval!r}, expected a number of seconds from 0 to {TIMEOUT_MAX:.0f}",
            hint="follow(..., interval=30), or --interval 30s",
        )
    metrics = metrics or Metrics("")
    pace = _Pace(interval)
    is_first = True
    while not stop.is_set():
        begin, begin_time = time.monotonic(), time.time()
        try:
            report = resolve()
        except DelvecError as error:
            metrics = metrics.after_failure(error)
            on_metrics(metrics)
            if not pace.allows(error) or (stop.is_set() and not isinstance(error, ConflictError)):
                raise
            pause = pace.after(error)
            on_retry(error, pause)
        except ConnectionError as error:
            raise jvm_has_ended() from error
        else:
            metrics = metrics.after(report, begin_time)
            on_metrics(metrics)
            if is_first or report.commits:
                on_report(report)
            is_first = False
            pace = _Pace(interval)
            pause = interval
        stop.wait(max(0.0, begin + pause - time.monotonic()))
    return metrics


@dataclass
class _Pace:
    """How long to wait after failures in a row, and how many there may be."""

    interval: float
    conflicts: int = 0
    failures: int = 0

    def allows(self, error: DelvecError) -> bool:
        if isinstance(error, ConflictError):
            return error.retryable
        return isinstance(error, (StorageError, EngineError)) and self.failures < len(_WAITS)

    def after(self, error: DelvecError) -> float:
        if isinstance(error, ConflictError):
            longest = self.interval * (1 << min(self.conflicts, _MOST_DOUBLINGS))
            self.conflicts += 1
            return longest * uniform(0.75, 1.0)
        self.failures += 1
        return max(self.interval, _WAITS[self.failures - 1])
