"""Other nodes of statements that mean Delta tables: streams, the change feed, SHOW PARTITIONS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions

from delvec.datasource.options import ReadOptions, parse_options
from delvec.delta.table import DeltaTable
from delvec.door.commands import Rows, command
from delvec.door.known_tables import feed, path_of, table_of
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote
from delvec.spark import jvm
from delvec.spark.delta.scan.scan import scan
from delvec.spark.jvm import Java, class_name
from delvec.spark.types import table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FEED: Final = ("table_changes", "table_changes_by_path")


def by_name(spark: SparkSession, plan: Java) -> Java | None:
    """Return the stream of `readStream.table(name)`, or the change feed of a `table(name)`."""
    found = table_of(spark, [str(each) for each in jvm.items(plan.multipartIdentifier())])
    if found is None:
        return None
    options = plan.options().asCaseSensitiveMap()
    given = {str(key): str(options.get(key)) for key in list(options.keySet())}
    if plan.isStreaming():
        return _stream(spark, found.table.storage.root, given)
    rows = feed(found.table, {key.lower(): value for key, value in given.items()})
    return None if rows is None else rows._jdf.queryExecution().analyzed()  # noqa: SLF001


def by_path(spark: SparkSession, plan: Java) -> Java | None:
    """Return the stream of format("delta"), or the rows of format("delvec") as `to_df` reads them.

    None, for the Python data source, if the options name what it alone knows.
    """
    maps = jvm.java_class(spark, "scala.jdk.javaapi.CollectionConverters")
    options = maps.asJava(plan.options())
    given = {str(key): str(options.get(key)) for key in list(options.keySet())}
    paths = [str(each) for each in jvm.items(plan.paths())]
    if paths:
        given["path"] = paths[0]
    if plan.isStreaming():
        path = given.pop("path", None)
        if path is None:
            raise InvalidArgumentError(
                'format("delta") needs the path of a table', hint="load(path), or table(name)"
            )
        return _stream(spark, path_of(path), given)
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    found = parse_options(
        given if "timezone" in map(str.lower, given) else given | {"timeZone": zone}
    )
    known = ReadOptions(
        found.path, "rows", found.version, found.timestamp, found.columns, time_zone=zone
    )
    if found != known or len(paths) > 1 or plan.userSpecifiedSchema().isDefined():
        return None
    snapshot = DeltaTable.for_path(spark, path_of(found.path)).snapshot(
        found.version, found.timestamp
    )
    follows = found.version is None and found.timestamp is None
    rows = scan(spark, snapshot, found.columns, follows=follows)
    return rows._jdf.queryExecution().analyzed()  # noqa: SLF001


def changes_of(spark: SparkSession, plan: Java) -> Java | None:
    """Return the rows of `table_changes('name', start, end)`."""
    names = [str(each) for each in jvm.items(plan.name())]
    if len(names) != 1 or names[0].lower() not in _FEED:
        return None
    arguments = [_constant(each) for each in jvm.items(plan.functionArgs())]
    example = "table_changes('db.orders', 1, 5)"
    if not 2 <= len(arguments) <= 3 or not isinstance(arguments[0], str):
        raise InvalidArgumentError(
            f"{names[0]} takes a table, a start and an end, not {arguments!r}", hint=example
        )
    if names[0].lower() == _FEED[1]:
        table = DeltaTable.for_path(spark, path_of(arguments[0]))
    else:
        parser = jvm.session_of(spark).sessionState().sqlParser()
        parts = [str(each) for each in jvm.items(parser.parseMultipartIdentifier(arguments[0]))]
        found = table_of(spark, parts)
        if found is None:
            raise InvalidArgumentError(f"{arguments[0]} is not a Delta table", hint=example)
        table = found.table
    given: dict[str, Any] = {}
    for end, value in zip(("start", "end"), arguments[1:], strict=False):
        given[f"{end}_timestamp" if isinstance(value, str) else f"{end}_version"] = value
    return table.changes(**given)._jdf.queryExecution().analyzed()  # noqa: SLF001


def shown_partitions(spark: SparkSession, plan: Java) -> Java | None:
    """Return the command for SHOW PARTITIONS of a Delta table; None if it is of another."""
    found = table_of(spark, [str(each) for each in jvm.items(plan.table().multipartIdentifier())])
    if found is None:
        return None
    metadata = found.snapshot.metadata
    if not metadata.partition_columns:
        raise InvalidArgumentError(
            f"{found.name} has no partitions", hint="DESCRIBE TABLE names a table's columns"
        )
    columns = table_schema(metadata.partition_fields)
    pattern = plan.pattern()
    given = jvm.items(pattern.get().spec()) if pattern.isDefined() else ()
    values = {str(each._1()): each._2() for each in given}  # noqa: SLF001

    def carry_out() -> Rows:
        rows = found.table.to_df().select(*map(quote, metadata.partition_columns))
        for name, value in values.items():
            rows = rows.where(functions.col(quote(name)) == functions.lit(value))
        return [tuple(row) for row in rows.distinct().collect()]

    return command(spark, f"SHOW PARTITIONS {found.name}", columns, carry_out)


def _stream(spark: SparkSession, path: str, options: Mapping[str, str]) -> Java:
    given = {key: value for key, value in options.items() if not key.startswith("__")}
    rows = spark.readStream.format("delvec").options(**given).load(path)
    return rows._jdf.queryExecution().analyzed()  # noqa: SLF001


def _constant(expression: Java) -> int | str:
    value = expression.eval(None) if expression.resolved() and expression.foldable() else None
    if isinstance(value, int):
        return value
    if value is None or class_name(value) != "UTF8String":
        raise InvalidArgumentError(
            f"{expression.toString()} is neither a version nor a time, as a constant"
        )
    return str(value.toString())
