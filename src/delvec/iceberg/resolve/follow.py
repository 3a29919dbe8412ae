"""Resolving again and again until told to stop: a service, with metrics for who watches it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import uniform
from socket import SHUT_RDWR
from threading import TIMEOUT_MAX, BoundedSemaphore, Event, Thread, Timer
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import (
    ConflictError,
    DelvecError,
    EngineError,
    InvalidArgumentError,
    StorageError,
)
from delvec.report.rendering import doc, document, documented, required
from delvec.spark.failures import jvm_has_ended

if TYPE_CHECKING:
    from delvec.iceberg.resolve.report import ResolveReport

_LOG: Final = logging.getLogger("delvec")
_PREFIX: Final = "delvec_resolve_"
_CLIENTS: Final = 8
_SECONDS: Final = 10.0
# Half a minute in all: longer than a store or a catalog takes to restart.
WAITS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
_MOST_DOUBLINGS: Final = 3
_HIDDEN: Final = ("looked_ms", "is_failing")  # tell the age of what is unresolved
_REPORTED: Final = (
    *("commits", "staged_snapshots", "delete_files", "key_vectors", "keys", "rows_deleted"),
    *("rows_added", "data_files_added", "vectors_added", "vector_bytes"),
)


def log_retry(error: DelvecError, seconds: float) -> None:
    """Log what failed, and when it is tried again."""
    _LOG.warning("trying again in %g s: %s", seconds, error)


def follow(
    resolve: Callable[[], ResolveReport],
    *,
    stop: Event,
    on_report: Callable[[ResolveReport], None],
    on_retry: Callable[[DelvecError, float], None] = log_retry,
    on_metrics: Callable[[Metrics], None] = lambda _: None,
    interval: float = 30.0,
    metrics: Metrics | None = None,
) -> Metrics:
    """Resolve once in each interval until `stop` is set.

        stop = threading.Event()
        follow(lambda: t.resolve("id", staging="changes"), stop=stop, on_report=print)

    A cycle that runs when `stop` is set is completed, with all its commits: one cycle takes all
    staged snapshots, also where a commit takes a limited number of them. After a conflict, such as
    a lock that somebody else has, the pause grows from one interval to eight, less a random part.

    Returns:
        The metrics of all cycles.
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


