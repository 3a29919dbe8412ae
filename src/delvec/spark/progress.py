"""Spark's jobs: their descriptions in its user interface, and their progress."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeAlias

from py4j.protocol import Py4JError

from delvec.spark import jvm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    # The description of a job, the tasks of it that are done, all tasks of it.
    OnProgress: TypeAlias = Callable[[str, int, int], None]

__all__ = ["described", "watched"]

_SECONDS = 0.2


@contextmanager
def described(spark: SparkSession, what: str) -> Iterator[None]:
    """Set the description of the jobs of the block; restore the caller's own afterwards."""
    context = spark.sparkContext
    before: Any = context.getLocalProperty("spark.job.description")
    context.setJobDescription(what)
    try:
        yield
    finally:
        context.setJobDescription(before)


@contextmanager
def watched(
    spark: SparkSession, on_progress: OnProgress, *, seconds: float = _SECONDS
) -> Iterator[None]:
    """Call a function with the progress of Spark's active stages, for as long as the block runs.

    It is called from another thread, and only when the progress has changed. The thread polls
    Spark's status tracker a few times a second, which costs the same for any data; a job that is
    shorter than the time between two polls is missed.

        with watched(spark, lambda what, done, total: print(what, done, total)):
            table.delete("day < '2026-01-01'")

    Raises:
        UnsupportedFeatureError: The session is a Spark Connect client.
    """
    jvm.view_of(spark)
    ended = Event()
    watcher = Thread(
        target=_watch,
        args=(spark, on_progress, ended, seconds),
        name="delvec-progress",
        daemon=True,
    )
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _watch(spark: SparkSession, on_progress: OnProgress, ended: Event, seconds: float) -> None:
    last: tuple[str, int, int] | None = None
    while not ended.wait(seconds):
        try:
            now = _progress(spark)
        except (Py4JError, OSError):
            return  # the session has ended; its user gets the error
        if now is not None and now != last:
            on_progress(*now)
            last = now


def _progress(spark: SparkSession) -> tuple[str, int, int] | None:
    """Add up the tasks of all active stages; None if there is none."""
    tracker = spark.sparkContext.statusTracker()
    found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    stages = [stage for stage in found if stage is not None]
    jobs = tracker.getActiveJobsIds()
    if not stages or not jobs:
        return None
    done = sum(stage.numCompletedTasks for stage in stages)
    total = sum(stage.numTasks for stage in stages)
    return _description(spark, min(jobs)) or stages[0].name, done, total


def _description(spark: SparkSession, job: int) -> str:
    """Return the description of a job, which the status tracker of Python does not have."""
    store = spark.sparkContext._jsc.sc().statusStore()  # noqa: SLF001
    description = store.job(job).description()
    return str(description.get()) if description.isDefined() else ""
