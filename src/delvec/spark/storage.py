"""Storage with the credentials of a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delvec.spark import jvm
from delvec.spark.conf import allowed_paths
from delvec.storage import Storage

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

__all__ = ["open_storage"]


def open_storage(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    storage_options: Mapping[str, object] | None = None,
    allow_paths: Sequence[str] | None = None,
) -> Storage:
    """Open a path or URI with the credentials of the session.

    What `storage_options` do not set (keys, endpoint, region) is taken from the session's Hadoop
    configuration, as Spark does. A Spark Connect client has no such configuration. The session's
    fence, `spark.delvec.allowedPaths`, holds; `allow_paths` can only narrow it.
    """
    hadoop = jvm.hadoop_setting(spark) if jvm.is_classic(spark) else None
    fences = (allowed_paths(spark), allow_paths)
    return Storage.open(uri, storage_options, hadoop=hadoop, allow_paths=fences)