@documented()
class Metrics:
    """Sums over the cycles of a resolver, and what the last one found.

    >>> from delvec.iceberg.resolve.report import ResolveReport
    >>> report = ResolveReport("lake.db.orders", "main", commits=1, keys=30, rows_deleted=26)
    >>> after = Metrics("lake.db.orders").after(report)
    >>> (after.cycles, after.keys, after.rows_deleted)
    (1, 30, 26)
    """

    table: str = required("The name of the table.")
    target: str = doc("The branch that is resolved to.", "main")
    staging: str | None = doc("The branch that changes come from; None if in place.", None)
    cycles: int = doc("Cycles that ended, well or not.", 0)
    idle_cycles: int = doc("Cycles that found nothing to do.", 0)
    conflicts: int = doc("Cycles that ended because somebody else had the lock or committed.", 0)
    errors: int = doc("Cycles that ended by another failure, such as of a store or the catalog.", 0)
    commits: int = doc("Snapshots that were committed to the target.", 0)
    replans: int = doc("Concurrent commits after which a cycle did something again.", 0)
    staged_snapshots: int = doc("Snapshots of the staging branch that were taken over.", 0)
    delete_files: int = doc("Ordinary equality-delete files that were resolved.", 0)
    key_vectors: int = doc("Equality delete vectors that were resolved.", 0)
    keys: int = doc("Deleted keys in these.", 0)
    absent_keys: int = doc("Those of them that no row had.", 0)
    rows_deleted: int = doc("Rows that had a deleted key.", 0)
    rows_added: int = doc("Rows that were taken over from the staging branch.", 0)
    data_files_added: int = doc("Data files that were taken over from the staging branch.", 0)
    vectors_added: int = doc("Deletion vectors or position-delete files that were written.", 0)
    vector_bytes: int = doc("The size of these.", 0)
    index_rows: int | None = doc("Rows of the primary-key index.", None)
    lag_seconds: float | None = doc(
        "Age of the oldest staged snapshot when the last commit took it over.", None
    )
    looked_ms: int = doc(
        "When the last cycle began that succeeded, in milliseconds since 1970: it took all that"
        " was there. Before the first success, when these metrics were made.",
        lambda: int(time.time() * 1000),
    )
    is_failing: bool = doc("Whether the last cycle failed.", False)
    last_success_timestamp_seconds: float | None = doc(
        "When the last cycle that succeeded ended.", None
    )
    phases: Mapping[str, float] = doc("Seconds by phase, over all cycles.", dict)

    def after(self, report: ResolveReport, begin: float | None = None) -> Metrics:
        """Return the metrics after a cycle that succeeded."""
        now = time.time()
        begin_ms = int((now if begin is None else begin) * 1000)
        oldest = report.oldest_staged_ms
        phases = {
            phase: self.phases.get(phase, 0.0) + report.phases.get(phase, 0.0)
            for phase in {**self.phases, **report.phases}
        }
        sums: dict[str, Any] = {
            name: getattr(self, name) + getattr(report, name) for name in _REPORTED
        }
        return replace(
            self,
            table=report.table,
            target=report.target,
            staging=report.staging,
            cycles=self.cycles + 1,
            idle_cycles=self.idle_cycles + (report.commits == 0),
            replans=self.replans + report.conflicts,
            absent_keys=self.absent_keys + report.absent,
            **sums,
            index_rows=self.index_rows if report.index_rows is None else report.index_rows,
            lag_seconds=self.lag_seconds if oldest is None else max(0.0, now - oldest / 1000),
            looked_ms=begin_ms,
            is_failing=False,
            last_success_timestamp_seconds=now,
            phases=phases,
        )

    def after_failure(self, error: DelvecError) -> Metrics:
        """Return the metrics after a cycle that failed."""
        is_conflict = isinstance(error, ConflictError)
        return replace(
            self,
            cycles=self.cycles + 1,
            conflicts=self.conflicts + is_conflict,
            errors=self.errors + (not is_conflict),
            is_failing=True,
        )

    @property
    def oldest_unresolved_age_seconds(self) -> float:
        """The age of the oldest snapshot that failed cycles may have left; 0 after a success.

        What was there before the first cycle may be older.
        """
        return max(0.0, time.time() - self.looked_ms / 1000) if self.is_failing else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""
        found = {name: each for name, each in document(self).items() if name not in _HIDDEN}
        return {**found, "oldest_unresolved_age_seconds": self.oldest_unresolved_age_seconds}

    def to_prometheus(self) -> str:
        """Return the metrics in Prometheus' text format; each name begins `delvec_resolve_`."""
        labels = {"table": self.table, "target": self.target, "staging": self.staging or ""}
        lines: list[str] = []
        for name, what in _COUNTERS.items():
            lines += _metric(f"{name}_total", "counter", what, labels, getattr(self, name))
        for name, what in _GAUGES.items():
            value = getattr(self, name)
            if value is not None:
                lines += _metric(name, "gauge", what, labels, value)
        name = f"{_PREFIX}phase_seconds_total"
        lines += [f"# HELP {name} Seconds by phase.", f"# TYPE {name} counter"]
        for phase, seconds in self.phases.items():
            lines.append(f"{name}{_labels({**labels, 'phase': phase})} {seconds:.3f}")
        return "\n".join(lines) + "\n"


def _documented(*types: str) -> dict[str, str]:
    told = (each for each in fields(Metrics) if each.type in types and each.name not in _HIDDEN)
    return {each.name: each.metadata["doc"] for each in told}


_COUNTERS: Final = _documented("int")
_GAUGES: Final = {
    **_documented("int | None", "float | None"),
    "oldest_unresolved_age_seconds": "Age of the oldest snapshot that failures may have left.",
}


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


def _metric(
    name: str, kind: str, what: str, labels: Mapping[str, str], value: float
) -> tuple[str, str, str]:
    full = _PREFIX + name
    shown = str(value) if isinstance(value, int) else f"{value:.3f}"
    return (f"# HELP {full} {what}", f"# TYPE {full} {kind}", f"{full}{_labels(labels)} {shown}")


def _labels(labels: Mapping[str, str]) -> str:
    r"""Return labels in Prometheus' form.

    >>> print(_labels({"table": 'a"b'}))
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
