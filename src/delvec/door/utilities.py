"""Statements of `grammar` carried out, with the result columns that delta-spark has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import DataType, StructType

from delvec.delta.table import DeltaTable
from delvec.door.commands import Command, Rows
from delvec.door.known_tables import path_of, table_of
from delvec.door.new_tables import clone
from delvec.errors import (
    InvalidArgumentError,
    MissingDependencyError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from delvec.identifiers import quote_if_needed
from delvec.spark.expressions import is_of_spark
from delvec.statements.grammar import Parsed, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delvec.delta.write.report import WriteReport
    from delvec.iceberg.table import IcebergTable

_SIZES: Final = (
    "STRUCT<min: BIGINT, max: BIGINT, avg: DOUBLE, totalFiles: BIGINT, totalSize: BIGINT>"
)
_CUBE: Final = "STRUCT<num: BIGINT, size: BIGINT>"
_Z_CUBE: Final = "STRUCT<numFiles: BIGINT, size: BIGINT>"
_OPTIMIZED: Final = (
    "path STRING, metrics STRUCT<numFilesAdded: BIGINT, numFilesRemoved: BIGINT,"
    f" filesAdded: {_SIZES}, filesRemoved: {_SIZES}, partitionsOptimized: BIGINT,"
    f" zOrderStats: STRUCT<strategyName: STRING, inputCubeFiles: {_CUBE}, inputOtherFiles: {_CUBE},"
    f" inputNumCubes: BIGINT, mergedFiles: {_CUBE}, numOutputCubes: BIGINT,"
    f" mergedNumCubes: BIGINT>, clusteringStats: STRUCT<inputZCubeFiles: {_Z_CUBE},"
    f" inputOtherFiles: {_Z_CUBE}, inputNumZCubes: BIGINT, mergedFiles: {_Z_CUBE},"
    " numOutputZCubes: BIGINT>, numBins: BIGINT, numBatches: BIGINT,"
    " totalConsideredFiles: BIGINT, totalFilesSkipped: BIGINT, preserveInsertionOrder: BOOLEAN,"
    " numFilesSkippedToReduceWriteAmplification: BIGINT,"
    " numBytesSkippedToReduceWriteAmplification: BIGINT, startTimeMs: BIGINT, endTimeMs: BIGINT,"
    " totalClusterParallelism: BIGINT, totalScheduledTasks: BIGINT,"
    " autoCompactParallelismStats: STRUCT<maxClusterActiveParallelism: BIGINT,"
    " minClusterActiveParallelism: BIGINT, maxSessionActiveParallelism: BIGINT,"
    " minSessionActiveParallelism: BIGINT>, deletionVectorStats:"
    " STRUCT<numDeletionVectorsRemoved: BIGINT, numDeletionVectorRowsRemoved: BIGINT>,"
    " numTableColumns: BIGINT, numTableColumnsWithStats: BIGINT>"
)
_RESTORED: Final = (
    "table_size_after_restore BIGINT, num_of_files_after_restore BIGINT, num_removed_files BIGINT,"
    " num_restored_files BIGINT, removed_files_size BIGINT, restored_files_size BIGINT"
)
_CLONED: Final = (
    "source_table_size BIGINT, source_num_of_files BIGINT, num_removed_files BIGINT,"
    " num_copied_files BIGINT, removed_files_size BIGINT, copied_files_size BIGINT"
)
_HISTORY: Final = (
    "version BIGINT, timestamp TIMESTAMP, userId STRING, userName STRING, operation STRING,"
    " operationParameters MAP<STRING, STRING>, job STRUCT<jobId: STRING, jobName: STRING,"
    " jobRunId: STRING, runId: STRING, jobOwnerId: STRING, triggerType: STRING>,"
    " notebook STRUCT<notebookId: STRING>, clusterId STRING, readVersion BIGINT,"
    " isolationLevel STRING, isBlindAppend BOOLEAN, operationMetrics MAP<STRING, STRING>,"
    " userMetadata STRING, engineInfo STRING"
)
_DETAIL: Final = (
    "format STRING, id STRING, name STRING, description STRING, location STRING,"
    " createdAt TIMESTAMP, lastModified TIMESTAMP, partitionColumns ARRAY<STRING>,"
    " clusteringColumns ARRAY<STRING>, numFiles BIGINT, sizeInBytes BIGINT,"
    " properties MAP<STRING, STRING>, minReaderVersion INT, minWriterVersion INT,"
    " tableFeatures ARRAY<STRING>"
)

REFUSED: Final = "STATEMENT"
"""The title of a command that only raises an error."""
# Newer versions of Spark have a grammar for these too, for tables of other catalogs.
_ALSO_OF_SPARK: Final = ("ADD CONSTRAINT", "DROP CONSTRAINT")


@dataclass(frozen=True)
class Utility:
    """How a statement is carried out, and the columns of its result as DDL; empty for none."""

    columns: str
    carry_out: Callable[[SparkSession, Parsed], Rows]


def statement(spark: SparkSession, text: str) -> Command | None:
    """Return the command for a statement outside of Spark's grammar; None if it is none."""
    try:
        parsed = parse(text)
    except InvalidArgumentError as error:
        if is_of_spark(spark, text):  # DESCRIBE history, a table of that name
            return None
        # Spark lets its parser throw errors of its own only; a command may throw any.
        refused = error

        def refuse() -> Rows:
            raise refused

        return Command(REFUSED, StructType([]), refuse)
    if parsed is None or (
        parsed.kind in _ALSO_OF_SPARK
        and table_of(spark, parsed.table) is None
        and is_of_spark(spark, text)
    ):
        return None
    utility = UTILITIES[parsed.kind]
    schema = DataType.fromDDL(utility.columns) if utility.columns else StructType([])
    name = ".".join(map(quote_if_needed, parsed.table))
    return Command(f"{parsed.kind} {name}", schema, lambda: utility.carry_out(spark, parsed))  # type: ignore[arg-type]


