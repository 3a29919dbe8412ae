"""Reading chosen files of an Iceberg table by Iceberg's own reader, and writing without a commit.

Iceberg's planner assigns delete files to data files, its reader resolves columns by field id and
applies row positions, its writer makes the data files: what is left to delvec is which files are
read, with which deletes, and when they are committed. Some classes in Java say so to Iceberg; they
live on the driver, and executors get Iceberg's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

from delvec.errors import PlanError
from delvec.iceberg.client.catalog import LoadedTable, iceberg_view
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.metadata import MAIN
from delvec.spark import jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delvec.iceberg.client.files import EqualityDeleteFile

SEPARATOR: Final = "\0"
_DATA_FIELDS: Final = 4
_DELETE_FIELDS: Final = 3


@dataclass(frozen=True, eq=False)
class DataFilesWithKeys:
    """The data files of a snapshot that equality deletes apply to.

    Attributes:
        file_count: All data files of the snapshot that may match the condition.
        files: `path`, `sequence` (data sequence number), `scope` (a number for each partition of a
            spec) and `rows` of those that equality deletes apply to.
        deletes: `sequence`, `scope` (-1 if global) and `file` (JSON) of these equality deletes.
    """

    file_count: int
    files: pa.Table
    deletes: tuple[tuple[int, int, str], ...]


def plan_snapshot(
    table: LoadedTable,
    snapshot_id: int,
    schema: Mapping[str, Any],
    condition: Any = None,  # noqa: ANN401
    further: Sequence[str] = (),
    absent: Sequence[str] = (),
) -> DataFilesWithKeys:
    """Return which data files of a snapshot have equality deletes, as Iceberg's planner finds.

    It compares sequence numbers, partitions and bounds. The driver reads the manifests; it holds
    some 300 bytes for each data file with equality deletes, and 1 kB for each of these.
    """
    spark = table.spark
    with translate_errors(str(table.name)):
        operations = _operations(table, schema, snapshot_id)
        pinned = iceberg_view(spark).BaseTable(operations, str(table.name))
        exact = spark.conf.get("spark.sql.caseSensitive") == "true"
        lists = SEPARATOR.join(further), SEPARATOR.join(absent)
        found = key_scans(spark).plan(pinned, condition, exact, *lists)
    present, file_count, with_keys, *parts = found.split(SEPARATOR)[:-1]
    if present:
        raise PlanError(
            f"{present} is a data file of snapshot {snapshot_id} of {table.name} already: its rows"
            " would be there twice",
            hint="was it cherry-picked, or registered by somebody else? Write the changes again",
        )
    end = int(with_keys) * _DATA_FIELDS
    paths, sequences, scopes, rows = (parts[start:end:_DATA_FIELDS] for start in range(4))
    files = pa.table(
        {
            "path": pa.array(paths, pa.string()),
            "sequence": pa.array(map(int, sequences), pa.int64()),
            "scope": pa.array(map(int, scopes), pa.int32()),
            "rows": pa.array(map(int, rows), pa.int64()),
        }
    )
    listed = zip(*(parts[end + start :: _DELETE_FIELDS] for start in range(3)), strict=True)
    deletes = tuple((int(sequence), int(scope), text) for sequence, scope, text in listed)
    return DataFilesWithKeys(int(file_count), files, deletes)


def read_data_files(
    table: LoadedTable,
    snapshot_id: int | None,
    schema: Mapping[str, Any],
    paths: Sequence[str],
    *,
    chosen: bool,
    condition: Any = None,  # noqa: ANN401
) -> DataFrame:
    """Return the rows of some data files of a snapshot, or of all others; lazy.

    Positions and vectors are applied, equality deletes are not. Filters of a query prune files as
    in any read of Iceberg's.
    """
    spark = table.spark
    with translate_errors(str(table.name)):
        operations = _operations(table, schema, snapshot_id)
        # Spark reuses scans of one name: Iceberg 1.11 compares no snapshots, none compares columns.
        if not paths and not chosen:
            digest = sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()[:8]
            name = f"{table.name}#{snapshot_id}-{digest}"
            made = iceberg_view(spark).BaseTable(operations, name)
        else:
            name = f"{table.name}#{uuid4()}"
            listed = SEPARATOR.join(paths)
            made = key_scans(spark).reading(operations, name, listed, chosen, condition)
        return jvm.frame_of(spark, _relation(spark, made))


def read_all_rows(
    table: LoadedTable,
    snapshot_id: int,
    schema: Mapping[str, Any],
    paths: Sequence[str],
    *,
    chosen: bool,
) -> DataFrame:
    """Return all rows that some data files of a snapshot have, or all others, deleted or not."""
    spark = table.spark
    with translate_errors(str(table.name)):
        operations = _operations(table, schema, snapshot_id)
        name, listed = f"{table.name}#{uuid4()}", SEPARATOR.join(paths)
        made = key_scans(spark).readingAll(operations, name, listed, chosen)
        return jvm.frame_of(spark, _relation(spark, made))


def read_key_files(
    table: LoadedTable,
    snapshot_id: int,
    schema: Mapping[str, Any],
    files: Iterable[EqualityDeleteFile],
) -> DataFrame:
    """Return the rows of delete files, by field id, with their path as `_file`; lazy."""
    spark = table.spark
    facts = ((each.path, each.file_format, each.size, each.record_count) for each in files)
    described = SEPARATOR.join(str(fact) for file in facts for fact in file)
    with translate_errors(str(table.name)):
        operations = _operations(table, schema, snapshot_id)
        made = key_scans(spark).readingKeys(operations, f"{table.name}#{uuid4()}", described)
        return jvm.frame_of(spark, _relation(spark, made))


def write_data_files(table: LoadedTable, rows: DataFrame) -> pa.Array:
    """Write rows as data files of a table by Iceberg's writer, and commit nothing.

    Columns are matched by name, and values cast, as Spark's `writeTo(...).append()` does. Files of
    a failed job are deleted by Iceberg. Returns the JSON of each file, about 1 kB.
    """
    return _written(table, table.handle.operations(), rows)


def write_key_files(table: LoadedTable, schema: Mapping[str, Any], rows: DataFrame) -> pa.Array:
    """Write rows of keys as Parquet files, by executors; return each as the JSON of a data file."""
    spark, view = table.spark, iceberg_view(table.spark)
    with translate_errors(str(table.name)):
        columns = view.SchemaParser.fromJson(json.dumps(schema))
        properties = jvm.view_of(spark).java.util.HashMap(table.current.properties())
        properties.put("write.format.default", "parquet")
        properties.put("write.parquet.compression-codec", "zstd")
        properties.put("write.metadata.metrics.default", "full")
        properties.put("write.distribution-mode", "none")
        metadata = (
            view.TableMetadata.buildFromEmpty(table.metadata.format_version)
            .assignUUID()
            .setLocation(table.metadata.location)
            .setCurrentSchema(columns, table.metadata.last_column_id)
            .setDefaultPartitionSpec(view.PartitionSpec.unpartitioned())
            .setDefaultSortOrder(view.SortOrder.unsorted())
            .setProperties(properties)
            .build()
        )
        operations = view.StaticTableOperations(
            metadata, table.handle.io(), table.handle.locationProvider()
        )
    return _written(table, operations, rows)


def key_scans(spark: SparkSession) -> Any:  # noqa: ANN401
    iceberg_view(spark)
    return jvm.load_java(spark, "delvec.iceberg.client", "KeyScans")


def _operations(table: LoadedTable, schema: Mapping[str, Any], snapshot_id: int | None) -> Any:  # noqa: ANN401
    """Return the table with other columns, and with a snapshot of any branch as its newest."""
    view = iceberg_view(table.spark)
    columns = view.SchemaParser.fromJson(json.dumps(schema))
    last_id = max(table.metadata.last_column_id, columns.highestFieldId())
    builder = view.TableMetadata.buildFrom(table.current).setCurrentSchema(columns, last_id)
    # The default ones may need columns that are not read; files keep the specs that they have.
    builder = builder.setDefaultPartitionSpec(view.PartitionSpec.unpartitioned())
    builder = builder.setDefaultSortOrder(view.SortOrder.unsorted())
    # With this property, Iceberg 1.11 reads the branch that a setting of the session names.
    builder = builder.removeProperties({"write.wap.enabled"})
    if snapshot_id is not None:
        builder = builder.setBranchSnapshot(snapshot_id, MAIN)
    metadata = builder.build()
    return view.StaticTableOperations(metadata, table.handle.io(), table.handle.locationProvider())


def _relation(spark: SparkSession, table: Any, catalog: str | None = None) -> Any:  # noqa: ANN401
    """Return Spark's relation of a table that no catalog knows."""
    made = jvm.java_class(spark, "org.apache.iceberg.spark.source.SparkTable")
    options = jvm.java_class(spark, "scala.Option")
    nothing = owner = options.empty()
    if catalog is not None:
        catalogs = jvm.session_of(spark).sessionState().catalogManager()
        owner = options.apply(catalogs.catalog(catalog))
    relations = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation"
    refreshed = (False,) if _asks_for_refresh(spark) else ()
    return jvm.java_class(spark, relations).create(made(table, *refreshed), owner, nothing)


