"""Files with vectors read by Python tasks, for versions whose vectors the driver cannot hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from delvec.datasource import DelvecDataSource
from delvec.spark.sources import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from delvec.delta.snapshot import Snapshot

__all__ = ["by_tasks"]


def by_tasks(
    spark: SparkSession, snapshot: Snapshot, columns: Sequence[str] | None = None
) -> DataFrame:
    """Read those files of a version that have vectors; each task loads the vectors of its own.

    Args:
        spark: The session.
        snapshot: The version.
        columns: The columns to give, in that order; `_file` and `_pos` are allowed.
    """
    register(spark)
    options = {f"storage.{key}": value for key, value in snapshot.storage.options.items()}
    options |= {
        "versionAsOf": str(snapshot.version),
        "timeZone": spark.conf.get("spark.sql.session.timeZone") or "UTC",
        "splitBytes": str(_split_bytes(spark, snapshot)),
        "_files": "vectored",
    }
    if columns is not None:
        options["columns"] = json.dumps(list(columns))
    return spark.read.format(DelvecDataSource.name()).options(**options).load(snapshot.table)


def _split_bytes(spark: SparkSession, snapshot: Snapshot) -> int:
    """Give each core something to do, and no task too much: Spark's own rule."""
    conf = spark._jsparkSession.sessionState().conf()  # noqa: SLF001
    limit, open_cost = int(conf.filesMaxPartitionBytes()), int(conf.filesOpenCostInBytes())
    files = snapshot.files
    total = int((files.sizes + open_cost)[files.has_vector].sum())
    share = total // max(1, spark.sparkContext.defaultParallelism)
    return min(limit, max(open_cost, share))
