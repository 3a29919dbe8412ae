"""The change feed of a Delta table as a DataFrame, on Spark's own Parquet reader.

Three scans read all rows, however many versions there are: one of whole files, one of the rows
where the two vectors of a file differ, one of change data files. What is constant in a file (type
of change, commit version, commit timestamp) is joined by the number of the file: Spark would take
minutes to plan a union of one scan for each of a thousand versions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, functions
from pyspark.sql.types import StringType, StructField

from delvec.delta.log.commit_times import version_at, version_from
from delvec.delta.read.change_feed import change_feed
from delvec.delta.read.change_feed_schema import CHANGE_TYPE, FEED_COLUMNS
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote
from delvec.spark.conf import time_zone
from delvec.spark.delta.scan.scan import scan

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import SparkSession

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.read.change_feed_parts import FeedPart
    from delvec.spark.delta.scan.vector_filter import Keep
    from delvec.storage import Storage

__all__ = ["changes"]

_NUMBER: Final = "__delvec_change"
_KEY: Final = "__delvec_change_of"


def changes(
    spark: SparkSession,
    storage: Storage,
    start_version: int | None = None,
    end_version: int | None = None,
    *,
    start_timestamp: datetime | str | None = None,
    end_timestamp: datetime | str | None = None,
) -> DataFrame:
    """Return the rows that versions of a table inserted, updated and deleted; lazy.

    The columns are those of the table at the last version, then `_change_type` (`insert`, `delete`,
    `update_preimage`, `update_postimage`), `_commit_version` and `_commit_timestamp`. The commits
    of the range are read by this call, data files by the job.

    Args:
        spark: A classic session.
        storage: The table.
        start_version: The first version, or instead
        start_timestamp: a time: the first version committed then or later.
        end_version: The last version, by default the newest, or instead
        end_timestamp: a time: the last version committed then or earlier.

    Raises:
        InvalidArgumentError: The range is empty or not there any more, a version of it did not
            record its changes, or its columns cannot be read as those of the last.
    """
    if (start_version is None) == (start_timestamp is None):
        raise InvalidArgumentError("changes start at a version or at a time: give one of the two")
    if end_version is not None and end_timestamp is not None:
        raise InvalidArgumentError("changes end at a version or at a time: give one of the two")
    zone = time_zone(spark)
    if start_timestamp is not None:
        start_version = version_from(storage, start_timestamp, zone)
    if end_timestamp is not None:
        end_version = version_at(storage, end_timestamp, zone)
    feed = change_feed(storage, start_version or 0, end_version)
    rows = partial(_rows, spark, feed.snapshot, follows=end_version is None)
    found = rows(feed.whole)
    if len(feed.partial.files):
        found = found.unionAll(rows(feed.partial, keep="selected"))
    if len(feed.recorded.files):
        found = found.unionAll(rows(feed.recorded, recorded=True))
    return found


def _rows(
    spark: SparkSession,
    snapshot: Snapshot,
    part: FeedPart,
    *,
    follows: bool,
    keep: Keep = "live",
    recorded: bool = False,
) -> DataFrame:
    rows = scan(
        spark,
        snapshot,
        files=part.files,
        added={_NUMBER: "number"},
        vectors=part.marks,
        keep=keep,
        stored=[StructField(CHANGE_TYPE, StringType())] if recorded else (),
        follows=follows,
    )
    names = FEED_COLUMNS.names[1:] if recorded else FEED_COLUMNS.names
    table = part.constants.select(names).append_column(
        _NUMBER, [list(range(part.constants.num_rows))]
    )
    constants = functions.broadcast(spark.createDataFrame(table).withColumnRenamed(_NUMBER, _KEY))
    # Spark would push a condition on the bare column down as a partition filter.
    number = functions.coalesce(rows[_NUMBER], functions.lit(-1).cast("long"))
    own = [functions.col(quote(name)) for name in snapshot.metadata.schema.names]
    return rows.join(constants, number == constants[_KEY]).select(*own, *FEED_COLUMNS.names)
