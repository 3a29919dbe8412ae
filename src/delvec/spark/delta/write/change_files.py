"""Change files of a table with the change data feed enabled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions

from delvec.delta.read.change_feed_schema import CHANGE_TYPE
from delvec.delta.schema.properties import ENABLE_CHANGE_DATA_FEED
from delvec.identifiers import quote
from delvec.spark.delta.write.data_files import write_change_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.write.transaction import Attempt

__all__ = ["OLD", "has_change_feed", "old_and_new", "store_change_rows"]

OLD: Final = "__delvec_old"
"""The column with the values of a row before an update or a delete."""


def has_change_feed(metadata: Metadata) -> bool:
    """Return whether a table has the change data feed enabled."""
    return metadata.is_on(ENABLE_CHANGE_DATA_FEED)


def store_change_rows(
    attempt: Attempt, rows: DataFrame, metadata: Metadata | None = None
) -> tuple[Mapping[str, Any], ...]:
    """Write change files, unless this is a dry run; `rows` end in `CHANGE_TYPE`."""
    if attempt.options.dry_run:
        return ()
    with attempt.phase("write"):
        written = write_change_rows(
            attempt.spark, attempt.storage, metadata or attempt.snapshot.metadata, rows
        )
        attempt.uncommitted.add_folder(written.folder)
    return written.adds


def old_and_new(rows: DataFrame, names: tuple[str, ...], kind: str) -> DataFrame:
    """Return staged rows for the change feed: as they were, or as they are."""
    before = kind in ("update_preimage", "delete")
    columns = [f"{OLD}.{quote(name)}" if before else quote(name) for name in names]
    return rows.select(*columns, functions.lit(kind).alias(CHANGE_TYPE))
