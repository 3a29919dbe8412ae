"""Rows that Spark has resolved, written to Delta tables: INSERT, DataFrame writers, streams."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, functions
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from delvec.delta.skipping.clustering import clustered_by, column_names
from delvec.delta.table import DeltaTable
from delvec.door.assignment import assigned
from delvec.door.commands import Rows, command
from delvec.door.known_tables import KnownTable, known, newest, opened, path_of
from delvec.door.new_tables import StagedTable, definition_of
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.identifiers import quote, quote_if_needed
from delvec.spark import jvm
from delvec.spark.catalyst import column_of, name_of, rebuild
from delvec.spark.delta.write.create import create_with_rows, with_rows
from delvec.spark.engine import open_storage
from delvec.spark.jvm import Java, class_name
from delvec.spark.types import table_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from delvec.delta.write.transaction import WriteOptions

_NOTHING: Final = StructType([])
_PARTITIONS: Final = "__partition_columns"
_CLUSTERING: Final = "__clustering_columns"


def statement(spark: SparkSession, kind: str, plan: Java, table: Java, query: Java) -> Java:
    """Return the command for a write of resolved rows."""
    found = known(table)
    options = _options(plan.writeOptions())
    if isinstance(found, StagedTable):
        staged = found

        def keep() -> Rows:
            staged.rows = rows = jvm.frame_of(spark, query)
            if staged.of_writer:
                wanted = staged.wanted
                own = {key: options[key] for key in options if key.startswith("delta.")}
                staged.wanted = replace(wanted, properties={**(wanted.properties or {}), **own})
                layout = list(wanted.partition_by), wanted.cluster_by
                staged.overwrite = partial(_replace, spark, rows, options, *layout)
            return []

        return command(spark, f"WRITE {found.name}", _NOTHING, keep)
    found = newest(opened(found))
    by_name = bool(plan.isByName())
    where = _replaced(spark, plan.deleteExpr()) if kind == "OverwriteByExpression" else None

    def carry_out() -> Rows:
        rows = jvm.frame_of(spark, query)
        if not by_name:
            rows = by_position(found, rows, merges=_merges(spark, options))
        rows = assigned(spark, rows, found.snapshot.metadata.schema)
        if kind == "AppendData":
            _append(spark, found.table, rows, options)
        else:
            _overwrite(
                spark, found.table, rows, options, where, dynamic=kind != "OverwriteByExpression"
            )
        return []

    return command(spark, f"INSERT INTO {found.name}", _NOTHING, carry_out)


def save(spark: SparkSession, mode: str, options: Java, rows: Java) -> Java:
    """Carry out `df.write.format("delta").mode(...).save(path)`; return the schema."""
    frame = DataFrame(rows, spark)
    given = _options(options)
    path = _path(given)
    partitions = json.loads(given.pop(_PARTITIONS, "[]"))
    clustering = [
        ".".join(map(quote_if_needed, each)) for each in json.loads(given.pop(_CLUSTERING, "[]"))
    ]
    if not DeltaTable.is_delta_table(path, spark=spark):
        create_with_rows(
            spark,
            open_storage(spark, path),
            definition_of(frame.schema, partitions, given, clustering),
            frame,
            "WRITE",
            **_write_options(spark, given),
        )
        return jvm.java_type(spark, frame.schema)
    if mode == "ErrorIfExists":
        raise InvalidArgumentError(
            f"there is a table at {path} already",
            hint='write with mode("append"), mode("overwrite") or mode("ignore")',
        )
    if mode != "Ignore":
        table = DeltaTable.for_path(spark, path)
        if mode == "Append":
            _require_same_layout(table, partitions, clustering)
            _append(spark, table, frame, given)
        else:
            _replace(spark, frame, given, partitions, clustering, table)
    return jvm.java_type(spark, frame.schema)


def _replace(
    spark: SparkSession,
    rows: DataFrame,
    options: Mapping[str, str],
    partitions: list[str],
    clustering: Sequence[str],
    table: DeltaTable,
) -> None:
    """Overwrite a table by a writer, which may replace its columns and partitions as well."""
    if options.get("overwriteschema", "").lower() == "true" and "replacewhere" not in options:
        wanted = definition_of(rows.schema, partitions, {}, clustering)
        wanted = replace(wanted, properties=None)
        table.run("WRITE", with_rows("WRITE", wanted, rows), _write_options(spark, options))
        return
    _require_same_layout(table, partitions, clustering)
    _overwrite(spark, table, rows, options, None, dynamic=False)


def write_batch(
    spark: SparkSession,
    options: Java,
    partitions: Java,
    mode: str,
    query: str,
    number: int,
    rows: Java,
) -> None:
    """Write a batch of a stream, once."""
    frame = DataFrame(rows, spark)
    given = _options(options)
    path = _path(given)
    if mode not in ("Append", "Complete"):
        raise UnsupportedFeatureError(
            f"the output mode {mode.lower()} is not one of a Delta table",
            feature="stream",
            hint='write with outputMode("append") or "complete", or merge in foreachBatch',
        )
    if not DeltaTable.is_delta_table(path, spark=spark):
        names = [str(each) for each in jvm.items(partitions)]
        DeltaTable.create(spark, path, frame.schema, names, mode="ignore")
    table = DeltaTable.for_path(spark, path)
    given |= {"txnappid": query, "txnversion": str(number)}
    if mode == "Append":
        _append(spark, table, frame, given)
    else:
        _overwrite(spark, table, frame, given, None, dynamic=False)


def by_position(found: KnownTable, rows: DataFrame, *, merges: bool) -> DataFrame:
    """Return rows under the names that the table has at their positions, in structs as well."""
    fields = table_schema(found.snapshot.metadata.schema.fields).fields
    given = rows.schema.fields
    if len(given) < len(fields) or (len(given) > len(fields) and not merges):
        raise InvalidArgumentError(
            f"{found.name} has {len(fields)} columns, {_listed(fields)}; {len(given)} are given:"
            f" {_listed(given)}",
            hint="name the columns: INSERT INTO table (a, b) VALUES (1, 2), or INSERT ... BY NAME",
        )
    named = rows.toDF(*(f"__delvec_{number}" for number in range(len(given))))
    columns = []
    for number, field in enumerate(given):
        name = fields[number].name if number < len(fields) else field.name
        column = functions.col(f"__delvec_{number}")
        if number < len(fields):
            wanted = _renamed(field.dataType, fields[number].dataType)
            if wanted != field.dataType:
                column = column.cast(wanted)
        columns.append(column.alias(name))
    return named.select(*columns)


def _renamed(given: DataType, wanted: DataType) -> DataType:
    """Return a type with the names of the fields of another, by position."""
    match given, wanted:
        case StructType(), StructType():
            fields = [
                StructField(
                    wanted.fields[n].name if n < len(wanted.fields) else each.name,
                    _renamed(each.dataType, wanted.fields[n].dataType)
                    if n < len(wanted.fields)
                    else each.dataType,
                    each.nullable,
                )
                for n, each in enumerate(given.fields)
            ]
            return StructType(fields)
        case ArrayType(), ArrayType():
            return ArrayType(_renamed(given.elementType, wanted.elementType), given.containsNull)
        case MapType(), MapType():
            key = _renamed(given.keyType, wanted.keyType)
            return MapType(
                key, _renamed(given.valueType, wanted.valueType), given.valueContainsNull
            )
    return given


def _append(
    spark: SparkSession, table: DeltaTable, rows: DataFrame, options: Mapping[str, str]
) -> None:
    table.append(rows, merge_schema=_merges(spark, options), **_write_options(spark, options))


def _overwrite(
    spark: SparkSession,
    table: DeltaTable,
    rows: DataFrame,
    options: Mapping[str, str],
    where: Column | str | None,
    *,
    dynamic: bool,
) -> None:
    where = options.get("replacewhere", where)
    mode = options.get("partitionoverwritemode")
    dynamic = dynamic or (mode or "").lower() == "dynamic"
    table.overwrite(
        rows,
        where,
        partitions="dynamic" if dynamic and where is None else "static",
        merge_schema=_merges(spark, options),
        replace_schema=options.get("overwriteschema", "").lower() == "true",
        **_write_options(spark, options),
    )


def _write_options(spark: SparkSession, options: Mapping[str, str]) -> WriteOptions:
    if options.get("datachange", "").lower() == "false":
        # Streams and change feeds would get rows again that only moved.
        raise UnsupportedFeatureError(
            'option("dataChange", "false") is not carried out: rows are written as new ones',
            feature="dataChange",
            hint="OPTIMIZE moves rows and changes none",
        )
    found: WriteOptions = {}
    message = options.get("usermetadata") or spark.conf.get(
        "spark.databricks.delta.commitInfo.userMetadata", None
    )
    if message:
        found["commit_metadata"] = message
    if "txnappid" in options and "txnversion" in options:
        found["txn_app_id"] = options["txnappid"]
        found["txn_version"] = int(options["txnversion"])
    return found


def _merges(spark: SparkSession, options: Mapping[str, str]) -> bool:
    default = spark.conf.get("spark.databricks.delta.schema.autoMerge.enabled", None)
    return options.get("mergeschema", default or "").lower() == "true"


def _replaced(spark: SparkSession, expression: Java) -> Column | None:
    """Return the condition of an overwrite, by name; None for all rows."""
    if class_name(expression) == "Literal" and expression.value() is True:
        return None

    def by_name(kind: str, node: Java, _: object) -> Java | None:
        return name_of(spark, [node.name()]) if kind == "AttributeReference" else None

    new = rebuild(spark, expression, by_name)
    return column_of(spark, expression if new is None else new)


def _require_same_layout(
    table: DeltaTable, partitions: Sequence[str], clustering: Sequence[str]
) -> None:
    snapshot = table.snapshot()
    clustered = column_names(snapshot.metadata, clustered_by(snapshot.domains))
    for what, by, given, own in (
        ("partitioned", "partitionBy", partitions, snapshot.metadata.partition_columns),
        ("clustered", "clusterBy", clustering, clustered),
    ):
        if given and [each.lower() for each in given] != [each.lower() for each in own]:
            raise InvalidArgumentError(
                f"{table.storage.root} is {what} by {', '.join(own) or 'nothing'}, not by"
                f" {', '.join(given)}",
                hint=f"omit {by}(), name the table's own columns, or overwrite the table with"
                ' option("overwriteSchema", "true")',
            )


def _options(options: Java) -> dict[str, str]:
    """Return options of Scala by their names in lower case."""
    return {
        str(each._1()).lower(): str(each._2())  # noqa: SLF001
        for each in jvm.items(options)
    }


def _path(options: Mapping[str, str]) -> str:
    if "path" not in options:
        raise InvalidArgumentError('format("delta") needs the path of a table', hint="save(path)")
    return path_of(options["path"])


def _listed(fields: list[StructField]) -> str:
    return ", ".join(quote(each.name) for each in fields)
