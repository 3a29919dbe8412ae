"""Resolving again and again until told to stop: a service, with metrics for who watches it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from threading import Event
from typing import Any, ClassVar, Final

from delvec.errors import DelvecError
from delvec.iceberg.resolve.report import ResolveReport
from delvec.report.format import format_count
from delvec.report.rendering import doc, documented, required
from delvec.spark.service import IDLE_SECONDS, Listeners, ServiceMetrics, Waits, log_retry, repeat

_REPORTED: Final = (
    *("commits", "staged_snapshots", "delete_files", "key_vectors", "keys", "rows_deleted"),
    *("rows_added", "data_files_added", "vectors_added", "vector_bytes"),
)


def follow(  # noqa: PLR0913
    resolve: Callable[[], ResolveReport],
    *,
    stop: Event,
    on_report: Callable[[ResolveReport], None],
    on_retry: Callable[[DelvecError, float], None] = log_retry,
    on_metrics: Callable[[Metrics], None] = lambda _: None,
    on_idle: Callable[[Metrics], None] = lambda _: None,
    oldest: Callable[[], datetime | None] = lambda: None,
    interval: float = 30.0,
    idle_after: float = IDLE_SECONDS,
    metrics: Metrics | None = None,
) -> Metrics:
    """Resolve once in each interval until `stop` is set.

        stop = threading.Event()
        follow(lambda: t.resolve("id", staging="changes"), stop=stop, on_report=print)

    A cycle that runs when `stop` is set is completed, with all its commits: one cycle takes all
    staged snapshots, also where a commit takes a limited number of them. After a conflict, such as
    a lock that somebody else has, the pause grows from one interval to eight, less a random part.
    `oldest` is asked before each cycle since when changes wait, for the metrics:
    `lambda: t.oldest_unresolved("changes")`.

    Returns:
        The metrics of all cycles.
    """

    def cycle(waits: Waits) -> ResolveReport:
        since = oldest()
        waits(None if since is None else int(since.timestamp() * 1000))
        return resolve()

    return repeat(
        cycle,
        metrics or Metrics(""),
        Listeners(on_report, on_retry, on_metrics, on_idle),
        stop=stop,
        interval=interval,
        idle_after=idle_after,
    )


@documented()
class Metrics(ServiceMetrics):
    """Sums over the cycles of a resolver, and what the last one found.

    >>> from delvec.iceberg.resolve.report import ResolveReport
    >>> report = ResolveReport("lake.db.orders", "main", commits=1, keys=30, rows_deleted=26)
    >>> after = Metrics("lake.db.orders").after(report)
    >>> (after.cycles, after.keys, after.rows_deleted)
    (1, 30, 26)
    """

    prefix: ClassVar = "delvec_resolve_"
    age_name: ClassVar = "oldest_unresolved_age_seconds"
    labels: ClassVar = ("table", "target", "staging")

    table: str = required("The name of the table.")
    target: str = doc("The branch that is resolved to.", "main")
    staging: str | None = doc("The branch that changes come from; None if in place.", None)
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

    @property
    def oldest_unresolved_age_seconds(self) -> float:
        """The age of the oldest change that waits to be resolved, see `oldest_age_seconds`."""
        return self.oldest_age_seconds

    def is_idle(self, report: ResolveReport) -> bool:
        """Return whether nothing was committed."""
        return not report.commits

    def brief(self) -> str:
        """Return what was done, in one line."""
        figures = {"commit": self.commits, "key": self.keys, "row": self.rows_deleted}
        done = ", ".join(format_count(count, noun) for noun, count in figures.items())
        return f"{format_count(self.cycles, 'cycle')}: {done} deleted"

    def _oldest_ms(self, report: ResolveReport) -> int | None:
        return report.oldest_staged_ms or self.waiting_ms

    def _sums(self, report: ResolveReport) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) + getattr(report, name) for name in _REPORTED},
            "table": report.table,
            "target": report.target,
            "staging": report.staging,
            "replans": self.replans + report.conflicts,
            "absent_keys": self.absent_keys + report.absent,
            "index_rows": self.index_rows if report.index_rows is None else report.index_rows,
        }
