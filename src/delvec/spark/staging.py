"""Rows that several jobs use, and that must be the same for all of them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from delvec.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

__all__ = ["staged"]


@contextmanager
def staged(rows: DataFrame) -> Iterator[DataFrame]:
    """Compute rows once, so that all jobs of the block see the same ones.

    They stay in the memory of the executors, and on their disks beyond it, until the block ends.
    Unlike with a cache, lost rows are never computed again, with other random numbers or from a
    source that has changed: the job fails, and with it the operation. With speculative execution
    they go to Spark's checkpoint directory, where only one attempt of a task counts.

    Raises:
        UnsupportedFeatureError: Speculation is on, and there is no checkpoint directory.
    """
    kept = _kept(rows)
    try:
        yield kept
    finally:
        plan: Any = kept._jdf.logicalPlan()  # noqa: SLF001
        plan.rdd().unpersist(False)


def _kept(rows: DataFrame) -> DataFrame:
    context = rows.sparkSession.sparkContext
    master = str(context.master)
    if master.startswith("local") and "cluster" not in master:
        return rows.localCheckpoint(eager=False)  # computed with the job that needs them first
    if context.getConf().get("spark.speculation", "false") != "true":
        # Eager: no job has seen yet what is lost and computed again meanwhile.
        return rows.localCheckpoint(eager=True)
    if context.getCheckpointDir() is None:
        raise UnsupportedFeatureError(
            "with spark.speculation two attempts of a task may compute different rows, and there is"
            " no checkpoint directory to choose one of them",
            feature="spark.speculation",
            hint="call spark.sparkContext.setCheckpointDir(...), or switch spark.speculation off",
        )
    return rows.checkpoint(eager=True)
