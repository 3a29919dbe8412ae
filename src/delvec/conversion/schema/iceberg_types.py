"""Fields of an Iceberg schema: ids, names and types, parsed from and written to JSON.

List elements, map keys and map values are fields too, with ids of their own, named `element`,
`key` and `value`.

Specification: https://iceberg.apache.org/spec/#schemas-and-data-types
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

_DECIMAL: Final = re.compile(r"decimal\(([0-9]+), ?([0-9]+)\)")
_WIDER: Final = {("int", "long"), ("float", "double")}


@dataclass(frozen=True, slots=True)
class NestedType:
    """A struct, a list (its one field is the element) or a map (key and value)."""

    kind: Literal["struct", "list", "map"]
    fields: tuple[TargetField, ...]

    def __str__(self) -> str:
        return f"{self.kind}<{', '.join(f'{each.name}: {each.type}' for each in self.fields)}>"

    def to_json(self) -> dict[str, Any]:
        """Return Iceberg's JSON form."""
        if self.kind == "struct":
            return {"type": "struct", "fields": [each.to_json() for each in self.fields]}
        value: dict[str, Any] = {"type": self.kind}
        for each in self.fields:
            value[f"{each.name}-id"] = each.id
            value[each.name] = _type_to_json(each.type)
            if each.name != "key":
                value[f"{each.name}-required"] = each.required
        return value


TargetType: TypeAlias = str | NestedType


@dataclass(frozen=True, slots=True)
class TargetField:
    """A column, a field of a struct, a list's element, or a map's key or value."""

    id: int
    name: str
    type: TargetType
    required: bool
    doc: str | None = None
    physical_name: str = ""  # in data files

    @property
    def children(self) -> tuple[TargetField, ...]:
        return self.type.fields if isinstance(self.type, NestedType) else ()

    def to_json(self) -> dict[str, Any]:
        """Return Iceberg's JSON form of a field in a struct."""
        value = {
            "id": self.id,
            "name": self.name,
            "required": self.required,
            "type": _type_to_json(self.type),
        }
        return value if self.doc is None else {**value, "doc": self.doc}


def parse_fields(value: Mapping[str, Any]) -> tuple[TargetField, ...]:
    """Return the fields of a struct, such as a schema, from Iceberg's JSON form."""
    return tuple(
        TargetField(
            each["id"], each["name"], _parse_type(each["type"]), each["required"], each.get("doc")
        )
        for each in value["fields"]
    )


def walk_iceberg(
    fields: tuple[TargetField, ...], above: tuple[TargetField, ...] = ()
) -> Iterator[tuple[TargetField, ...]]:
    """Yield the path of each field: the fields that contain it, outermost first, and itself."""
    for field in fields:
        yield (*above, field)
        yield from walk_iceberg(field.children, (*above, field))


def full_name(path: tuple[TargetField, ...]) -> str:
    """Return the name of a field as messages have it, by its path."""
    return ".".join(each.name for each in path)


def can_become(old: TargetType, new: TargetType) -> bool:
    """Tell whether Iceberg can promote a type to another; nested types only need the same kind.

    >>> can_become("int", "long"), can_become("decimal(5, 2)", "decimal(9, 2)")
    (True, True)
    >>> can_become("int", "double"), can_become("decimal(5, 2)", "decimal(9, 3)")
    (False, False)
    """
    if isinstance(old, NestedType) or isinstance(new, NestedType):
        kinds = [each.kind if isinstance(each, NestedType) else each for each in (old, new)]
        return kinds[0] == kinds[1]
    if old == new or (old, new) in _WIDER:
        return True
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    return bool(before and after and before[2] == after[2] and int(before[1]) <= int(after[1]))


def _parse_type(value: str | Mapping[str, Any]) -> TargetType:
    if isinstance(value, str):
        return value
    if value["type"] == "struct":
        return NestedType("struct", parse_fields(value))
    if value["type"] == "list":
        return NestedType("list", (_parse_child(value, "element"),))
    return NestedType("map", (_parse_child(value, "key"), _parse_child(value, "value")))


def _parse_child(value: Mapping[str, Any], name: str) -> TargetField:
    required = name == "key" or value[f"{name}-required"]
    return TargetField(value[f"{name}-id"], name, _parse_type(value[name]), required)


def _type_to_json(kind: TargetType) -> str | dict[str, Any]:
    return kind.to_json() if isinstance(kind, NestedType) else kind
