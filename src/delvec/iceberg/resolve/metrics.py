"""What a resolver that runs as a service has done so far, for programs that watch it."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from threading import BoundedSemaphore, Thread, Timer
from typing import TYPE_CHECKING, Any, Final

from delvec.errors import ConflictError, InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from delvec.errors import DelvecError
    from delvec.iceberg.resolve.report import ResolveReport

__all__ = ["Metrics", "served"]

_LOG: Final = logging.getLogger("delvec")
_PREFIX: Final = "delvec_resolve_"
_CLIENTS: Final = 8
_SECONDS: Final = 10.0
_COUNTERS: Final = {
    "cycles": "Cycles that ended, well or not.",
    "idle_cycles": "Cycles that found nothing to do.",
    "conflicts": "Cycles that ended because somebody else had the lock or committed.",
    "errors": "Cycles that ended by another failure, such as of a store or the catalog.",
    "commits": "Snapshots that were committed to the target.",
    "replans": "Concurrent commits after which a cycle did something again.",
    "staged_snapshots": "Snapshots of the staging branch that were taken over.",
    "delete_files": "Ordinary equality-delete files that were resolved.",
    "key_vectors": "Equality delete vectors that were resolved.",
    "keys": "Deleted keys in these.",
    "absent_keys": "Those of them that no row had.",
    "rows_deleted": "Rows that had a deleted key.",
    "rows_added": "Rows that were taken over from the staging branch.",
    "data_files_added": "Data files that were taken over from the staging branch.",
    "vectors_added": "Deletion vectors or position-delete files that were written.",
    "vector_bytes": "The size of these.",
}
_GAUGES: Final = {
    "index_rows": "Rows of the primary-key index.",
    "lag_seconds": "Age of the oldest staged snapshot when the last commit took it over.",
    "oldest_unresolved_age_seconds": "Age of the oldest snapshot that failures may have left.",
    "last_success_timestamp_seconds": "When the last cycle that succeeded ended.",
}


@dataclass(frozen=True)
class Metrics:
    """Sums over the cycles of a resolver, and what the last one found.

    >>> from delvec.iceberg.resolve.report import ResolveReport
    >>> report = ResolveReport("lake.db.orders", "main", commits=1, keys=30, rows_deleted=26)
    >>> after = Metrics("lake.db.orders").after(report)
    >>> (after.cycles, after.keys, after.rows_deleted)
    (1, 30, 26)

    Attributes:
        table: The name of the table.
        target: The branch that is resolved to.
        staging: The branch that changes are taken from; None if resolved in place.
        looked_ms: When the last cycle began that succeeded, in milliseconds since 1970: it took all
            that was there. Before the first success, when these metrics were made.
        is_failing: Whether the last cycle failed.
        phases: Seconds by phase, over all cycles.
    """

    table: str
    target: str = "main"
    staging: str | None = None
    cycles: int = 0
    idle_cycles: int = 0
    conflicts: int = 0
    errors: int = 0
    commits: int = 0
    replans: int = 0
    staged_snapshots: int = 0
    delete_files: int = 0
    key_vectors: int = 0
    keys: int = 0
    absent_keys: int = 0
    rows_deleted: int = 0
    rows_added: int = 0
    data_files_added: int = 0
    vectors_added: int = 0
    vector_bytes: int = 0
    index_rows: int | None = None
    lag_seconds: float | None = None
    looked_ms: int = field(default_factory=lambda: int(time.time() * 1000))
    is_failing: bool = False
    last_success_timestamp_seconds: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)

    def after(self, report: ResolveReport, begin: float | None = None) -> Metrics:
        """Return the metrics after a cycle that succeeded.

        Args:
            report: What it did.
            begin: When it began, in seconds since 1970; now by default.
        """
        now = time.time()
        begin_ms = int((now if begin is None else begin) * 1000)
        oldest = report.oldest_staged_ms
        phases = {
            phase: self.phases.get(phase, 0.0) + report.phases.get(phase, 0.0)
            for phase in {**self.phases, **report.phases}
        }
        return replace(
            self,
            table=report.table,
            target=report.target,
            staging=report.staging,
            cycles=self.cycles + 1,
            idle_cycles=self.idle_cycles + (report.commits == 0),
            commits=self.commits + report.commits,
            replans=self.replans + report.conflicts,
            staged_snapshots=self.staged_snapshots + report.staged_snapshots,
            delete_files=self.delete_files + report.delete_files,
            key_vectors=self.key_vectors + report.key_vectors,
            keys=self.keys + report.keys,
            absent_keys=self.absent_keys + report.absent,
            rows_deleted=self.rows_deleted + report.rows_deleted,
            rows_added=self.rows_added + report.rows_added,
            data_files_added=self.data_files_added + report.data_files_added,
            vectors_added=self.vectors_added + report.vectors_added,
            vector_bytes=self.vector_bytes + report.vector_bytes,
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
        hidden = ("looked_ms", "is_failing")
        found = {
            each.name: getattr(self, each.name) for each in fields(self) if each.name not in hidden
        }
        age = self.oldest_unresolved_age_seconds
        return {**found, "oldest_unresolved_age_seconds": age, "phases": dict(self.phases)}

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


def _metric(
    name: str, kind: str, what: str, labels: Mapping[str, str], value: float
) -> tuple[str, str, str]:
    full = _PREFIX + name
    shown = str(value) if isinstance(value, int) else f"{value:.3f}"
    return (
        f"# HELP {full} {what}",
        f"# TYPE {full} {kind}",
        f"{full}{_labels(labels)} {shown}",
    )


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


@contextmanager
def served(text: Callable[[], str], port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Answer `GET /metrics` with a text during the block, in threads of its own.

    Eight clients are answered at a time, and each has ten seconds.

    Args:
        text: Makes the text for each request.
        port: The port; 0 for any that is free.
        host: The address to listen on; by default only this machine is answered.

    Yields:
        The port.

    Raises:
        InvalidArgumentError: The port cannot be listened on.
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
