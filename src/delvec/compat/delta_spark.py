"""delta-spark's Python classes, over delvec: its names, its arguments, the rows that it returns.

    from delvec.compat.delta_spark import DeltaTable, configure_spark_with_delta_pip

is the one line that a job changes. Errors are delvec's own; those of wrong arguments are a
ValueError or a TypeError where delta-spark's are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from delvec.compat.arguments import (
    ArgumentTypeError,
    Condition,
    Values,
    listed,
    require_condition,
    require_kind,
    require_values,
    unqualified,
    unqualified_names,
)
from delvec.compat.merge import DeltaMergeBuilder
from delvec.compat.table_builder import DeltaTableBuilder, IdentityGenerator
from delvec.delta.alter import definition, operations
from delvec.delta.table import DeltaTable as OwnTable
from delvec.door.known_tables import path_of
from delvec.door.sessions import configure
from delvec.door.utilities import (
    UTILITIES,
    allows_short_retention,
    detail_row,
    drop_feature,
    history_row,
    optimized_rows,
    restored_rows,
)
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.identifiers import split_path
from delvec.storage.options import options_from_hadoop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "DeltaMergeBuilder",
    "DeltaOptimizeBuilder",
    "DeltaTable",
    "DeltaTableBuilder",
    "IdentityGenerator",
    "configure_spark_with_delta_pip",
]

_CATALOG: Final = "spark_catalog"
_MANIFEST: Final = "symlink_format_manifest"
_HADOOP: Final = ("fs.", "dfs.")


def configure_spark_with_delta_pip(
    spark_session_builder: SparkSession.Builder, extra_packages: Sequence[str] | None = None
) -> SparkSession.Builder:
    """Return a builder whose session reads and writes Delta tables, without a jar."""
    if not isinstance(spark_session_builder, SparkSession.Builder):
        raise ArgumentTypeError(
            "configure_spark_with_delta_pip() takes a SparkSession builder as the argument",
            hint="pass SparkSession.builder",
        )
    packages = list(extra_packages or ())
    return configure(spark_session_builder, iceberg=False, packages=packages, sql=True)


class DeltaTable:
    """A Delta table, as delta-spark's class of this name has it."""

    def __init__(
        self,
        spark: SparkSession,
        table: OwnTable,
        name: tuple[str, ...] = (),
        alias: str | None = None,
    ) -> None:
        """Wrap a table; use `forPath` or `forName`."""
        self._spark = spark
        self._table = table
        self._name = name
        self._alias = alias

    @classmethod
    def forPath(
        cls, sparkSession: SparkSession, path: str, hadoopConf: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """Open the table in a folder."""
        conf = dict(hadoopConf or {})
        others = [key for key in conf if not key.startswith(_HADOOP)]
        if others:
            raise InvalidArgumentError(
                f"hadoopConf takes the configuration of file systems only, not {others[0]}",
                hint="keys begin with fs. or dfs.",
            )
        options = options_from_hadoop(path, conf.get) if conf else None
        return cls(sparkSession, OwnTable.for_path(sparkSession, path_of(path), options))

    @classmethod
    def forName(cls, sparkSession: SparkSession, tableOrViewName: str) -> DeltaTable:
        """Open a table of the session's catalog."""
        table = OwnTable.for_name(sparkSession, tableOrViewName)
        parts = split_path(tableOrViewName)
        if len(parts) == 1:
            parts = (sparkSession.catalog.currentDatabase(), *parts)
        elif parts[0].lower() == _CATALOG:
            parts = parts[1:]
        return cls(sparkSession, table, parts)

    @classmethod
    def isDeltaTable(cls, sparkSession: SparkSession, identifier: str) -> bool:
        """Whether a folder holds a Delta table."""
        return OwnTable.is_delta_table(path_of(identifier), spark=sparkSession)

    @classmethod
    def convertToDelta(
        cls,
        sparkSession: SparkSession,
        identifier: str,
        partitionSchema: str | StructType | None = None,
    ) -> DeltaTable:
        """Make a folder of Parquet files a Delta table."""
        parts = split_path(identifier)
        if len(parts) != 2 or parts[0].lower() != "parquet":
            raise UnsupportedFeatureError(
                f"convertToDelta takes a folder of Parquet files, not {identifier}",
                feature="CONVERT TO DELTA of a name",
                hint='"parquet.`/path`"',
            )
        columns: Any = partitionSchema
        if isinstance(columns, str):
            columns = DataType.fromDDL(columns)
        partitions = None
        if columns is not None:
            partitions = {field.name: field.dataType.simpleString() for field in columns}
        OwnTable.convert_to_delta(sparkSession, path_of(parts[1]), partitions)
        return cls.forPath(sparkSession, parts[1])

    @classmethod
    def create(cls, sparkSession: SparkSession | None = None) -> _Builder:
        """Begin a table that must not be there yet."""
        return _Builder(_session(sparkSession), "CREATE TABLE")

    @classmethod
    def createIfNotExists(cls, sparkSession: SparkSession | None = None) -> _Builder:
        """Begin a table that stays as it is if it is there."""
        return _Builder(_session(sparkSession), "CREATE TABLE IF NOT EXISTS")

    @classmethod
    def replace(cls, sparkSession: SparkSession | None = None) -> _Builder:
        """Begin a table in the place of one that is there."""
        return _Builder(_session(sparkSession), "REPLACE TABLE")

    @classmethod
    def createOrReplace(cls, sparkSession: SparkSession | None = None) -> _Builder:
        """Begin a table, in the place of one if there is one."""
        return _Builder(_session(sparkSession), "CREATE OR REPLACE TABLE")

    def toDF(self) -> DataFrame:
        """Return the rows."""
        rows = self._table.to_df()
        return rows if self._alias is None else rows.alias(self._alias)

    def alias(self, aliasName: str) -> DeltaTable:
        """Return the table under a name, for conditions and values."""
        return DeltaTable(self._spark, self._table, self._name, aliasName)

    def delete(self, condition: Condition = None) -> None:
        """Delete the rows that match a condition, or all."""
        require_condition(condition)
        self._table.delete(self._unqualified(condition))

    def update(self, condition: Condition = None, set: Values | None = None) -> None:  # noqa: A002
        """Set columns of the rows that match a condition, or of all."""
        own = unqualified_names(require_values("'set'", set), self._names)
        require_condition(condition)
        values = {key: self._unqualified(value) for key, value in own.items()}
        self._table.update(values, self._unqualified(condition))

    def merge(self, source: DataFrame, condition: str | Any) -> DeltaMergeBuilder:  # noqa: ANN401
        """Begin a merge of the rows of a source."""
        alias = self._alias or (self._name[-1] if self._name else None)
        return DeltaMergeBuilder.of(self._table, self._spark, alias, source, condition)

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the commits, newest first."""
        commits = self._table.arrow_history(limit).to_pylist()
        return self._frame("DESCRIBE HISTORY", [history_row(each) for each in commits])

    def detail(self) -> DataFrame:
        """Return the facts of the table as one row."""
        return self._frame("DESCRIBE DETAIL", [detail_row(self._table, self._name)])

    def vacuum(self, retentionHours: float | None = None) -> DataFrame:
        """Delete files that no version within the retention needs; return no rows."""
        self._table.vacuum(retentionHours, force=allows_short_retention(self._spark))
        return self._spark.createDataFrame([], StructType([]))

    def generate(self, mode: str) -> None:
        """Write manifests of the files that Presto and others read."""
        if str(mode).lower() != _MANIFEST:
            raise InvalidArgumentError(
                f"generate() knows the mode {_MANIFEST} only", hint=f'generate("{_MANIFEST}")'
            )
        self._table.generate_manifest()

    def restoreToVersion(self, version: int) -> DataFrame:
        """Make the newest version again what an earlier one was."""
        require_kind("version", version, int, "an int")
        return self._restored(version=version)

    def restoreToTimestamp(self, timestamp: str) -> DataFrame:
        """Make the newest version again what was current at a time."""
        require_kind("timestamp", timestamp, str, "a string")
        return self._restored(timestamp=timestamp)

    def optimize(self) -> DeltaOptimizeBuilder:
        """Begin to put small files together."""
        return DeltaOptimizeBuilder(self)

    def upgradeTableProtocol(self, readerVersion: int, writerVersion: int) -> None:
        """Raise the versions of the table's protocol."""
        require_kind("The readerVersion", readerVersion, int, "an integer")
        require_kind("The writerVersion", writerVersion, int, "an integer")
        versions = {"minReaderVersion": readerVersion, "minWriterVersion": writerVersion}
        self._table.run(
            "UPGRADE PROTOCOL",
            operations.alter(
                "UPGRADE PROTOCOL",
                {"newProtocol": json.dumps(versions)},
                lambda _, state: definition.upgrade_protocol(state, readerVersion, writerVersion),
            ),
            {},
        )

    def addFeatureSupport(self, featureName: str) -> None:
        """Add a feature to the table's protocol."""
        require_kind("featureName", featureName, str, "a string")
        self._table.add_feature(featureName)

    def dropFeatureSupport(self, featureName: str, truncateHistory: bool | None = None) -> None:  # noqa: FBT001
        """Drop a feature of the table's protocol."""
        require_kind("featureName", featureName, str, "a string")
        if truncateHistory is not None:
            require_kind("truncateHistory", truncateHistory, bool, "a boolean")
        drop_feature(self._table, featureName)

    def clone(
        self,
        target: str,
        isShallow: bool = False,  # noqa: FBT001, FBT002
        replace: bool = False,  # noqa: FBT001, FBT002
        properties: dict[str, str] | None = None,
    ) -> DeltaTable:
        """Make a table at a path that shares the files of this one."""
        return self._cloned(target, isShallow, replace, properties)

    def cloneAtVersion(
        self,
        version: int,
        target: str,
        isShallow: bool = False,  # noqa: FBT001, FBT002
        replace: bool = False,  # noqa: FBT001, FBT002
        properties: dict[str, str] | None = None,
    ) -> DeltaTable:
        """Make a table at a path that shares the files of a version of this one."""
        require_kind("version", version, int, "an int")
        return self._cloned(target, isShallow, replace, properties, version=version)

    def cloneAtTimestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,  # noqa: FBT001, FBT002
        replace: bool = False,  # noqa: FBT001, FBT002
        properties: dict[str, str] | None = None,
    ) -> DeltaTable:
        """Make a table at a path that shares the files that this one had at a time."""
        require_kind("timestamp", timestamp, str, "a string")
        return self._cloned(target, isShallow, replace, properties, timestamp=timestamp)

    def _cloned(
        self,
        target: object,
        is_shallow: object,
        replace: object,
        properties: object,
        **at: Any,  # noqa: ANN401
    ) -> DeltaTable:
        require_kind("target", target, str, "a string")
        require_kind("isShallow", is_shallow, bool, "a boolean")
        require_kind("replace", replace, bool, "a boolean")
        if properties is not None:
            require_kind("properties", properties, dict, "a dict")
        for key, value in dict(properties or {}).items():  # type: ignore[call-overload]
            require_kind(f"All property keys including {key}", key, str, "a string")
            require_kind(f"All property values including {key}", value, str, "a string")
        if not is_shallow or replace:
            what = "replaces a table" if is_shallow else "copies files"
            raise UnsupportedFeatureError(
                f"delvec makes no clone that {what}",
                feature="CLONE",
                hint="clone(target, isShallow=True) makes one at a new place",
            )
        self._table.clone(str(target), **at)
        made = OwnTable.for_path(self._spark, str(target))
        if properties:
            made.set_properties(properties)  # type: ignore[arg-type]
        return DeltaTable(self._spark, made)

    def _restored(self, **at: Any) -> DataFrame:  # noqa: ANN401
        report = self._table.restore(**at)
        return self._frame("RESTORE", restored_rows(self._table, report))

    def _frame(self, statement: str, rows: list[tuple[Any, ...]]) -> DataFrame:
        """Return rows with the columns that a statement has."""
        return self._spark.createDataFrame(rows, UTILITIES[statement].columns)

    @property
    def _names(self) -> tuple[str, ...]:
        """What its columns may be qualified with."""
        return self._name if self._alias is None else (self._alias,)

    def _unqualified(self, value: Any) -> Any:  # noqa: ANN401
        return unqualified(self._spark, value, self._names)


