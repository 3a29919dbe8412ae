"""Schemas, partitions and metrics as Iceberg's own parsers read them."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec.conversion.schema.iceberg_schema import target_schema
from delvec.conversion.schema.metrics import metrics_json
from delvec.conversion.schema.partition_spec import partition_json, partition_spec
from tests.conversion.schema.columns import (
    array,
    column,
    files_of,
    mapped,
    metadata_of,
    of_map,
    struct,
)

pytestmark = pytest.mark.spark

# What Delta's log says, and what Iceberg understands.
PARTITIONS: dict[str, tuple[str, object]] = {
    "string": ("a b/ü\"'=%", "a b/ü\"'=%"),
    "long": ("-9223372036854775808", -(2**63)),
    "integer": ("-5", -5),
    "short": ("7", 7),
    "byte": ("-128", -128),
    "float": ("0.1", 0.1),
    "double": ("-Infinity", -math.inf),
    "boolean": ("true", True),
    "date": ("0001-01-01", -719162),
    "timestamp": ("1970-01-01 00:00:01.000002", 1000002),
    "timestamp_ntz": ("1969-12-31 23:59:59", -1000000),
    "decimal(20,3)": ("-1.5", Decimal("-1.500")),
}
INSTANTS = ("1970-01-01T00:00:00.001Z", "1970-01-01T00:00:01.000Z", 1000, 1001000)
CLOCKS = ("1970-01-01T00:00:00.001", "1970-01-01T00:00:01.000", 1000, 1001000)
BOUNDS: dict[str, tuple[object, object, object, object]] = {
    "string": ("a", "zoë", "a", "zoë"),
    "long": (-(2**63), 5, -(2**63), 5),
    "integer": (-1, 2, -1, 2),
    "short": (-1, 2, -1, 2),
    "byte": (-1, 2, -1, 2),
    "float": (0.1, 0.2, 0.1, None),
    "double": (-1.5, 0.5, -1.5, None),
    "boolean": (False, True, None, None),
    "date": ("1969-12-31", "1970-01-02", -1, 1),
    "timestamp": INSTANTS,
    "timestamp_ntz": CLOCKS,
    "decimal(20,3)": (-1.5, 123456789.125, Decimal("-1.500"), Decimal("123456789.125")),
}


def test_iceberg_reads_what_is_written_for_it(spark: SparkSession, tmp_path: Path) -> None:
    generation = "delta.generationExpression"
    metadata = metadata_of(
        *(column(f"v_{kind}", kind, nullable=at > 0) for at, kind in enumerate(BOUNDS)),
        column("nested", struct(column("x", array(of_map("string", struct(column("y", "long"))))))),
        *(column(f"p_{kind}", kind) for kind in PARTITIONS),
        column("p_binary", "binary"),
        column("p_day", "date", {generation: "CAST(v_timestamp_ntz AS DATE)"}),
        column("p_year", "integer", {generation: "YEAR(v_date)"}),
        column("p_month", "integer", {generation: "MONTH(v_date)"}),
        partitions=[
            *(f"p_{kind}" for kind in PARTITIONS),
            "p_binary",
            "p_day",
            "p_year",
            "p_month",
        ],
    )
    values: dict[str, str | None] = {f"p_{kind}": text for kind, (text, _) in PARTITIONS.items()}
    values |= {"p_binary": "aÿ", "p_day": "1969-12-31", "p_year": "1969", "p_month": "12"}
    statistics = {
        "numRecords": 10,
        "minValues": {f"v_{kind}": each[0] for kind, each in BOUNDS.items()},
        "maxValues": {f"v_{kind}": each[1] for kind, each in BOUNDS.items()},
        "nullCount": {f"v_{kind}": 1 for kind in BOUNDS},
    }
    files = files_of(
        tmp_path,
        metadata,
        {"partitionValues": values, "stats": statistics},
        {"partitionValues": dict.fromkeys(values)},
    )
    schema = target_schema(metadata, table="t", format_version=3, current=None, last_column_id=0)
    spec = partition_spec(metadata, schema, table="t")

    iceberg: Any = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    parsed = iceberg.SchemaParser.fromJson(json.dumps(schema.to_json()))
    assert json.loads(iceberg.SchemaParser.toJson(parsed)) == schema.to_json()
    bound = iceberg.PartitionSpecParser.fromJson(parsed, json.dumps(spec.to_json()))
    assert json.loads(iceberg.PartitionSpecParser.toJson(bound)) == spec.to_json()
    mapping = json.dumps(schema.name_mapping())
    names = iceberg.mapping.NameMappingParser.fromJson(mapping)
    nested = ["nested", "x", "element", "value", "y"]
    path = spark.sparkContext._gateway.new_array(spark._jvm.java.lang.String, 5)  # type: ignore[union-attr]
    for at, name in enumerate(nested):
        path[at] = name
    assert names.find(path).id() == parsed.findField(".".join(nested)).fieldId()

    known, unknown = (
        iceberg.ContentFileParser.fromJson(
            iceberg.util.JsonUtil.mapper().readTree(
                '{"spec-id":0,"content":"data","file-path":"f","file-format":"parquet",'
                f'"file-size-in-bytes":1,"record-count":10,"partition":{partition}'
                f"{',' if metric else ''}{metric}}}"
            ),
            {0: bound},
        )
        for partition, metric in zip(
            partition_json(files, spec).to_pylist(),
            metrics_json(files, schema).to_pylist(),
            strict=True,
        )
    )
    anything = spark._jvm.java.lang.Class.forName("java.lang.Object")  # type: ignore[union-attr]
    found = [known.partition().get(at, anything) for at in range(len(spec.fields))]
    count = len(PARTITIONS)
    assert found[:count] == [expected for _, expected in PARTITIONS.values()]
    assert found[count + 1 :] == [-1, 1969, 12, -1, -1]
    buffer = iceberg.util.ByteBuffers.toByteArray(known.partition().get(count, anything))
    assert bytes(buffer) == "aÿ".encode()
    assert all(unknown.partition().get(at, anything) is None for at in range(len(spec.fields)))

    conversions = iceberg.types.Conversions
    for kind, (_, _, low, high) in BOUNDS.items():
        field = parsed.findField(f"v_{kind}")
        assert known.valueCounts()[field.fieldId()] == 10
        assert known.nullValueCounts()[field.fieldId()] == 1
        for expected, stored in ((low, known.lowerBounds()), (high, known.upperBounds())):
            raw = stored.get(field.fieldId())
            value: Any = None if raw is None else conversions.fromByteBuffer(field.type(), raw)
            assert (value.toString() if kind == "string" else value) == expected, kind
    assert unknown.lowerBounds() is None


def test_iceberg_takes_ids_of_column_mapping_and_our_own(spark: SparkSession) -> None:
    metadata = metadata_of(
        mapped(5, "a", array(array("long"))),
        mapped(2, "m", of_map("string", "long"), None, {"key": 7, "value": 8}),
        mode="name",
    )
    schema = target_schema(metadata, table="t", format_version=3, current=None, last_column_id=0)
    iceberg: Any = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    parsed = iceberg.SchemaParser.fromJson(json.dumps(schema.to_json()))
    assert parsed.highestFieldId() == schema.last_column_id
    assert schema.is_same_as(json.loads(iceberg.SchemaParser.toJson(parsed)))
