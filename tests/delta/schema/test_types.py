"""Schemas: Spark's JSON form, column mapping, the Arrow types, and the ways through nested ones."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark_types

from delvec.delta.schema.traversal import (
    change_struct,
    find,
    map_fields,
    nullable,
    primitives,
    resolve,
    walk,
    with_children,
)
from delvec.delta.schema.types import (
    ArrayType,
    Field,
    MapType,
    PrimitiveType,
    StructType,
    arrow_type,
    children,
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
    assert (schema.field("id").name, schema.field("Id").name) == ("id", "Id")
    assert schema.field("NAME").name == "Name"
    with pytest.raises(InvalidArgumentError, match="ambiguous: id, Id"):
        schema.field("ID")
    with pytest.raises(InvalidArgumentError, match=r"no column 'nam'.*(?s:.)Hint: did you mean"):
        schema.field("nam")


LONG = PrimitiveType("long")
STRING = PrimitiveType("string")
INNER = StructType((Field("x", LONG, nullable=False), Field("Y", STRING, physical_name="col-y")))
SCHEMA = StructType(
    (
        Field("id", LONG),
        Field("s", INNER, physical_name="col-s"),
        Field("a", ArrayType(ArrayType(INNER, contains_null=False))),
        Field("m", MapType(INNER, LONG, value_contains_null=False)),
    )
)


def names(path: tuple[Field, ...]) -> str:
    return ".".join(field.name for field in path)


def test_a_walk_reaches_the_fields_of_all_structs_each_before_its_own() -> None:
    assert [names(path) for path in walk(SCHEMA)] == [
        *("id", "s", "s.x", "s.Y"),
        *("a", "a.element.element.x", "a.element.element.Y"),
        *("m", "m.key.x", "m.key.Y"),
    ]
    through_structs = ["id", "s", "s.x", "s.Y", "a", "m"]
    assert [names(path) for path in walk(SCHEMA, structs_only=True)] == through_structs
    assert not list(walk(LONG))
    assert list(primitives(MapType(STRING, ArrayType(LONG)))) == [STRING, LONG]
    assert not list(primitives(ArrayType(INNER)))
    for field in SCHEMA.fields:
        assert with_children(field.type, children(field.type)) == field.type


def test_null_is_taken_at_every_level() -> None:
    changed = nullable(SCHEMA)
    assert str(changed) == str(SCHEMA)
    assert all(path[-1].nullable for path in walk(changed))
    assert changed.field("a").type == ArrayType(ArrayType(nullable(INNER)))
    assert changed.field("m").type == MapType(nullable(INNER), LONG)
    assert changed.field("s").physical_name == "col-s"


def test_all_fields_are_changed_and_all_else_is_kept() -> None:
    seen: list[str] = []

    def upper(field: Field) -> Field:
        seen.append(field.name)
        return replace(field, name=field.name.upper())

    changed = map_fields(SCHEMA, upper)
    assert seen == [path[-1].name for path in walk(SCHEMA)]
    assert [names(path[-1:]) for path in walk(changed)] == [name.upper() for name in seen]
    assert map_fields(changed, lambda field: replace(field, name="n")) == map_fields(
        SCHEMA, lambda field: replace(field, name="n")
    )


def test_paths_are_resolved_as_spark_does() -> None:
    assert names(resolve(SCHEMA, ("S", "y"))) == "s.Y"
    assert names(resolve(SCHEMA, ("a", "ELEMENT", "element", "X"))) == "a.element.element.x"
    no_element = r"column a is of type .*: there is no .element."
    with pytest.raises(InvalidArgumentError, match=no_element):
        resolve(SCHEMA, ("a", "element"), structs_only=True)
    with pytest.raises(InvalidArgumentError, match="into maps by `key` and `value`"):
        resolve(SCHEMA, ("m", "item"))
    with pytest.raises(InvalidArgumentError, match="there is no column 'z'"):
        resolve(SCHEMA, ("s", "z"))


def test_exact_names_are_found_or_not() -> None:
    found = find(SCHEMA, ("col-s", "col-y"), physical=True)
    assert found is not None
    assert (names(found), find(SCHEMA, ("s", "Y"))) == ("s.Y", found)
    for absent in (("S",), ("s", "y"), ("a", "element"), ("id", "x")):
        assert find(SCHEMA, absent) is None


def test_the_struct_at_a_path_is_changed() -> None:
    def first(struct: StructType) -> StructType:
        return StructType(struct.fields[:1])

    changed = change_struct(SCHEMA, ("M", "key"), first)
    assert [names(path) for path in walk(changed)][-2:] == ["m", "m.key.x"]
    assert changed.fields[:3] == SCHEMA.fields[:3]
    assert change_struct(SCHEMA, (), first).names == ("id",)
    with pytest.raises(InvalidArgumentError, match="column id is of type long: it has no fields"):
        change_struct(SCHEMA, ("id",), first)