def _table(spark: SparkSession, parts: tuple[str, ...]) -> DeltaTable:
    found = table_of(spark, parts)
    if found is None:
        name = ".".join(map(quote_if_needed, parts))
        raise TableNotFoundError(
            f"{name} is not a Delta table",
            table=name,
            hint="name a table of the session's catalog, or delta.`/path`",
        )
    return found.table


def _optimize(spark: SparkSession, parsed: Parsed) -> Rows:
    table = _table(spark, parsed.table)
    report = table.optimize(parsed.given.get("where"), zorder_by=parsed.given.get("zorder_by", ()))
    return optimized_rows(report)


def _reorg(spark: SparkSession, parsed: Parsed) -> Rows:
    return optimized_rows(_table(spark, parsed.table).purge(parsed.given["where"]))


def optimized_rows(report: WriteReport) -> Rows:
    """Return what files were rewritten as the result of OPTIMIZE."""

    def sizes(files: int, total: int) -> tuple[Any, ...]:
        return (None, None, total / files if files else 0.0, files, total)

    metrics = {
        "numFilesAdded": report.files_added,
        "numFilesRemoved": report.files_removed,
        "filesAdded": sizes(report.files_added, report.bytes_added),
        "filesRemoved": sizes(report.files_removed, report.bytes_removed),
        "numBatches": 1 if report.files_added else 0,
        "totalConsideredFiles": report.files_scanned + report.files_pruned,
        "totalFilesSkipped": report.files_pruned,
        "deletionVectorStats": (report.vectors_removed, None),
    }
    return [(report.table, metrics)]


