"""Rows of a DataFrame as new data files of a Delta table, by Spark's own Parquet writer.

Files go to a new folder below the table, change files to that of the change data feed; only a
commit makes them part of it. One Spark job writes them. Then the driver lists that folder once and
reads the footer of each file, 16 at a time: one GET per file in an object store.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final
from unicodedata import category
from urllib.parse import quote as url_quote
from urllib.parse import unquote as url_unquote
from uuid import uuid4

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, functions

from delvec.delta.log.file_set import FileEntry
from delvec.delta.log.paths import random_prefix
from delvec.delta.read.change_feed import CHANGE_TYPE
from delvec.delta.read.footer_statistics import file_statistics, read_parquet_footer
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.schema.partition_values import HIVE_NULL
from delvec.delta.schema.traversal import is_void, walk, without_void
from delvec.delta.schema.types import Field, PrimitiveType
from delvec.delta.skipping.statistics import statistics_json
from delvec.delta.write.transaction import Attempt
from delvec.errors import EngineError, InvalidArgumentError, PlanError
from delvec.identifiers import quote
from delvec.spark import expressions, jvm
from delvec.spark.types import file_schema, spark_type
from delvec.storage import Storage
from delvec.storage.backend import FileInfo
from delvec.storage.listed_files import spark_path
from delvec.storage.parallel import gather
from delvec.storage.uncommitted import UncommittedFiles

# Independent of the session's time zone, and of hours that its clocks show twice.
_UTC_CLOCK: Final = (
    "CAST(TIMESTAMP_NTZ'1970-01-01 00:00:00'"
    " + unix_micros({column}) * INTERVAL '0.000001' SECOND AS STRING)"
)
_UTC_STRING: Final = (
    "concat(replace(split_part({clock}, '.', 1), ' ', 'T'), '.',"
    " rpad(split_part({clock}, '.', 2), 6, '0'), 'Z')"
)
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
OLD: Final = "__delvec_old"
"""The column with the values of a row before an update or a delete."""
_Written = list[tuple["FileInfo", dict[str, str | None], "pq.FileMetaData"]]


@dataclass(frozen=True)
class WrittenFiles:
    """New files that no commit names yet.

    Attributes:
        adds: Bodies of `add` actions, or of `cdc` ones for change files.
        folder: The folder that holds them, relative to the table.
        rows: How many rows they have.
    """

    adds: tuple[dict[str, Any], ...]
    folder: str
    rows: int


def write_rows(
    spark: SparkSession,
    storage: Storage,
    metadata: Metadata,
    rows: DataFrame,
    *,
    tight_bounds: bool,
    files: int | None = None,
) -> WrittenFiles:
    folder = _fresh_folder(metadata)
    written = _write(spark, storage, metadata, rows, folder=folder, files=files)
    adds = [_add(metadata, *each, tight_bounds=tight_bounds) for each in written]
    return WrittenFiles(tuple(adds), folder, _rows_of(written))


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

    Return the folder, and each file with the number of its rows; None for one without any.
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
        rows = reduce(DataFrame.unionAll, chosen)
        rows = jvm.in_copied_session(spark, rows, {**_FORMAT, **ONE_FILE})
        rows.write.options(**_options(metadata)).mode("error").parquet(_target(storage, folder))
        found = _by_part(storage, folder, len(parts))
        written: list[tuple[FileEntry, int] | None] = [None] * len(parts)
        for at, (info, footer) in found.items():
            body = _add(metadata, info, values[at], footer, tight_bounds=tight_bounds)
            written[at] = FileEntry(info.key, body), footer.num_rows
        uncommitted.keep()
    return folder, written


def write_change_rows(
    spark: SparkSession, storage: Storage, metadata: Metadata, rows: DataFrame
) -> WrittenFiles:
    """Write rows of the change data feed: those of `write_rows`, then a column `_change_type`."""
    if rows.columns[-1] != CHANGE_TYPE:
        raise PlanError(f"change rows end in a column {CHANGE_TYPE}, not in {rows.columns[-1]}")
    folder = f"{_CHANGES}/{uuid4()}"
    written = _write(spark, storage, metadata, rows, folder=folder)
    adds = [_file(info, values) | {"dataChange": False} for info, values, _ in written]
    return WrittenFiles(tuple(adds), folder, _rows_of(written))


def has_change_feed(metadata: Metadata) -> bool:
    return metadata.is_on(Property.ENABLE_CHANGE_DATA_FEED)


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


def old_and_new(rows: DataFrame, names: tuple[str, ...], *kinds: str) -> DataFrame:
    """Return staged rows for the change feed: as they were, as they are, or both."""
    parts = []
    for kind in kinds:
        before = f"{OLD}." if kind in ("update_preimage", "delete") else ""
        columns = [f"{before}{quote(name)}" for name in names]
        parts.append(rows.select(*columns, functions.lit(kind).alias(CHANGE_TYPE)))
    return reduce(DataFrame.unionAll, parts)


def file_column(field: Field, *, with_ids: bool) -> Column:
    """Return a column under its physical name, with physical names and ids of nested fields."""
    column = functions.col(quote(field.name))
    for path in walk(field.type, structs_only=True):
        if is_void(path[-1]) and not any(map(is_void, path[:-1])):
            column = column.dropFields(".".join(quote(each.name) for each in path))
    field = replace(field, type=without_void(field.type))
    in_file = file_schema([field], by_id=with_ids).fields[0]
    if not isinstance(field.type, PrimitiveType) and in_file.dataType != spark_type(field.type):
        column = column.cast(in_file.dataType)  # nested names are matched by position
    return column.alias(field.physical_name, metadata=in_file.metadata)


def partition_string(spark: SparkSession, field: Field) -> Column:
    """Return a partition column as the string that the log keeps for each value.

    An empty string and Hive's name for null are null, as for delta-spark. Timestamps are in UTC;
    bytes must be UTF-8.
    """
    column, name = quote(field.name), str(field.type)
    if name == "timestamp":
        text = _UTC_STRING.format(clock=_UTC_CLOCK.format(column=column))
    elif name in ("string", "binary"):
        plain = column if name == "string" else f"validate_utf8(CAST({column} AS STRING))"
        text = f"CASE WHEN {plain} NOT IN ('', '{HIVE_NULL}') THEN {plain} END"
    else:
        text = f"CAST({column} AS STRING)"
    return expressions.column(spark, text).alias(field.physical_name)


def _file(info: FileInfo, values: Mapping[str, str | None]) -> dict[str, Any]:
    return {"path": _encoded(info.key), "partitionValues": dict(values), "size": info.size}


def _add(
    metadata: Metadata,
    info: FileInfo,
    values: Mapping[str, str | None],
    footer: pq.FileMetaData,
    *,
    tight_bounds: bool,
) -> dict[str, Any]:
    stats = statistics_json(file_statistics(metadata, footer, tight_bounds=tight_bounds))
    more = {"modificationTime": info.modified_ms, "dataChange": True, "stats": stats}
    return _file(info, values) | more


def _rows_of(written: _Written) -> int:
    return sum(footer.num_rows for _, _, footer in written)


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
    columns, target = _columns(metadata, rows), _target(storage, folder)
    partitions = [field.physical_name for field in metadata.partition_fields]
    with UncommittedFiles(storage) as uncommitted:
        uncommitted.add_folder(folder)
        selected = jvm.in_copied_session(spark, rows, _FORMAT).select(*columns)
        if files is not None:
            selected = selected.coalesce(max(1, files))
        writer = selected.write.options(**_options(metadata)).mode("error")
        (writer.partitionBy(*partitions) if partitions else writer).parquet(target)
        written = [
            (info, _partition_values(metadata, info.key, folder), footer)
            for info, footer in _data_files(storage, folder)
        ]
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
    codec = metadata.configuration.get(Property.COMPRESSION_CODEC)
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
        if field.name not in partitions and not is_void(field)
    ]
    stored += [functions.col(quote(name)) for name in given[len(expected) :]]
    if not stored:
        raise InvalidArgumentError(
            "the table has partition columns only, and a Parquet file needs at least one other",
            hint="add a column that is not a partition column",
        )
    spark, partitioned = rows.sparkSession, metadata.partition_fields
    return [*stored, *(partition_string(spark, field) for field in partitioned)]


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