class _Builder(DeltaTableBuilder):
    """A builder that opens what it made."""

    def execute(self) -> DeltaTable:
        """Make the table, and open it."""
        return DeltaTable.forName(self._spark, self.make())


class DeltaOptimizeBuilder:
    """Which files of a table are put together, and how."""

    def __init__(self, table: DeltaTable) -> None:
        """Begin with all files."""
        self._of = table
        self._where: str | None = None

    def where(self, partitionFilter: str) -> DeltaOptimizeBuilder:
        """Choose files by a condition on partition columns."""
        self._where = partitionFilter
        return self

    def executeCompaction(self) -> DataFrame:
        """Put small files together."""
        return self._run()

    def executeZOrderBy(self, *cols: str | Sequence[str]) -> DataFrame:
        """Sort the rows by several columns at once."""
        return self._run(zorder_by=listed(cols, "Z-order column"))

    def _run(self, **given: Any) -> DataFrame:  # noqa: ANN401
        table = self._of._table  # noqa: SLF001
        report = table.optimize(self._where, **given)
        return self._of._frame("OPTIMIZE", optimized_rows(table, report))  # noqa: SLF001


def _session(given: SparkSession | None) -> SparkSession:
    spark = given or SparkSession.getActiveSession()
    if spark is None:
        raise InvalidArgumentError(
            "a table is made in a session, and none is active", hint="DeltaTable.create(spark)"
        )
    return spark
