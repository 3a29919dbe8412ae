"""Equality deletes as other engines write them: by Iceberg's generic writers for Java."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

import delvec
from delvec import IcebergTable
from delvec.iceberg.client.catalog import catalog_of, iceberg_view, table_name
from delvec.spark import jvm

_CONVERTED = ("date", "timestamp", "fixed")


def column(number: int, name: str, kind: Any, *, required: bool = False) -> dict[str, Any]:  # noqa: ANN401
    """A column of a schema, in Iceberg's JSON form."""
    return {"id": number, "name": name, "required": required, "type": kind}


def table_of(
    spark: SparkSession,
    columns: Sequence[Mapping[str, Any]],
    properties: Mapping[str, str] | None = None,
) -> IcebergTable:
    """Create a table with columns of any type that Iceberg has."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.foreign")
    name = table_name(spark, f"lake.foreign.t_{uuid4().hex[:8]}")
    catalog, identifier = catalog_of(spark, name)
    schema = {"type": "struct", "schema-id": 0, "fields": list(columns)}
    builder = catalog.buildTable(
        identifier, iceberg_view(spark).SchemaParser.fromJson(json.dumps(schema))
    )
    given = {"format-version": "3", "write.delete.mode": "merge-on-read", **(properties or {})}
    for key, value in given.items():
        builder = builder.withProperty(key, value)
    builder.create()
    return delvec.IcebergTable.for_name(spark, str(name))


def delete_by_java(
    table: IcebergTable,
    rows: Sequence[Mapping[str, Any]],
    keys: Sequence[str],
    *,
    file_format: str = "PARQUET",
    partition: str | None = None,
    branch: str = "main",
) -> None:
    """Commit a file of equality deletes, of a partition such as `part=a` if the table has some.

    Rows are in the form of Iceberg's JSON for single values. Columns that are not key columns are
    written, and mean nothing; names of key columns have dots for fields of structs.
    """
    spark, view = table.spark, iceberg_view(table.spark)
    handle = table._load().handle
    schema = handle.schema()
    names = jvm.view_of(spark).java.util.ArrayList()
    for name in dict.fromkeys([*keys, *(each for row in rows for each in row)]):
        names.add(name)
    written = schema.select(names)
    ids = [schema.findField(name).fieldId() for name in keys]
    format_ = view.FileFormat.fromString(file_format)
    factory = (
        jvm.java_class(spark, "org.apache.iceberg.data.GenericFileWriterFactory.Builder")(handle)
        .deleteFileFormat(format_)
        .equalityFieldIds(jvm.array_of(spark, jvm.view_of(spark).int, ids))
        .equalityDeleteRowSchema(written)
        .build()
    )
    spec = handle.spec()
    place = None if partition is None else view.DataFiles.data(spec, partition)
    outputs = view.io.OutputFileFactory.builderFor(handle, 1, 1).format(format_).build()
    output = outputs.newOutputFile() if place is None else outputs.newOutputFile(spec, place)
    writer = factory.newEqualityDeleteWriter(output, spec, place)
    described = json.loads(view.SchemaParser.toJson(written))["fields"]
    for row in rows:
        text = json.dumps(_by_id(described, row))
        record = view.SingleValueParser.fromJson(written.asStruct(), text)
        for field in described:
            # Generic records have objects of Java in place of numbers and buffers.
            if str(field["type"]).startswith(_CONVERTED) and row.get(field["name"]) is not None:
                kind = written.findType(field["name"])
                value = view.SingleValueParser.fromJson(kind, json.dumps(row[field["name"]]))
                if field["type"].startswith("fixed"):
                    converted = bytes(value.array())
                else:
                    converted = view.data.IdentityPartitionConverters.convertConstant(kind, value)
                record.setField(field["name"], converted)
        writer.write(record)
    writer.close()
    handle.newRowDelta().addDeletes(writer.toDeleteFile()).toBranch(branch).commit()


def _by_id(fields: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> dict[str, Any]:
    """Name the values of a row, and of structs in it, by field ids."""
    found: dict[str, Any] = {}
    for field in fields:
        inside = {
            key.removeprefix(f"{field['name']}."): value
            for key, value in row.items()
            if key.startswith(f"{field['name']}.")
        }
        if inside:
            found[str(field["id"])] = _by_id(field["type"]["fields"], inside)
        else:
            found[str(field["id"])] = row.get(field["name"])
    return found
