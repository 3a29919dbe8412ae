"""What a JVM has used: a bound of its heap, its time, and the tasks that Spark has started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delvec.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cpu_seconds", "heap_bound", "started_tasks"]


def heap_bound(spark: SparkSession) -> int:
    """Return an upper bound of the bytes that the heap has held, garbage included.

    It is the sum of each pool's own peak. Pools reach theirs at different times, so that the sum
    may exceed the heap itself: the JVM has no peak of all pools together.
    """
    factory = jvm.view_of(spark).java.lang.management.ManagementFactory
    pools = list(factory.getMemoryPoolMXBeans())
    heap = [pool for pool in pools if pool.getType().name() == "HEAP"]
    return sum(int(pool.getPeakUsage().getUsed()) for pool in heap)


def cpu_seconds(spark: SparkSession) -> float:
    """Return the seconds that all threads of the JVM have had a processor, collectors included."""
    handle = jvm.view_of(spark).java.lang.ProcessHandle.current()
    return float(handle.info().totalCpuDuration().get().toMillis()) / 1000


def started_tasks(spark: SparkSession) -> int:
    """Return how many tasks all jobs have had so far."""
    jobs = jvm.session_of(spark).sparkContext().statusStore().jobsList(None)
    return sum(int(job.numTasks()) for job in jvm.items(jobs))
