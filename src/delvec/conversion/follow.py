"""Keeping an Iceberg table up to date with a Delta table, until told to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import TIMEOUT_MAX, Event
from typing import TYPE_CHECKING

from delvec.conversion.convert import convert
from delvec.delta.table import DeltaTable
from delvec.errors import ConflictError, EngineError, InvalidArgumentError, StorageError
from delvec.iceberg.resolve.follow import WAITS, log_retry
from delvec.spark.failures import jvm_has_ended

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession
    from typing_extensions import Unpack

    from delvec.conversion.planning.options import Choices, Verify
    from delvec.conversion.report import ConversionReport
    from delvec.errors import DelvecError


def follow(  # noqa: PLR0913
    spark: SparkSession,
    source: str | os.PathLike[str] | DeltaTable,
    target: str,
    *,
    stop: Event,
    on_report: Callable[[ConversionReport], None],
    on_retry: Callable[[DelvecError, float], None] = log_retry,
    interval: float = 5.0,
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

    Args:
        spark: The session, with the catalog of the target.
        source: The path or URI of the Delta table, or the table.
        target: The name of the Iceberg table; created if it does not exist.
        stop: Set it from another thread to end this call. (A signal handler runs in the thread
            that waits, so it should start another one to set it.)
        on_report: Called with the report of the first poll, and of each that changed the target,
            be it properties only.
        on_retry: Called with the error and the seconds until the next attempt; logs a warning by
            default.
        interval: Seconds from the start of one poll to the start of the next.
        verify: How each result is verified before it is published, see `ConversionPlan.apply`.
        storage_options: Credentials and endpoints of the source.
        allow_paths: What a source that is opened here may lead to, see `DeltaTable.for_path`.
        **choices: See `plan_conversion`.

    Returns:
        The last report; None if `stop` was set before there was one.

    Raises:
        StorageError: A store failed six times in a row, over half a minute or more.
        EngineError: Spark or the catalog failed as often.
        DelvecError: Errors that a retry cannot resolve are raised at once, see `plan_conversion`.
    """
    if not 0 <= interval <= TIMEOUT_MAX:
        raise InvalidArgumentError(f"interval is a number of seconds, got {interval!r}")
    last: ConversionReport | None = None
    failures = 0
    while not stop.is_set():
        begin = time.monotonic()
        pause = interval
        try:
            # Opened once: the table caches what it has read of its log.
            if not isinstance(source, DeltaTable):
                source = DeltaTable.for_path(
                    spark, source, storage_options, allow_paths=allow_paths
                )
            report = convert(spark, source, target, verify=verify, **choices)
        except ConflictError as error:
            on_retry(error, pause)
        except (StorageError, EngineError) as error:
            if failures == len(WAITS) or stop.is_set():
                raise
            pause = max(interval, WAITS[failures])
            failures += 1
            on_retry(error, pause)
        except ConnectionError as error:
            raise jvm_has_ended() from error
        else:
            failures = 0
            if last is None or report.snapshot_id is not None or report.properties_set:
                on_report(report)
            last = report
        stop.wait(max(0.0, begin + pause - time.monotonic()))
    return last
