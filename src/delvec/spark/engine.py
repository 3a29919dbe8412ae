"""Spark as the engine of an operation: settings, credentials, and tables known by name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from delvec.documents import size_bytes
from delvec.errors import InvalidArgumentError, TableNotFoundError
from delvec.identifiers import QUOTED, unquote
from delvec.spark import jvm
from delvec.spark.failures import quiet, translate_errors
from delvec.spark.jobs import describe_jobs, interruptible
from delvec.storage import Storage
from delvec.storage.fence import ALLOWED_PATHS, lists_of
from delvec.storage.listed_files import local_path

_BY_PATH: Final = re.compile(rf"\s*delta\s*\.\s*({QUOTED})\s*", re.IGNORECASE)
_DETAILS: Final = "# Detailed Table Information"


@dataclass(frozen=True)
class SparkEngine:
    """A session, as `delvec.delta.write.transaction.Engine`."""

    spark: SparkSession

    def session(self, operation: str) -> SparkSession:  # noqa: ARG002
        return self.spark

    @contextmanager
    def translate_errors(self, table: str) -> Iterator[None]:
        """Turn failures of Spark into errors of delvec; if interrupted, no task writes files on."""
        with interruptible(self.spark), translate_errors(table):
            yield

    def described(self, what: str) -> AbstractContextManager[None]:
        return describe_jobs(self.spark, what)


def time_zone(spark: SparkSession) -> str:
    """Return the time zone of a session; Java's short names, such as PST, in full."""
    name: str = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    if not jvm.is_classic(spark):
        return name
    zones = jvm.java_class(spark, "java.time.ZoneId")
    return str(zones.SHORT_IDS.get(name) or name)


def allowed_paths(spark: SparkSession) -> list[str] | None:
    """Return the prefixes that tables may lead to outside of their folders; None without a fence.

    An empty setting allows none.
    """
    found = lists_of(spark.conf.get(ALLOWED_PATHS, None))
    return found[0] if found else None


def bytes_setting(spark: SparkSession, key: str, default: str | None = None) -> int:
    """Return a setting of the session that is a size, such as `256m`, in bytes."""
    value = (spark.conf.get(key, default) if default else spark.conf.get(key)) or ""
    found = size_bytes(value)
    if found is None:
        raise InvalidArgumentError(
            f"{key} is {value!r}, which is not a size", hint="write 256m, or 1g"
        )
    return found


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


def location_of(spark: SparkSession, identifier: str) -> str:
    """Return the path or URI of a Delta table by its name, or by `` delta.`/path` ``."""
    if by_path := _BY_PATH.fullmatch(identifier):
        return unquote(by_path[1])
    try:
        with quiet():
            rows = spark.sql(f"DESCRIBE TABLE EXTENDED {identifier}").collect()
    except PySparkException as error:
        raise TableNotFoundError(
            f"the session's catalog has no table {identifier}: {error}".splitlines()[0],
            table=identifier,
            hint="open it by its path: DeltaTable.for_path(spark, path)",
        ) from error
    names = [row.col_name for row in rows]
    start = names.index(_DETAILS) if _DETAILS in names else 0
    details = {row.col_name: row.data_type for row in rows[start:]}
    location, provider = details.get("Location"), (details.get("Provider") or "").lower()
    if not location or provider != "delta":
        raise TableNotFoundError(
            f"{identifier} is not a Delta table but one of {provider or 'an unknown format'}",
            table=identifier,
            hint=f"open it by IcebergTable.for_name(spark, {identifier!r})"
            if provider == "iceberg"
            else "delvec reads Delta and Iceberg tables",
        )
    return local_path(str(location))
