"""Spark as the engine of an operation."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.spark.failures import explained
from delvec.spark.interrupts import interruptible
from delvec.spark.progress import described

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

__all__ = ["SparkEngine"]


@dataclass(frozen=True)
class SparkEngine:
    """A session, as `delvec.delta.write.engine.Engine`."""

    spark: SparkSession

    def session(self, operation: str) -> SparkSession:  # noqa: ARG002
        """Return the session."""
        return self.spark

    @contextmanager
    def explained(self, table: str) -> Iterator[None]:
        """Turn failures of Spark in the block into errors of delvec, see `failures.explained`.

        If the block is interrupted, no task goes on, so that none writes files any more; see
        `interrupts.interruptible`.
        """
        with interruptible(self.spark), explained(table):
            yield

    def described(self, what: str) -> AbstractContextManager[None]:
        """Set the description of the block's jobs, see `progress.described`."""
        return described(self.spark, what)
