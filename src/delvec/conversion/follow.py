"""Keeping an Iceberg table up to date with a Delta table, until told to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from delvec.conversion.convert import apply_newest, plan_conversion
from delvec.delta.log.history import commit_times
from delvec.delta.table import DeltaTable
from delvec.report.format import format_count
from delvec.report.rendering import doc, documented, required
from delvec.spark.service import IDLE_SECONDS, Listeners, ServiceMetrics, Waits, log_retry, repeat

if TYPE_CHECKING:
    import os
    from threading import Event

    from pyspark.sql import SparkSession
    from typing_extensions import Unpack

    from delvec.conversion.apply import ConversionReport
    from delvec.conversion.plan import ConversionPlan
    from delvec.conversion.planning.options import Choices, Verify
    from delvec.errors import DelvecError


def follow(  # noqa: PLR0913
    spark: SparkSession,
    source: str | os.PathLike[str] | DeltaTable,
    target: str,
    *,
    stop: Event,
    on_report: Callable[[ConversionReport], None],
    on_retry: Callable[[DelvecError, float], None] = log_retry,
    on_metrics: Callable[[Metrics], None] = lambda _: None,
    on_idle: Callable[[Metrics], None] = lambda _: None,
    interval: float = 5.0,
    idle_after: float = IDLE_SECONDS,
    metrics: Metrics | None = None,
    verify: Verify | bool = "counts",
    storage_options: Mapping[str, object] | None = None,
    allow_paths: Sequence[str] | None = None,
    **choices: Unpack[Choices],
) -> ConversionReport | None:
    """Convert new versions of the source until `stop` is set.

        stop = threading.Event()
        follow(spark, "/lake/orders", "lake.db.orders", stop=stop, on_report=print)

    A poll that finds nothing new costs one listing of the source's log and one load of the
    target's metadata: some ten milliseconds on a disk, no Spark job. A poll that finds a new
    version costs as much as `convert`: it grows with the change, and through the target's metadata
    with the number of its snapshots. A conversion that runs when `stop` is set is completed, so
    the target is always at a version of the source.

    `stop` is set by another thread. (A signal handler runs in the thread that waits, so it should
    start another one to set it.) `Listeners` tells what is called when, and `repeat` what is tried
    again; a change of properties alone is reported as well. Counting begins with `metrics`, at 0 by
    default. The other arguments are those of `plan_conversion`, `ConversionPlan.apply` and
    `DeltaTable.for_path`. Returns the last report; None if there was none.
    """
    last: ConversionReport | None = None

    def cycle(waits: Waits) -> ConversionReport:
        nonlocal source, last

        def plan() -> ConversionPlan:
            made = plan_conversion(spark, source, target, **choices)
            waits(_oldest_ms(made))
            return made

        # Opened once: the table caches what it has read of its log.
        if not isinstance(source, DeltaTable):
            source = DeltaTable.for_path(spark, source, storage_options, allow_paths=allow_paths)
        last = apply_newest(plan, verify)
        return last

    given = metrics or Metrics(
        source.storage.root if isinstance(source, DeltaTable) else str(source), target
    )
    listeners = Listeners(on_report, on_retry, on_metrics, on_idle)
    repeat(cycle, given, listeners, stop=stop, interval=interval, idle_after=idle_after)
    return last


_REPORTED: Final = (
    *("versions", "files_added", "files_removed", "files_copied"),
    *("vectors_added", "vectors_replaced", "vectors_dropped", "vector_bytes"),
)


@documented()
class Metrics(ServiceMetrics):
    """Sums over the cycles of a conversion, and what the last one found."""

    prefix: ClassVar = "delvec_convert_"
    age_name: ClassVar = "oldest_unconverted_age_seconds"
    labels: ClassVar = ("source", "target")

    source: str = required("The Delta table.")
    target: str = required("The Iceberg table.")
    version: int | None = doc("The version of the source that the target holds.", None)
    versions: int = doc("Versions of the source that became a snapshot each.", 0)
    files_added: int = doc("Data files that were new in the target.", 0)
    files_removed: int = doc("Data files that were removed from the target.", 0)
    files_copied: int = doc("Data files that were copied.", 0)
    vectors_added: int = doc("Vectors of files that had none.", 0)
    vectors_replaced: int = doc("Vectors that replaced older ones.", 0)
    vectors_dropped: int = doc("Vectors that were removed while their data file stayed.", 0)
    vector_bytes: int = doc("The size of the files of vectors that were written.", 0)

    def is_idle(self, report: ConversionReport) -> bool:
        """Return whether the target was left as it was, properties included."""
        return report.snapshot_id is None and not report.properties_set

    def brief(self) -> str:
        """Return what was done, in one line."""
        state = "as it was" if self.version is None else f"at version {self.version:,}"
        return f"{format_count(self.cycles, 'cycle')}: {self.target} is {state}"

    def _sums(self, report: ConversionReport) -> dict[str, Any]:
        added = _REPORTED if report.snapshot_id is not None else ()
        return {
            **{name: getattr(self, name) + getattr(report, name) for name in added},
            "commits": self.commits + (report.snapshot_id is not None),
            "version": report.version,
        }


def _oldest_ms(plan: ConversionPlan) -> int | None:
    """Return when the oldest version was committed that the target lacks; None if it has all.

    Of a new target, when that was which it gets.
    """
    if not plan.planned.steps:
        return None
    first = plan.version if plan.start_version is None else plan.start_version + 1
    times = commit_times(plan.snapshot, min(first, plan.version), plan.version)
    found = [each for each in times.commits if each.first >= first]
    return times.of(found[0]) if found else None
