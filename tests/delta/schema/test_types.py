"""`delvec.delta.schema.types`: Spark's JSON form, column mapping, and the Arrow types."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types

from delvec.delta.schema.types import (
    ArrayType,
    Field,
    MapType,
    PrimitiveType,
    StructType,
    arrow_type,
    parse_schema,
)
from delvec.errors import FormatError, InvalidArgumentError, UnsupportedFeatureError

PRIMITIVES = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal(38,18)": pa.decimal128(38, 18),
    "variant": pa.struct([("value", pa.binary()), ("metadata", pa.binary())]),
    "void": pa.null(),
}


def json_field(name: str, kind: object, **more: object) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}, **more}


def mapped(name: str, kind: object, number: object, physical: object = None) -> dict[str, Any]:
    return json_field(
        name,
        kind,
        metadata={
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": physical or f"col-{number}",
        },
    )


def text(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": fields})


def test_every_primitive_has_an_arrow_type() -> None:
    schema = parse_schema(text(*(json_field(name, name) for name in PRIMITIVES)))
    assert pa.schema(list(arrow_type(schema))) == pa.schema(list(PRIMITIVES.items()))


def test_nested_types_keep_what_may_be_null() -> None:
    schema = parse_schema(
        text(
            json_field(
                "m",
                {
                    "type": "map",
                    "keyType": "string",
                    "valueType": {
                        "type": "array",
                        "elementType": {"type": "struct", "fields": [json_field("x", "long")]},
                        "containsNull": False,
                    },
                    "valueContainsNull": True,
                },
                nullable=False,
            )
        )
    )
    inner = StructType((Field("x", PrimitiveType("long")),))
    assert schema.fields[0].type == MapType(
        PrimitiveType("string"), ArrayType(inner, contains_null=False), value_contains_null=True
    )
    element = pa.field("element", pa.struct([("x", pa.int64())]), nullable=False)
    value = pa.field("value", pa.list_(element))
    expected = pa.map_(pa.field("key", pa.string(), nullable=False), value)
    assert pa.schema(list(arrow_type(schema))) == pa.schema(
        [pa.field("m", expected, nullable=False)]
    )
    assert str(schema) == "struct<m:map<string,array<struct<x:long>>>>"


def test_the_json_form_survives_a_round_trip_and_spark_reads_it() -> None:
    spark = spark_types.StructType(
        [
            spark_types.StructField("a", spark_types.DecimalType(10, 2), False, {"comment": "hé"}),
            spark_types.StructField(
                "b",
                spark_types.ArrayType(
                    spark_types.MapType(spark_types.StringType(), spark_types.VariantType(), False)
                ),
            ),
            spark_types.StructField(
                "c",
                spark_types.StructType(
                    [spark_types.StructField("t", spark_types.TimestampNTZType())]
                ),
            ),
            spark_types.StructField("n", spark_types.NullType()),
        ]
    )
    schema = parse_schema(spark.json())
    assert spark_types.StructType.fromJson(schema.to_json()) == spark
    assert parse_schema(json.dumps(schema.to_json())) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema  # noqa: S301
    assert hash(schema) == hash(parse_schema(spark.json()))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping_gives_physical_names_and_ids_at_every_level(mode: Any) -> None:  # noqa: ANN401
    source = text(mapped("s", {"type": "struct", "fields": [mapped("x", "long", 7)]}, 3))
    schema = parse_schema(source, mode)
    (field,) = schema.fields
    assert isinstance(field.type, StructType)
    assert [(each.physical_name, each.field_id) for each in (field, *field.type.fields)] == [
        ("col-3", 3),
        ("col-7", 7),
    ]
    assert json.dumps(schema.to_json()) == source
    plain = parse_schema(source)
    assert (plain.fields[0].physical_name, plain.fields[0].field_id) == ("s", None)


def test_old_spellings_are_understood() -> None:
    schema = parse_schema(
        text(
            {"name": "d", "type": "decimal"},
            {"name": "n", "type": "null"},
            {"name": "p", "type": "decimal( 5 , 2 )"},
            {"name": "u", "type": {"type": "udt", "class": "x.Point", "sqlType": "double"}},
        )
    )
    assert [str(field.type) for field in schema.fields] == [
        "decimal(10,0)",
        "void",
        "decimal(5,2)",
        "double",
    ]
    assert all(field.nullable for field in schema.fields)


@pytest.mark.parametrize(
    ("source", "mode"),
    [
        ("", "none"),
        ("[]", "none"),
        ('"long"', "none"),
        ("[" * 100_000, "none"),
        ('{"type":"struct"}', "none"),
        (text({"type": "long"}), "none"),
        (text({"name": "", "type": "long"}), "none"),
        (text({"name": "a"}), "none"),
        (text(json_field("a", "long", nullable="yes")), "none"),
        (text(json_field("a", "long", metadata=[1])), "none"),
        (text(json_field("a", "decimal(39,0)")), "none"),
        (text(json_field("a", "decimal(5,6)")), "none"),
        (text(json_field("a", "decimal(5,-1)")), "none"),
        (text(json_field("a", {"type": "array", "containsNull": True})), "none"),
        (text(json_field("a", "long"), json_field("a", "long")), "none"),
        (text(mapped("a", "long", 1), mapped("b", "long", 1, "x")), "id"),
        (text(mapped("a", "long", 1, "x"), mapped("b", "long", 2, "x")), "name"),
        (text(json_field("a", "long")), "name"),
        (text(mapped("a", "long", "1")), "id"),
        (text(mapped("a", "long", None, "x")), "id"),
    ],
)
def test_what_is_no_schema_is_refused(source: str, mode: Any) -> None:  # noqa: ANN401
    with pytest.raises(FormatError):
        parse_schema(source, mode)


@pytest.mark.parametrize(
    "kind", ["geometry(4326)", "interval day", "long collate x", {"type": "x"}]
)
def test_a_type_from_the_future_is_named(kind: object) -> None:
    with pytest.raises(UnsupportedFeatureError, match="column 'a' has a type"):
        parse_schema(text(json_field("a", kind)))
    with pytest.raises(UnsupportedFeatureError, match="mode 'other'"):
        parse_schema(text(), "other")  # type: ignore[arg-type]


def test_a_column_is_found_as_spark_finds_it() -> None:
    schema = parse_schema(text(*(json_field(name, "long") for name in ("id", "Id", "Name"))))
    assert schema.field("id").name == "id"
    assert schema.field("Id").name == "Id"
    assert schema.field("NAME").name == "Name"
    with pytest.raises(InvalidArgumentError, match="ambiguous: id, Id"):
        schema.field("ID")
    with pytest.raises(InvalidArgumentError, match=r"no column 'nam'.*(?s:.)Hint: did you mean"):
        schema.field("nam")
