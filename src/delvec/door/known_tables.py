"""Delta tables that Spark's analyzer has asked for, and their rows."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from delvec.delta.table import DeltaTable
from delvec.errors import InvalidArgumentError, TableNotFoundError
from delvec.identifiers import quote_if_needed
from delvec.spark import jvm
from delvec.spark.delta.scan.scan import scan
from delvec.spark.jvm import Java, class_name
from delvec.spark.types import spark_type
from delvec.storage.listed_files import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delvec.delta.log.snapshot import Snapshot

CATALOG: Final = "spark.sql.catalog.spark_catalog"
OURS: Final = "delvec.sql.DeltaCatalog"
_KEPT: Final = 1000
_WHOLE: Final = 32  # versions in memory: one with a million files takes hundreds of megabytes
_AT_VERSION: Final = re.compile(r"(.+)@v(\d{1,18})")
_NUMBERS: Final = count(1)
_sessions: Final[OrderedDict[str, SparkSession]] = OrderedDict()
_tables: Final[OrderedDict[int, Known]] = OrderedDict()
_whole: Final[deque[Known]] = deque()


@dataclass(eq=False)
class Known:
    """What the analyzer got as a `DeltaTable.java`: a table by its name, and its definition."""

    name: str
    held: Snapshot | partial[Snapshot]

    @property
    def snapshot(self) -> Snapshot:
        """The version."""
        return self.held() if isinstance(self.held, partial) else self.held

    def forget(self) -> None:
        """Drop the version, if it can be opened again when somebody still asks for it."""


@dataclass(eq=False)
class KnownTable(Known):
    """A version of a table, as it was found when a statement was analyzed."""

    table: DeltaTable
    is_newest: bool
    changes: DataFrame | None = None  # the change feed, instead of rows

    def forget(self) -> None:
        """Drop the version; it is opened again by its number."""
        self.held = partial(self.table.snapshot, self.snapshot.version)


def is_open(spark: SparkSession) -> bool:
    """Whether the door of a session is open."""
    return spark.conf.get(CATALOG, "") == OURS


def session_of_java(session: Java) -> SparkSession:
    """Return the session of an object of the JVM, which is the session."""
    running: Java = SparkSession._instantiatedSession  # noqa: SLF001
    name = session.sessionUUID()
    if name not in _sessions:
        _sessions[name] = SparkSession(running.sparkContext, session)
        while len(_sessions) > _KEPT:
            _sessions.popitem(last=False)
    return _sessions[name]


def known(table: Java) -> Known:
    """Return what a `DeltaTable.java` stands for."""
    return _tables[table.key()]


def find(table: Java) -> Known | None:
    """Return what a `DeltaTable.java` of any age stands for; None if it is forgotten."""
    return _tables.get(table.key())


def opened(table: Known) -> KnownTable:
    """Return a table that is there, and not only staged."""
    if isinstance(table, KnownTable):
        return table
    raise AssertionError(f"{table.name} is staged")


def load(
    spark: SparkSession,
    name: str,
    location: str,
    version: str | None,
    timestamp: int | None,
    registered: object,
) -> Java | None:
    """Return a table of the catalog, or of a path, as `DeltaTable.java`; None if there is none."""
    path, at = _at_version(path_of(location)) if registered is None else (path_of(location), None)
    try:
        table = DeltaTable.for_path(spark, path)
    except TableNotFoundError:
        return None
    at = at if version is None else _version(version)
    when = None if timestamp is None else _time(timestamp)
    return _java(spark, name, table, at, when)


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a table at a path."""
    return DeltaTable.is_delta_table(path, spark=spark)


def open_by_options(spark: SparkSession, options: Java) -> Java:
    """Return the table of `format("delta").options(...).load(path)`, as `DeltaTable.java`."""
    given = {str(key).lower(): str(options.get(key)) for key in list(options.keySet())}
    path = given.get("path")
    if path is None:
        raise InvalidArgumentError('format("delta") needs the path of a table', hint="load(path)")
    path, at = _at_version(path_of(path))
    table = DeltaTable.for_path(spark, path)
    if (changes := feed(table, given)) is not None:
        name, snapshot = f"delta.`{path}`", table.snapshot()
        found = KnownTable(name, snapshot, table, is_newest=True, changes=changes)
        return java_table(spark, found, changes.schema)
    version = given.get("versionasof")
    return _java(
        spark,
        f"delta.`{path}`",
        table,
        at if version is None else _version(version),
        given.get("timestampasof"),
    )


