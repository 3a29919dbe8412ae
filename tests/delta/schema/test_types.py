"""Schemas: Spark's JSON form, column mapping, the Arrow types, and the ways through nested ones."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from delvec.delta.schema import types
from delvec.delta.schema.traversal import (
    change_struct,
    nullable,
    primitives,
    resolve,
    walk,
    with_children,
)
from delvec.errors import FormatError, InvalidArgumentError, UnsupportedFeatureError
from tests.delta.builder import field_of, struct_of
from tests.delta.builder import mapped_field as mapped

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
    return field_of(name, kind) | more


def text(*fields: dict[str, Any]) -> str:
    return json.dumps(struct_of(*fields))


def test_every_primitive_has_an_arrow_type() -> None:
    schema = types.parse_schema(text(*(json_field(name, name) for name in PRIMITIVES)))
    assert pa.schema(list(types.arrow_type(schema))) == pa.schema(list(PRIMITIVES.items()))


def test_nested_types_keep_what_may_be_null() -> None:
    struct = struct_of(field_of("x", "long"))
    array = {"type": "array", "elementType": struct, "containsNull": False}
    pairs = {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": True}
    schema = types.parse_schema(text(json_field("m", pairs, nullable=False)))
    items = types.ArrayType(types.StructType((types.Field("x", LONG),)), contains_null=False)
    assert schema.fields[0].type == types.MapType(STRING, items, value_contains_null=True)
    element = pa.field("element", pa.struct([("x", pa.int64())]), nullable=False)
    value = pa.field("value", pa.list_(element))
    expected = pa.map_(pa.field("key", pa.string(), nullable=False), value)
    stored = pa.schema([pa.field("m", expected, nullable=False)])
    assert pa.schema(list(types.arrow_type(schema))) == stored
    assert str(schema) == "struct<m:map<string,array<struct<x:long>>>>"


def test_the_json_form_survives_a_round_trip_and_spark_reads_it() -> None:
    inner = spark.MapType(spark.StringType(), spark.VariantType(), False)
    original = (
        spark.StructType()
        .add("a", spark.DecimalType(10, 2), False, {"comment": "hé"})
        .add("b", spark.ArrayType(inner))
        .add("c", spark.StructType().add("t", spark.TimestampNTZType()))
        .add("n", spark.NullType())
    )
    schema = types.parse_schema(original.json())
    assert spark.StructType.fromJson(schema.to_json()) == original
    assert types.parse_schema(json.dumps(schema.to_json())) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema  # noqa: S301
    assert hash(schema) == hash(types.parse_schema(original.json()))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping_gives_physical_names_and_ids_at_every_level(mode: Any) -> None:  # noqa: ANN401
    source = text(mapped("s", struct_of(mapped("x", "long", 7)), 3))
    schema = types.parse_schema(source, mode)
    (field,) = schema.fields
    assert isinstance(field.type, types.StructType)
    found = [(each.physical_name, each.field_id) for each in (field, *field.type.fields)]
    assert (found, json.dumps(schema.to_json())) == ([("col-3", 3), ("col-7", 7)], source)
    plain = types.parse_schema(source)
    assert (plain.fields[0].physical_name, plain.fields[0].field_id) == ("s", None)


def test_old_spellings_are_understood() -> None:
    point = {"type": "udt", "class": "x.Point", "sqlType": "double"}
    kinds = {"d": "decimal", "n": "null", "p": "decimal( 5 , 2 )", "u": point}
    schema = types.parse_schema(text(*({"name": name, "type": kinds[name]} for name in kinds)))
    found = [str(field.type) for field in schema.fields]
    assert found == ["decimal(10,0)", "void", "decimal(5,2)", "double"]
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
        types.parse_schema(source, mode)


@pytest.mark.parametrize(
    "kind", ["geometry(4326)", "interval day", "long collate x", {"type": "x"}]
)
def test_a_type_from_the_future_is_named(kind: object) -> None:
    with pytest.raises(UnsupportedFeatureError, match="column 'a' has a type"):
        types.parse_schema(text(json_field("a", kind)))
    with pytest.raises(UnsupportedFeatureError, match="mode 'other'"):
        types.parse_schema(text(), "other")  # type: ignore[arg-type]


def test_a_column_is_found_as_spark_finds_it() -> None:
    schema = types.parse_schema(text(*(json_field(name, "long") for name in ("id", "Id", "Name"))))
    assert (schema.field("id").name, schema.field("Id").name) == ("id", "Id")
    assert schema.field("NAME").name == "Name"
    with pytest.raises(InvalidArgumentError, match="ambiguous: id, Id"):
        schema.field("ID")
    with pytest.raises(InvalidArgumentError, match=r"no column 'nam'.*(?s:.)Hint: did you mean"):
        schema.field("nam")


LONG = types.PrimitiveType("long")
STRING = types.PrimitiveType("string")
INNER = types.StructType(
    (types.Field("x", LONG, nullable=False), types.Field("Y", STRING, physical_name="col-y"))
)
SCHEMA = types.StructType(
    (
        types.Field("id", LONG),
        types.Field("s", INNER, physical_name="col-s"),
        types.Field("a", types.ArrayType(types.ArrayType(INNER, contains_null=False))),
        types.Field("m", types.MapType(INNER, LONG, value_contains_null=False)),
    )
)


def names(path: tuple[types.Field, ...]) -> str:
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
    assert list(primitives(types.MapType(STRING, types.ArrayType(LONG)))) == [STRING, LONG]
    assert not list(primitives(types.ArrayType(INNER)))
    for field in SCHEMA.fields:
        assert with_children(field.type, types.children(field.type)) == field.type


def test_null_is_taken_at_every_level() -> None:
    changed = nullable(SCHEMA)
    assert str(changed) == str(SCHEMA)
    assert all(path[-1].nullable for path in walk(changed))
    assert changed.field("a").type == types.ArrayType(types.ArrayType(nullable(INNER)))
    assert changed.field("m").type == types.MapType(nullable(INNER), LONG)
    assert changed.field("s").physical_name == "col-s"


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


def test_the_struct_at_a_path_is_changed() -> None:
    def first(struct: types.StructType) -> types.StructType:
        return types.StructType(struct.fields[:1])

    changed = change_struct(SCHEMA, ("M", "key"), first)
    assert [names(path) for path in walk(changed)][-2:] == ["m", "m.key.x"]
    assert changed.fields[:3] == SCHEMA.fields[:3]
    assert change_struct(SCHEMA, (), first).names == ("id",)
    with pytest.raises(InvalidArgumentError, match="column id is of type long: it has no fields"):
        change_struct(SCHEMA, ("id",), first)
