"""Rows of a DataFrame as new data files of a Delta table, by Spark's own Parquet writer.

Files go to a new folder below the table; only a commit makes them part of it. One Spark job writes
them. Then the driver lists that folder once and reads the footer of each file, 16 at a time: one
GET per file in an object store.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final
from unicodedata import category
from urllib.parse import quote as url_quote
from urllib.parse import unquote as url_unquote
from uuid import uuid4

from pyspark.sql import DataFrame, functions

from delvec.delta.log.file_set import FileEntry
from delvec.delta.parquet.footer_statistics import (
    file_statistics,
    read_parquet_footer,
    statistics_json,
)
from delvec.delta.read.change_feed_schema import CHANGE_TYPE
from delvec.delta.schema.partition_values import HIVE_NULL
from delvec.delta.schema.properties import COMPRESSION_CODEC
from delvec.delta.schema.types import PrimitiveType
from delvec.delta.write.store_vectors import random_prefix
from delvec.errors import EngineError, InvalidArgumentError, PlanError
from delvec.identifiers import quote
from delvec.spark import jvm
from delvec.spark.delta.write.physical_columns import file_column, partition_string
from delvec.storage.listed_files import spark_path
from delvec.storage.parallel import gather
from delvec.storage.uncommitted import UncommittedFiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow.parquet as pq
    from pyspark.sql import Column, SparkSession

    from delvec.delta.schema.metadata import Metadata
    from delvec.storage import Storage
    from delvec.storage.counts import FileInfo

__all__ = ["ONE_FILE", "WrittenFiles", "write_change_rows", "write_each", "write_rows"]

# What Java's URIs leave as it is in a path, besides letters, digits and what is not ASCII.
_UNESCAPED: Final = "/=-_.!~*'():@&+$,;"
_ESCAPED: Final = ("Cc", "Zs", "Zl", "Zp")  # of the latter, control characters and all spaces

_CHANGES: Final = "_change_data"
_PART: Final = re.compile(r"part-([0-9]+)-")
# The format of the files depends on the table, not on the user's session.
_FORMAT: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 has no statistics
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "static",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.variant.writeShredding.enabled": "false",
    "spark.sql.variant.inferShreddingSchema": "false",
}
ONE_FILE: Final = {
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.unionOutputPartitioning": "false",
}
"""Settings by which one task writes one file, whatever it has in common with others."""
_OPTIONS: Final = {
    # Version 2 may keep files of a failed task, which a listing would take for data.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "parquet.summary.metadata.level": "NONE",
    "parquet.statistics.truncate.length": "2147483647",
}


@dataclass(frozen=True)
class WrittenFiles:
    """New files that no commit names yet.

    Attributes:
        adds: Bodies of `add` actions, or of `cdc` ones for change files.
        folder: The folder that holds them, relative to the table.
        rows: How many rows they have.
        bytes: How many bytes they have.
    """

    adds: tuple[dict[str, Any], ...]
    folder: str
    rows: int
    bytes: int


def write_rows(
    spark: SparkSession,
    storage: Storage,
    metadata: Metadata,
    rows: DataFrame,
    *,
    tight_bounds: bool,
    files: int | None = None,
) -> WrittenFiles:
    """Write rows as data files, with their statistics.

    Args:
        spark: A classic session.
        storage: The table.
        metadata: Of the version that the files are for.
        rows: The table's columns under their logical names, in order and exact types; then columns
            that only the files have, under their physical names.
        tight_bounds: Write `tightBounds` into the statistics, as tables with vectors need it.
        files: How many tasks may write, at most.
    """
    folder = _fresh_folder(metadata)
    written = _write(spark, storage, metadata, rows, folder=folder, files=files)
    adds = []
    for info, values, footer in written:
        statistics = file_statistics(metadata, footer, tight_bounds=tight_bounds)
        adds.append(_add(info, values, statistics_json(statistics)))
    return _total(adds, folder, written)


def _add(info: FileInfo, values: Mapping[str, str | None], stats: str) -> dict[str, Any]:
    return {
        "path": _encoded(info.key),
        "partitionValues": dict(values),
        "size": info.size,
        "modificationTime": info.modified_ms,
        "dataChange": True,
        "stats": stats,
    }


def write_each(
    spark: SparkSession,
    storage: Storage,
    metadata: Metadata,
    parts: Sequence[DataFrame],
    values: Sequence[Mapping[str, str | None]],
    *,
    tight_bounds: bool,
) -> tuple[str, list[tuple[FileEntry, int] | None]]:
    """Write each of some DataFrames to one file, in its order, by one task; all by one job.

    Args:
        spark: A classic session.
        storage: The table.
        metadata: Its newest.
        parts: The rows of each file, as `write_rows` takes them.
        values: The partition values of each file, which all its rows share.
        tight_bounds: See `write_rows`.

    Returns:
        The folder of the files; and each with the number of its rows, None for one without any.
    """
    folder = _fresh_folder(metadata)
    fields = len(metadata.partition_fields)
    chosen = [
        # Partition columns are last, and not stored.
        part.select(*_columns(metadata, part)[: -fields or None]).coalesce(1)
        for part in parts
    ]
    with UncommittedFiles(storage) as uncommitted:
        uncommitted.add_folder(folder)
        rows = jvm.in_copied_session(
            spark, reduce(DataFrame.unionAll, chosen), {**_FORMAT, **ONE_FILE}
        )
        rows.write.options(**_options(metadata)).mode("error").parquet(_target(storage, folder))
        found = _by_part(storage, folder, len(parts))
        written: list[tuple[FileEntry, int] | None] = [None] * len(parts)
        for at, (info, footer) in found.items():
            statistics = file_statistics(metadata, footer, tight_bounds=tight_bounds)
            body = _add(info, values[at], statistics_json(statistics))
            written[at] = FileEntry(info.key, body), footer.num_rows
        uncommitted.keep()
    return folder, written


def _by_part(
    storage: Storage, folder: str, count: int
) -> dict[int, tuple[FileInfo, pq.FileMetaData]]:
    """Return the files that have rows by the number of the task that wrote them."""
    found: dict[int, tuple[FileInfo, pq.FileMetaData]] = {}
    for info, footer in _data_files(storage, folder):
        name = info.key.rpartition("/")[2]
        part = _PART.match(name)
        at = int(part[1]) if part else -1
        if not 0 <= at < count or at in found:
            raise EngineError(
                f"Spark wrote {name}, where {count} tasks had to write a file each",
                hint="nothing was changed; please report this",
            )
        found[at] = info, footer
    return found


def write_change_rows(
    spark: SparkSession, storage: Storage, metadata: Metadata, rows: DataFrame
) -> WrittenFiles:
    """Write rows of the change data feed: those of `write_rows`, then a column `_change_type`."""
    if rows.columns[-1] != CHANGE_TYPE:
        raise PlanError(f"change rows end in a column {CHANGE_TYPE}, not in {rows.columns[-1]}")
    folder = f"{_CHANGES}/{uuid4()}"
    written = _write(spark, storage, metadata, rows, folder=folder)
    adds = [
        {
            "path": _encoded(info.key),
            "partitionValues": values,
            "size": info.size,
            "dataChange": False,
        }
        for info, values, _ in written
    ]
    return _total(adds, folder, written)


_Written = list[tuple["FileInfo", dict[str, str | None], "pq.FileMetaData"]]


def _total(adds: list[dict[str, Any]], folder: str, written: _Written) -> WrittenFiles:
    rows = sum(footer.num_rows for _, _, footer in written)
    return WrittenFiles(tuple(adds), folder, rows, sum(info.size for info, _, _ in written))


def _write(
    spark: SparkSession,
    storage: Storage,
    metadata: Metadata,
    rows: DataFrame,
    *,
    folder: str,
    files: int | None = None,
) -> _Written:
    """Write rows; return each file that has any, with its partition values and footer."""
    columns = _columns(metadata, rows)
    partitions = [field.physical_name for field in metadata.partition_fields]
    target = _target(storage, folder)
    with UncommittedFiles(storage) as uncommitted:
        uncommitted.add_folder(folder)
        selected = jvm.in_copied_session(spark, rows, _FORMAT).select(*columns)
        if files is not None:
            selected = selected.coalesce(max(1, files))
        writer = selected.write.options(**_options(metadata)).mode("error")
        (writer.partitionBy(*partitions) if partitions else writer).parquet(target)
        written = _listed(storage, metadata, folder)
        if written:
            uncommitted.keep()
    return written


def _target(storage: Storage, folder: str) -> str:
    """Return the folder as Spark takes it; refuse one behind a link, which Spark would follow."""
    above = folder.rpartition("/")[0]
    if above:
        storage.make_folder(above)
    return spark_path(storage.root, folder)


def _options(metadata: Metadata) -> dict[str, str]:
    codec = metadata.configuration.get(COMPRESSION_CODEC)
    return {**_OPTIONS, "compression": codec.lower()} if codec else dict(_OPTIONS)


def _columns(metadata: Metadata, rows: DataFrame) -> list[Column]:
    """Return the physical columns; partition columns as strings."""
    fields = metadata.schema.fields
    expected, given = [field.name for field in fields], rows.columns
    if given[: len(expected)] != expected:
        raise PlanError(
            f"rows have columns {', '.join(given)} where {', '.join(expected)} were expected"
        )
    partitions = {field.name for field in metadata.partition_fields}
    stored = [
        file_column(field, with_ids=metadata.mapping_mode != "none")
        for field in fields
        if field.name not in partitions and field.type != PrimitiveType("void")
    ]
    stored += [functions.col(quote(name)) for name in given[len(expected) :]]
    if not stored:
        raise InvalidArgumentError(
            "the table has partition columns only, and a Parquet file needs at least one other",
            hint="add a column that is no partition column",
        )
    spark, partitioned = rows.sparkSession, metadata.partition_fields
    return [*stored, *(partition_string(spark, field) for field in partitioned)]


def _listed(storage: Storage, metadata: Metadata, folder: str) -> _Written:
    return [
        (info, _partition_values(metadata, info.key, folder), footer)
        for info, footer in _data_files(storage, folder)
    ]


def _data_files(storage: Storage, folder: str) -> list[tuple[FileInfo, pq.FileMetaData]]:
    """Return the files of a folder that have rows, and delete the others."""
    infos = [info for info in storage.list(folder, recursive=True) if _is_data(info, folder)]
    footers = gather(lambda info: read_parquet_footer(storage, info.key, info.size), infos)
    pairs = list(zip(infos, footers, strict=True))
    # Spark writes a file even if there are no rows.
    storage.delete([info.key for info, footer in pairs if not footer.num_rows])
    return [(info, footer) for info, footer in pairs if footer.num_rows]


def _is_data(info: FileInfo, folder: str) -> bool:
    """Return whether a file is data: no checksum, and not of an aborted task."""
    parts = info.key[len(folder) + 1 :].split("/")
    hidden = [part for part in parts if part.startswith(("_", ".")) and "=" not in part]
    return not hidden and parts[-1].endswith(".parquet")


def _partition_values(metadata: Metadata, key: str, folder: str) -> dict[str, str | None]:
    """Read the values of partition columns from the names of folders, as Hive escapes them."""
    parts = key[len(folder) + 1 :].split("/")[:-1]
    values: dict[str, str | None] = {}
    for part in parts:
        name, _, value = part.partition("=")
        values[url_unquote(name)] = None if value == HIVE_NULL else url_unquote(value)
    names = [field.physical_name for field in metadata.partition_fields]
    if list(values) != names:
        raise EngineError(f"Spark wrote {key}, a path without folders for {', '.join(names)}")
    return values


def _encoded(key: str) -> str:
    """Return a path as a URI, as the log has it; Hive's escapes in it are escaped again.

    delta-spark's VACUUM compares URIs as they are spelt: a live file in a spelling other than
    Java's seems to be in no version, and is deleted.
    """
    return "".join(
        char
        if ord(char) > 127 and category(char) not in _ESCAPED
        else url_quote(char, safe=_UNESCAPED)
        for char in key
    )


def _fresh_folder(metadata: Metadata) -> str:
    # Not hidden, so that VACUUM finds files that a crash left uncommitted.
    folder, prefix = str(uuid4()), random_prefix(metadata)
    return f"{prefix}/{folder}" if prefix else folder
