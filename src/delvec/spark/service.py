"""A service: one cycle of work in each interval until told to stop; its metrics for Prometheus."""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import uniform
from socket import SHUT_RDWR
from threading import TIMEOUT_MAX, BoundedSemaphore, Event, Thread, Timer
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from delvec.errors import (
    ConflictError,
    DelvecError,
    EngineError,
    InvalidArgumentError,
    StorageError,
)
from delvec.report.rendering import doc, document, documented
from delvec.spark.failures import jvm_has_ended

if TYPE_CHECKING:
    from typing_extensions import Self

_LOG: Final = logging.getLogger("delvec")
_CLIENTS: Final = 8
_SECONDS: Final = 10.0
_HIDDEN: Final = ("waiting_ms", "looked_ms", "is_failing")  # tell the age of what waits


@documented(kw_only=True)
class ServiceMetrics:
    """Sums over the cycles of a service, and what the last one found."""

    prefix: ClassVar[str]
    """What the names of the metrics begin with."""
    age_name: ClassVar[str]
    """The metric that tells how long the oldest change has waited."""
    labels: ClassVar[tuple[str, ...]]
    """The fields that tell the metrics of several services apart."""

    cycles: int = doc("Cycles that ended, well or not.", 0)
    idle_cycles: int = doc("Cycles that found nothing to do.", 0)
    conflicts: int = doc("Cycles that ended because somebody else had the lock or committed.", 0)
    errors: int = doc("Cycles that ended by another failure, such as of a store or the catalog.", 0)
    commits: int = doc("Snapshots that were committed to the target.", 0)
    lag_seconds: float | None = doc(
        "Age of the oldest change when the last commit took it over.", None
    )
    last_success_timestamp_seconds: float = doc(
        "When the last cycle that succeeded ended; 0 before the first.", 0.0
    )
    waiting_ms: int | None = doc(
        "When the oldest change was committed that the running cycle, or one that failed, was to"
        " take over, in milliseconds since 1970.",
        None,
    )
    looked_ms: int = doc(
        "When the last cycle began that succeeded, in milliseconds since 1970: it took all that"
        " was there. Before the first success, when these metrics were made.",
        lambda: int(time.time() * 1000),
    )
    is_failing: bool = doc("Whether the last cycle failed.", False)
    phases: Mapping[str, float] = doc("Seconds by phase, over all cycles.", dict)

    @abstractmethod
    def is_idle(self, report: Any) -> bool:  # noqa: ANN401 - of the service's own operation
        """Return whether a cycle has changed nothing."""

    @abstractmethod
    def brief(self) -> str:
        """Return what was done, in one line."""

    @abstractmethod
    def _sums(self, report: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the fields that a report changes, be it of a cycle that failed later."""

    def _oldest_ms(self, report: Any) -> int | None:  # noqa: ANN401, ARG002
        """Return when the oldest change was committed that a cycle took over."""
        return self.waiting_ms

    def after(self, report: Any, begin: float | None = None) -> Self:  # noqa: ANN401
        """Return the metrics after a cycle that succeeded."""
        now = time.time()
        is_idle, oldest = self.is_idle(report), self._oldest_ms(report)
        lag = None if is_idle or oldest is None else max(0.0, now - oldest / 1000)
        return replace(
            self,
            **self._with(report),
            cycles=self.cycles + 1,
            idle_cycles=self.idle_cycles + is_idle,
            lag_seconds=self.lag_seconds if lag is None else lag,
            waiting_ms=None,
            looked_ms=int((now if begin is None else begin) * 1000),
            is_failing=False,
            last_success_timestamp_seconds=now,
        )

    def after_failure(self, error: DelvecError) -> Self:
        """Return the metrics after a cycle that failed, with what it had committed before."""
        is_conflict = isinstance(error, ConflictError)
        return replace(
            self,
            **({} if error.report is None else self._with(error.report)),
            cycles=self.cycles + 1,
            conflicts=self.conflicts + is_conflict,
            errors=self.errors + (not is_conflict),
            is_failing=True,
        )

    def _with(self, report: Any) -> dict[str, Any]:  # noqa: ANN401
        phases = {
            phase: self.phases.get(phase, 0.0) + report.phases.get(phase, 0.0)
            for phase in {**self.phases, **report.phases}
        }
        return {**self._sums(report), "phases": phases}

    @property
    def oldest_age_seconds(self) -> float:
        """How long the oldest change has waited that is known; 0 if none was left.

        After a cycle that failed before it could look, what came since the last look may wait.
        """
        since = self.waiting_ms
        if since is None and self.is_failing:
            since = self.looked_ms
        return 0.0 if since is None else max(0.0, time.time() - since / 1000)

    def to_json(self) -> dict[str, Any]:
        found = {name: each for name, each in document(self).items() if name not in _HIDDEN}
        return {**found, self.age_name: self.oldest_age_seconds}

    def to_prometheus(self) -> str:
        """Return the metrics in Prometheus' text format."""
        labels = {name: getattr(self, name) or "" for name in self.labels}
        lines: list[str] = []
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in _HIDDEN or each.type not in _KINDS or value is None:
                continue
            kind = _KINDS[str(each.type)]
            name = f"{each.name}_total" if kind == "counter" else each.name
            lines += self._metric(name, kind, each.metadata["doc"], labels, value)
        what = "Age of the oldest change that waits; 0 if none was left."
        lines += self._metric(self.age_name, "gauge", what, labels, self.oldest_age_seconds)
        name = f"{self.prefix}phase_seconds_total"
        lines += [f"# HELP {name} Seconds by phase.", f"# TYPE {name} counter"]
        for phase, seconds in self.phases.items():
            lines.append(f"{name}{format_labels({**labels, 'phase': phase})} {seconds:.3f}")
        return "\n".join(lines) + "\n"

    def _metric(
        self, name: str, kind: str, what: str, labels: Mapping[str, str], value: float
    ) -> tuple[str, str, str]:
        full = self.prefix + name
        shown = str(value) if isinstance(value, int) else f"{value:.3f}"
        line = f"{full}{format_labels(labels)} {shown}"
        return (f"# HELP {full} {what}", f"# TYPE {full} {kind}", line)


# By the type of a field: what is counted is a whole number, what is not there yet is optional.
_KINDS: Final = {"int": "counter", "int | None": "gauge", "float | None": "gauge", "float": "gauge"}


@contextmanager
def served(text: Callable[[], str], port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Answer `GET /metrics` with a text during the block, in threads of its own.

    Eight clients are answered at a time, and each has ten seconds. Yields the port.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing: standard error is the command's."""

    try:
        server = _Server((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise InvalidArgumentError(
            f"metrics cannot be served on {host}:{port}: {error}", hint="name another port"
        ) from error
    thread = Thread(target=server.serve_forever, name="delvec-metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def format_labels(labels: Mapping[str, str]) -> str:
    r"""Return labels in Prometheus' form.

    >>> print(format_labels({"table": 'a"b'}))
    {table="a\"b"}
    """
    escapes = {"\\": r"\\", '"': r"\"", "\n": r"\n"}
    pairs = (
        f'{key}="{"".join(escapes.get(each, each) for each in value)}"'
        for key, value in labels.items()
    )
    return f"{{{','.join(pairs)}}}"


class _Server(ThreadingHTTPServer):
    """Answers a few clients at a time, each for a few seconds: others may reach the port as well.

    Who comes when all places are taken is sent away.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._places = BoundedSemaphore(_CLIENTS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        # Not a timeout of the socket, which begins again with each byte.
        end = Timer(_SECONDS, _hang_up, [request])
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002
        """Log it: standard error is the command's."""
        _LOG.debug("a request for metrics from %s failed", client_address, exc_info=True)


def _hang_up(connection: Any) -> None:  # noqa: ANN401
    with suppress(OSError):  # the client was faster
        connection.shutdown(SHUT_RDWR)


_M = TypeVar("_M", bound=ServiceMetrics)
Waits: TypeAlias = Callable[[int | None], None]

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