def _vacuum(spark: SparkSession, parsed: Parsed) -> Rows:
    table = _table(spark, parsed.table)
    report = table.vacuum(
        parsed.given.get("retain"),
        dry_run=parsed.given.get("dry_run", False),
        lite=parsed.given.get("lite", False),
        force=allows_short_retention(spark),
    )
    root = table.storage.root
    if report.dry_run:
        return [(f"{root}/{path}",) for path in report.files["path"].to_pylist()]
    return [(root,)]


def allows_short_retention(spark: SparkSession) -> bool:
    """Whether a session has switched off what keeps VACUUM from a short retention."""
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    return (spark.conf.get(check, None) or "").lower() == "false"


def _restore(spark: SparkSession, parsed: Parsed) -> Rows:
    table = _table(spark, parsed.table)
    return restored_rows(table, table.restore(**parsed.given))


def restored_rows(table: DeltaTable, report: WriteReport) -> Rows:
    """Return what was restored as the result of RESTORE."""
    detail = table.detail()
    figures = (report.files_removed, report.files_added, report.bytes_removed, report.bytes_added)
    return [(detail.bytes, detail.files, *figures)]


def _history(spark: SparkSession, parsed: Parsed) -> Rows:
    return [
        history_row(each)
        for each in _table(spark, parsed.table).arrow_history(parsed.given["limit"]).to_pylist()
    ]


