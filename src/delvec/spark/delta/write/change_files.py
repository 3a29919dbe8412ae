"""Rows for the change data feed of a table that has it switched on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.delta.schema.properties import ENABLE_CHANGE_DATA_FEED
from delvec.spark.delta.write.data_files import write_change_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.write.transaction import Attempt

__all__ = ["has_change_feed", "store_change_rows"]


def has_change_feed(metadata: Metadata) -> bool:
    """Tell whether a table keeps its changes."""
    return metadata.is_on(ENABLE_CHANGE_DATA_FEED)


def store_change_rows(
    attempt: Attempt, rows: DataFrame, metadata: Metadata | None = None
) -> tuple[Mapping[str, Any], ...]:
    """Write change files, unless this is only a plan; `rows` end in `CHANGE_TYPE`."""
    if attempt.options.dry_run:
        return ()
    with attempt.phase("write"):
        written = write_change_rows(
            attempt.spark, attempt.storage, metadata or attempt.snapshot.metadata, rows
        )
        attempt.uncommitted.add_folder(written.folder)
    return written.adds