def feed(table: DeltaTable, options: Mapping[str, str]) -> DataFrame | None:
    """Return the change feed, if a reader's options ask for it; their names are in lower case."""
    if options.get("readchangefeed", options.get("readchangedata", "")).lower() != "true":
        return None
    given: dict[str, Any] = {}
    for end, word in (("start", "starting"), ("end", "ending")):
        if f"{word}version" in options:
            given[f"{end}_version"] = _version(options[f"{word}version"])
        if f"{word}timestamp" in options:
            given[f"{end}_timestamp"] = options[f"{word}timestamp"]
    return table.changes(**given)


def rows_of(spark: SparkSession, table: Java, options: Java) -> Java:  # noqa: ARG001
    """Return the plan of a table's rows."""
    found = opened(known(table))
    rows = found.changes
    if rows is None:
        # Of the version whose columns the analyzer has: others may have committed meanwhile.
        rows = scan(spark, found.snapshot, follows=found.is_newest)
    return rows._jdf.queryExecution().analyzed()  # noqa: SLF001


def table_of(spark: SparkSession, parts: Sequence[str]) -> KnownTable | None:
    """Return the Delta table that a name in a statement means, if it means one."""
    if not is_open(spark):
        return _table_of_closed(spark, parts)
    state = jvm.session_of(spark).sessionState()
    manager = state.catalogManager()
    names = list(parts)
    if len(names) > 1 and names[0].lower() == "spark_catalog":
        del names[0]
    elif len(names) > 1 and manager.isCatalogRegistered(names[0]):
        return None
    elif len(names) == 1:
        if manager.currentCatalog().name() != "spark_catalog":
            return None
        if state.catalog().getRawTempView(names[0]).isDefined():
            return None
        names = [*manager.currentNamespace(), *names]
    identifiers = jvm.java_class(spark, "org.apache.spark.sql.connector.catalog.Identifier")
    strings = jvm.java_class(spark, "java.lang.String")
    identifier = identifiers.of(jvm.array_of(spark, strings, names[:-1]), names[-1])
    try:
        found = manager.catalog("spark_catalog").loadTable(identifier)
    except Py4JJavaError as error:
        if class_name(error.java_exception).startswith("NoSuch"):
            return None
        raise
    open_table = known(found) if class_name(found) == "DeltaTable" else None
    return open_table if isinstance(open_table, KnownTable) else None


def _table_of_closed(spark: SparkSession, parts: Sequence[str]) -> KnownTable | None:
    name = ".".join(map(quote_if_needed, parts))
    try:
        if len(parts) == 2 and parts[0].lower() == "delta" and "/" in parts[1]:
            table = DeltaTable.for_path(spark, path_of(parts[1]))
        else:
            table = DeltaTable.for_name(spark, name)
    except TableNotFoundError:
        return None
    return KnownTable(name, table.snapshot(), table, is_newest=True)


def path_of(location: str) -> str:
    """Return a path that a user or a catalog names, without the scheme of local files."""
    return local_path(location) if location.startswith("file:") else location


def _java(
    spark: SparkSession, name: str, table: DeltaTable, version: int | None, timestamp: Java
) -> Java:
    snapshot = table.snapshot(version, timestamp)
    newest = version is None and timestamp is None
    found = KnownTable(name, snapshot, table, newest)
    return java_table(spark, found, shown_schema(snapshot))


def java_table(spark: SparkSession, found: Known, schema: StructType) -> Java:
    """Return a table as `DeltaTable.java`."""
    key = next(_NUMBERS)
    _tables[key] = found
    _whole.append(found)
    if len(_whole) > _WHOLE:
        _whole.popleft().forget()
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
        jvm.java_type(spark, schema),
        jvm.array_of(spark, transform, partitions),
        properties,
        key,
    )


def shown_schema(snapshot: Snapshot) -> StructType:
    """Return the columns as Spark's statements see them: with nullability, comment and default."""
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


def _at_version(path: str) -> tuple[str, int | None]:
    """Return a path and the version behind it, as in `/lake/orders@v3`."""
    found = _AT_VERSION.fullmatch(path)
    return (found[1], int(found[2])) if found else (path, None)


def _version(text: str) -> int:
    if not text.strip().isdecimal():
        raise InvalidArgumentError(f"a version is a number, not {text!r}")
    return int(text)


def _time(micros: int) -> Java:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)
