"""Other nodes of statements that mean Delta tables: streams, the change feed, SHOW PARTITIONS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions

from delvec.delta.table import DeltaTable
from delvec.door.commands import Rows, command
from delvec.door.known_tables import feed, path_of, table_of
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote
from delvec.spark import jvm
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
    if plan.isStreaming():
        return _stream(spark, found.table.storage.root, options)
    rows = feed(found.table, {str(key).lower(): options.get(key) for key in list(options.keySet())})
    return None if rows is None else rows._jdf.queryExecution().analyzed()  # noqa: SLF001


def streamed_path(spark: SparkSession, plan: Java) -> Java | None:
    """Return the stream of `spark.readStream.format("delta").load(path)`."""
    if str(plan.format()).lower() != "delta":
        return None
    maps = jvm.java_class(spark, "scala.jdk.javaapi.CollectionConverters")
    options = maps.asJava(plan.options())
    paths = [str(each) for each in jvm.items(plan.paths())]
    path = paths[0] if paths else options.get("path")
    if path is None:
        raise InvalidArgumentError(
            'format("delta") needs the path of a table', hint="load(path), or table(name)"
        )
    return _stream(spark, path_of(str(path)), options)


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


def _stream(spark: SparkSession, path: str, options: Java) -> Java:
    given = {str(key): str(options.get(key)) for key in list(options.keySet())}
    given = {key: value for key, value in given.items() if not key.startswith("__")}
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
