"""The ways through a nested schema: over all its fields, or along the path to one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from delvec.delta.schema.types import (
    ArrayType,
    DataType,
    Field,
    MapType,
    PrimitiveType,
    StructType,
    children,
)
from delvec.errors import InvalidArgumentError

_T = TypeVar("_T", bound="DataType")
_ITEMS_HINT: Final = (
    "paths lead into structs; into arrays by `element`, into maps by `key` and `value`"
)


def with_children(kind: _T, fields: Sequence[Field]) -> _T:
    """Return a type of the same kind around other fields, which are as `children` returns them."""
    if isinstance(kind, StructType):
        return replace(kind, fields=tuple(fields))
    if isinstance(kind, ArrayType):
        [element] = fields
        return replace(kind, element=element.type, contains_null=element.nullable)
    if isinstance(kind, MapType):
        key, value = fields
        return replace(kind, key=key.type, value=value.type, value_contains_null=value.nullable)
    return kind


def walk(kind: DataType, *, structs_only: bool = False) -> Iterator[tuple[Field, ...]]:
    """Yield the path of every struct's field, each before those inside of it.

    A path is the fields from the outermost to the one that it leads to. Inside of arrays and maps
    it leads through their `children`, unless `structs_only` keeps it out of them.

    >>> kind = StructType((Field("b", PrimitiveType("long")),))
    >>> [".".join(f.name for f in p) for p in walk(StructType((Field("a", ArrayType(kind)),)))]
    ['a', 'a.element.b']
    """
    for child in children(kind):
        if isinstance(kind, StructType):
            yield (child,)
        if not structs_only or isinstance(child.type, StructType):
            for path in walk(child.type, structs_only=structs_only):
                yield (child, *path)


def all_fields(kind: DataType) -> Iterator[Field]:
    """Yield the fields of all structs, each before those inside of it."""
    return (path[-1] for path in walk(kind))


def primitives(kind: DataType) -> Iterator[PrimitiveType]:
    """Yield the primitive types of a field's own values, through arrays and maps, not structs."""
    if isinstance(kind, PrimitiveType):
        yield kind
    elif not isinstance(kind, StructType):
        for child in children(kind):
            yield from primitives(child.type)


def is_void(field: Field) -> bool:
    """Tell whether a column has no type, nor any of its fields: data files omit it."""
    if isinstance(field.type, StructType):
        return all(map(is_void, field.type.fields))
    return field.type == PrimitiveType("void")


def without_void(kind: DataType) -> DataType:
    """Return a type as data files have it, without the fields of structs that have no type."""
    if not isinstance(kind, StructType):
        return kind
    fields = [replace(f, type=without_void(f.type)) for f in kind.fields if not is_void(f)]
    return replace(kind, fields=tuple(fields))


def nullable(kind: _T) -> _T:
    """Return a type that takes null at every level: fields, elements of arrays, values of maps.

    >>> nullable(StructType((Field("a", ArrayType(PrimitiveType("long"), False), False),)))
    StructType(fields=(Field(name='a', type=ArrayType(..., contains_null=True), nullable=True, ...
    """
    fields = [replace(each, type=nullable(each.type), nullable=True) for each in children(kind)]
    return with_children(kind, fields)


def map_fields(schema: StructType, change: Callable[[Field], Field]) -> StructType:
    """Return a schema in which all fields are changed, each before those inside of it."""

    def changed(field: Field) -> Field:
        new = change(field)
        return replace(new, type=inside(new.type))

    def inside(kind: DataType) -> DataType:
        if isinstance(kind, StructType):
            return map_fields(kind, change)
        fields = [replace(each, type=inside(each.type)) for each in children(kind)]
        return with_children(kind, fields)

    return with_children(schema, [changed(each) for each in schema.fields])


def change_struct(
    schema: StructType, path: Sequence[str], change: Callable[[StructType], StructType]
) -> StructType:
    def inside(kind: _T, steps: Sequence[Field]) -> _T:
        if steps:
            new = replace(steps[0], type=inside(steps[0].type, steps[1:]))
            return with_children(kind, [new if f.name == new.name else f for f in children(kind)])
        if not isinstance(kind, StructType):
            raise InvalidArgumentError(
                f"column {'.'.join(path)} is of type {kind}: it has no fields", hint=_ITEMS_HINT
            )
        return with_children(kind, change(kind).fields)

    return inside(schema, resolve(schema, path))


def resolve(
    schema: StructType, path: Sequence[str], *, structs_only: bool = False
) -> tuple[Field, ...]:
    """Return the fields on a path, each found as Spark does (see `StructType.field`)."""
    found: list[Field] = []
    kind: DataType = schema
    for name in path:
        items = () if structs_only else children(kind)
        inner = (
            kind.field(name)
            if isinstance(kind, StructType)
            else next((each for each in items if each.name == name.lower()), None)
        )
        if inner is None:
            raise InvalidArgumentError(
                f"column {'.'.join(each.name for each in found)} is of type {kind}:"
                f" there is no {name!r} in it",
                hint=None if structs_only else _ITEMS_HINT,
            )
        found.append(inner)
        kind = inner.type
    return tuple(found)


def find(
    schema: StructType, path: Sequence[str], *, physical: bool = False
) -> tuple[Field, ...] | None:
    """Return the fields on a path of exact names through structs, or None if there is none.

    With `physical` the names are those that data files have.
    """
    found: list[Field] = []
    kind: DataType = schema
    for name in path:
        fields = kind.fields if isinstance(kind, StructType) else ()
        field = next((f for f in fields if (f.physical_name if physical else f.name) == name), None)
        if field is None:
            return None
        found.append(field)
        kind = field.type
    return tuple(found)
