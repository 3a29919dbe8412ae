"""Delta tables that Spark's analyzer has asked for, and their rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyspark.sql import SparkSession

from delvec.delta.table import DeltaTable
from delvec.errors import InvalidArgumentError, TableNotFoundError
from delvec.spark import jvm
from delvec.spark.types import spark_type
from delvec.storage.listed_files import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from delvec.delta.log.snapshot import Snapshot

_KEPT: Final = 1000
_NUMBERS: Final = count(1)
_sessions: Final[OrderedDict[str, SparkSession]] = OrderedDict()
_tables: Final[OrderedDict[int, KnownTable]] = OrderedDict()


@dataclass(frozen=True, eq=False)
class KnownTable:
    """A version of a table, as it was found when a statement was analyzed."""

    name: str
    table: DeltaTable
    snapshot: Snapshot
    is_newest: bool
    changes: Mapping[str, Any] | None = None  # of the change feed, instead of rows


def session_of_java(session: Any) -> SparkSession:  # noqa: ANN401
    """Return the session of an object of the JVM, which is the session."""
    running: Any = SparkSession._instantiatedSession  # noqa: SLF001
    name = session.sessionUUID()
    if name not in _sessions:
        _sessions[name] = SparkSession(running.sparkContext, session)
        while len(_sessions) > _KEPT:
            _sessions.popitem(last=False)
    return _sessions[name]


def known(table: Any) -> KnownTable:  # noqa: ANN401
    """Return what a `DeltaTable.java` stands for."""
    return _tables[table.key()]


def load(
    spark: SparkSession,
    name: str,
    location: str,
    version: str | None,
    timestamp: int | None,
    registered: object,  # noqa: ARG001
) -> Any | None:  # noqa: ANN401
    """Return a table of the catalog, or of a path, as `DeltaTable.java`; None if there is none."""
    path = local_path(location) if ":" in location else location
    try:
        table = DeltaTable.for_path(spark, path)
    except TableNotFoundError:
        return None
    at = None if version is None else _version(version)
    when = None if timestamp is None else _time(timestamp)
    return _java(spark, name, table, at, when)


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a table at a path."""
    return DeltaTable.is_delta_table(path, spark=spark)


def open_by_options(spark: SparkSession, options: Any) -> Any:  # noqa: ANN401
    """Return the table of `format("delta").options(...).load(path)`, as `DeltaTable.java`."""
    given = {str(key).lower(): str(options.get(key)) for key in list(options.keySet())}
    path = given.get("path")
    if path is None:
        raise InvalidArgumentError('format("delta") needs the path of a table', hint="load(path)")
    path = local_path(path) if path.startswith("file:") else path
    version = given.get("versionasof")
    return _java(
        spark,
        f"delta.`{path}`",
        DeltaTable.for_path(spark, path),
        None if version is None else _version(version),
        given.get("timestampasof"),
    )


def rows_of(spark: SparkSession, table: Any, options: Any) -> Any:  # noqa: ANN401, ARG001
    """Return the plan of a table's rows."""
    found = known(table)
    rows: DataFrame
    if found.is_newest:
        rows = found.table.to_df()
    else:
        rows = found.table.to_df(version=found.snapshot.version)
    return rows._jdf.queryExecution().analyzed()  # noqa: SLF001


def _java(
    spark: SparkSession, name: str, table: DeltaTable, version: int | None, timestamp: Any
) -> Any:  # noqa: ANN401
    snapshot = table.snapshot(version, timestamp)
    newest = version is None and timestamp is None
    return java_table(spark, KnownTable(name, table, snapshot, newest))


def java_table(spark: SparkSession, found: KnownTable) -> Any:  # noqa: ANN401
    """Return a table as `DeltaTable.java`."""
    key = next(_NUMBERS)
    _tables[key] = found
    while len(_tables) > _KEPT:
        _tables.popitem(last=False)
    metadata = found.snapshot.metadata
    transforms = jvm.java_class(spark, "org.apache.spark.sql.connector.expressions.Expressions")
    transform = jvm.java_class(spark, "org.apache.spark.sql.connector.expressions.Transform")
    partitions = [transforms.identity(f"`{each}`") for each in metadata.partition_columns]
    properties = jvm.java_class(spark, "java.util.HashMap")()
    for each, value in _properties(found.snapshot).items():
        properties.put(each, value)
    return jvm.java_class(spark, "delvec.sql.DeltaTable")(
        found.name,
        jvm.java_type(spark, shown_schema(found.snapshot)),
        jvm.array_of(spark, transform, partitions),
        properties,
        key,
    )


def shown_schema(snapshot: Snapshot) -> StructType:
    """Return the columns as Spark's statements see them: with nullability, comment and default."""
    from pyspark.sql.types import StructField, StructType

    keys = ("comment", "CURRENT_DEFAULT", "__CHAR_VARCHAR_TYPE_STRING")
    return StructType(
        [
            StructField(
                field.name,
                spark_type(field.type),
                field.nullable,
                {key: field.metadata[key] for key in keys if key in field.metadata},
            )
            for field in snapshot.metadata.schema.fields
        ]
    )


def _properties(snapshot: Snapshot) -> dict[str, str]:
    """Return what SHOW TBLPROPERTIES and DESCRIBE EXTENDED show, as delta-spark's table does."""
    protocol, metadata = snapshot.protocol, snapshot.metadata
    shown = dict(metadata.configuration)
    shown["delta.minReaderVersion"] = str(protocol.min_reader_version)
    shown["delta.minWriterVersion"] = str(protocol.min_writer_version)
    shown |= {
        f"delta.feature.{name}": "supported"
        for name in {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    }
    shown["provider"] = "delta"
    shown["location"] = snapshot.table
    if metadata.description:
        shown["comment"] = metadata.description
    return shown


def _version(text: str) -> int:
    if not text.strip().isdecimal():
        raise InvalidArgumentError(f"a version is a number, not {text!r}")
    return int(text)


def _time(micros: int) -> Any:  # noqa: ANN401
    from datetime import UTC, datetime, timedelta

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