def history_row(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a commit as a row of DESCRIBE HISTORY."""
    names = [field.name for field in DataType.fromDDL(_HISTORY)]  # type: ignore[attr-defined]
    return tuple(_as_map(row.get(name)) for name in names)


def _as_map(value: Any) -> Any:  # noqa: ANN401
    return dict(value) if isinstance(value, list) else value


def _detail(spark: SparkSession, parsed: Parsed) -> Rows:
    name = parsed.table
    if len(name) == 1:
        name = (spark.catalog.currentDatabase(), *name)
    return [detail_row(_table(spark, parsed.table), name)]


def detail_row(table: DeltaTable, name: tuple[str, ...] = ()) -> tuple[Any, ...]:
    """Return the facts of a table as a row of DESCRIBE DETAIL."""
    found = table.detail()
    snapshot = table.snapshot()
    root = found.location
    return (
        "delta",
        found.id,
        ".".join(("spark_catalog", *name)) if len(name) > 1 and name[0] != "delta" else found.name,
        found.description,
        root if "://" in root else f"file:{root}",
        _time(found.created_ms),
        _time(snapshot.segment.modified_ms),
        list(found.partition_columns),
        [],
        found.files,
        found.bytes,
        dict(found.properties),
        found.min_reader_version,
        found.min_writer_version,
        list(found.features),
    )


def _time(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, timezone.utc)


def _convert(spark: SparkSession, parsed: Parsed) -> Rows:
    if len(parsed.table) != 2 or parsed.table[0].lower() != "parquet":
        raise UnsupportedFeatureError(
            "CONVERT TO DELTA takes a folder of Parquet files",
            feature="CONVERT TO DELTA of a name",
            hint="CONVERT TO DELTA parquet.`/path`",
        )
    wanted = parsed.given.get("partition_by")
    partitions = None
    if wanted is not None:
        kinds: Any = DataType.fromDDL(wanted)
        partitions = {field.name: field.dataType.simpleString() for field in kinds.fields}
    DeltaTable.convert_to_delta(spark, path_of(parsed.table[1]), partitions)
    return []


def _convert_to_iceberg(spark: SparkSession, parsed: Parsed) -> Rows:
    from delvec.conversion.convert import convert  # noqa: PLC0415

    source = _table(spark, parsed.table)
    target = ".".join(map(quote_if_needed, parsed.given["target"]))
    return _told(convert(spark, source.storage.root, target))


def _generate(spark: SparkSession, parsed: Parsed) -> Rows:
    _table(spark, parsed.table).generate_manifest()
    return []


def _add_constraint(spark: SparkSession, parsed: Parsed) -> Rows:
    _table(spark, parsed.table).add_constraint(parsed.given["name"], parsed.given["check"])
    return []


def _drop_constraint(spark: SparkSession, parsed: Parsed) -> Rows:
    given = parsed.given
    _table(spark, parsed.table).drop_constraint(given["name"], if_exists=given["if_exists"])
    return []


def _drop_feature(spark: SparkSession, parsed: Parsed) -> Rows:
    drop_feature(_table(spark, parsed.table), parsed.given["name"])
    return []


def drop_feature(table: DeltaTable, name: str) -> None:
    """Drop a table feature, if it is the one that can be dropped."""
    if name.lower() != "deletionvectors":
        raise UnsupportedFeatureError(
            f"delvec drops the feature deletionVectors only, not {name}",
            feature=f"DROP FEATURE {name}",
            hint="ALTER TABLE ... DROP FEATURE deletionVectors",
        )
    table.drop_deletion_vectors()


def _clone(spark: SparkSession, parsed: Parsed) -> Rows:
    source = _table(spark, parsed.given["source"])
    return clone(spark, source, parsed.table, parsed.given)


def _check(spark: SparkSession, parsed: Parsed) -> Rows:
    if table_of(spark, parsed.table) is not None or (iceberg := _iceberg(spark, parsed)) is None:
        return _told(_table(spark, parsed.table).check(repair=parsed.given["repair"]))
    if parsed.given["repair"]:
        raise UnsupportedFeatureError(
            f"CHECK TABLE repairs Delta tables only, and {iceberg.name} is one of Iceberg",
            feature="CHECK TABLE ... REPAIR of Iceberg tables",
            hint=f"CHECK TABLE {iceberg.name} tells what is wrong",
        )
    return _told(iceberg.check())


def _resolve(spark: SparkSession, parsed: Parsed) -> Rows:
    table = _iceberg(spark, parsed)
    if table is None:
        name = ".".join(map(quote_if_needed, parsed.table))
        raise TableNotFoundError(
            f"{name} is not an Iceberg table", table=name, hint="RESOLVE catalog.database.table"
        )
    return _told(table.resolve(**parsed.given))


def _iceberg(spark: SparkSession, parsed: Parsed) -> IcebergTable | None:
    """Return the Iceberg table that a name means, if it means one."""
    from delvec.iceberg.table import IcebergTable  # noqa: PLC0415

    try:
        return IcebergTable.for_name(spark, ".".join(map(quote_if_needed, parsed.table)))
    except (InvalidArgumentError, MissingDependencyError, TableNotFoundError):
        return None


def _traces(spark: SparkSession, parsed: Parsed) -> Rows:
    return _told(_table(spark, parsed.table).traces(parsed.given["where"]))


def _told(report: object) -> Rows:
    """Return a report of delvec's own as lines of text."""
    return [(line,) for line in str(report).splitlines()]


UTILITIES: Final[Mapping[str, Utility]] = {
    "OPTIMIZE": Utility(_OPTIMIZED, _optimize),
    "REORG": Utility(_OPTIMIZED, _reorg),
    "VACUUM": Utility("path STRING", _vacuum),
    "RESTORE": Utility(_RESTORED, _restore),
    "DESCRIBE HISTORY": Utility(_HISTORY, _history),
    "DESCRIBE DETAIL": Utility(_DETAIL, _detail),
    "CONVERT TO DELTA": Utility("", _convert),
    "CONVERT TO ICEBERG": Utility("report STRING", _convert_to_iceberg),
    "GENERATE": Utility("", _generate),
    "ADD CONSTRAINT": Utility("", _add_constraint),
    "DROP CONSTRAINT": Utility("", _drop_constraint),
    "DROP FEATURE": Utility("", _drop_feature),
    "CLONE": Utility(_CLONED, _clone),
    "CHECK TABLE": Utility("report STRING", _check),
    "TRACES": Utility("report STRING", _traces),
    "RESOLVE": Utility("report STRING", _resolve),
}
