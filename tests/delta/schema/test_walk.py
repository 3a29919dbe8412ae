"""The ways through a nested schema."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
from delvec.delta.schema.types import ArrayType, Field, MapType, PrimitiveType, StructType, children
from delvec.errors import InvalidArgumentError

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
    assert names(found) == "s.Y"
    assert find(SCHEMA, ("s", "Y")) == found
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