def _asks_for_refresh(spark: SparkSession) -> bool:
    """Whether Iceberg's table for Spark is told to refresh: before Iceberg 1.12."""
    cache = jvm.cache(spark)
    if "iceberg refresh" not in cache:
        loader = jvm.view_of(spark).java.lang.Thread.currentThread().getContextClassLoader()
        kind = loader.loadClass("org.apache.iceberg.spark.source.SparkTable")
        counts = [each.getParameterCount() for each in kind.getConstructors()]
        cache["iceberg refresh"] = 1 not in counts
    return bool(cache["iceberg refresh"])


def _written(table: LoadedTable, operations: Any, rows: DataFrame) -> pa.Array:  # noqa: ANN401
    spark = table.spark
    with translate_errors(str(table.name)):
        made = key_scans(spark).writing(operations, str(table.name))
        commands = jvm.java_class(spark, "org.apache.spark.sql.catalyst.plans.logical.AppendData")
        options = jvm.java_class(spark, "org.apache.spark.api.python.PythonUtils").toScalaMap({})
        query: Any = rows._jdf.logicalPlan()  # noqa: SLF001
        relation = _relation(spark, made, table.name.catalog)
        jvm.frame_of(spark, commands.byName(relation, query, options))
        files = key_scans(spark).written(made)
    return pa.array(files.split(SEPARATOR)[:-1], pa.string())
