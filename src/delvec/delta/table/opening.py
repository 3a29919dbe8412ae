"""Opening a table: its storage, and the session that `DeltaTable(path)` takes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from delvec.delta.table.arguments import require_session
from delvec.errors import InvalidArgumentError
from delvec.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

__all__ = ["Opened", "open_storage", "opened"]

Opened = tuple[Storage, "SparkSession | None"]


def open_storage(
    spark: SparkSession | None,
    path: str | os.PathLike[str],
    storage_options: Mapping[str, object] | None,
    allow_paths: Sequence[str] | None = None,
) -> Storage:
    """Open a path or URI, with the credentials and the fence of the session if there is one."""
    if spark is None:
        return Storage.open(path, storage_options, allow_paths=[allow_paths])
    from delvec.spark import storage  # noqa: PLC0415

    return storage.open_storage(spark, path, storage_options, allow_paths)


def opened(
    first: object,
    second: object,
    storage_options: Mapping[str, object] | None,
    allow_paths: Sequence[str] | None,
) -> Opened:
    """Return what the arguments of `DeltaTable(...)` name: a path, or a session and a path."""
    if isinstance(first, Storage):
        return first.narrowed(allow_paths), second  # type: ignore[return-value]
    if isinstance(first, str | os.PathLike):
        if second is not None:
            raise InvalidArgumentError(
                f"DeltaTable({os.fspath(first)!r}, ...) takes a path, or a session and a path",
                hint="call DeltaTable(spark, path), or DeltaTable(path, storage_options={...})",
            )
        first, second = active_session(), first
    require_session(first, second)
    spark, path = first, second
    storage = open_storage(spark, path, storage_options, allow_paths)  # type: ignore[arg-type]
    return storage, spark  # type: ignore[return-value]


def active_session() -> SparkSession | None:
    """Return the session of this process, if it has one; starts nothing."""
    if "pyspark.sql" not in sys.modules:
        return None
    from delvec.spark.jvm import active_session as found  # noqa: PLC0415

    return found()
