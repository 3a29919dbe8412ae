"""The schema of a Delta table as an Iceberg schema, with field ids and name mapping.

Files of a table with column mapping have field ids, and the target uses these. Elements, keys and
values, to which Delta assigns no ids, get ids from a range that Delta never reaches: Delta's next
column gets the next id, whatever the target has used.

Without column mapping files have no ids. The target assigns its own, keeps them by name, and maps
the columns of files to them: https://iceberg.apache.org/spec/#name-mapping-serialization

List elements, map keys and map values are fields too, with ids of their own, named `element`,
`key` and `value`: https://iceberg.apache.org/spec/#schemas-and-data-types
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from delvec.conversion.schema.unsupported import convertible_schema
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.types import ArrayType, DataType, Field, PrimitiveType, StructType
from delvec.errors import FormatError, UnsupportedFeatureError

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


FIRST_OWN_ID: Final = 1_000_000_000
_LAST_ID: Final = 2**31 - 1 - 201  # ids above are reserved for Iceberg's metadata columns
_TYPES: Final = {
    "string": "string",
    "long": "long",
    "integer": "int",
    "short": "int",
    "byte": "int",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}


@dataclass(frozen=True)
class TargetSchema:
    """The columns of the target."""

    fields: tuple[TargetField, ...]
    last_column_id: int  # the highest that the table ever used
    # Full names of lists and maps that Iceberg cannot read from files with field ids, since their
    # elements, keys or values have none.
    nested_without_ids: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return Iceberg's JSON form; schemas are equal if it is."""
        fields = [field.to_json() for field in self.fields]
        return {"type": "struct", "schema-id": 0, "fields": fields}

    def is_same_as(self, current: Mapping[str, Any]) -> bool:
        others = [field.to_json() for field in parse_fields(current)]
        return others == [field.to_json() for field in self.fields]

    def name_mapping(self, current: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
        """Return the name mapping, the value of `schema.name-mapping.default`."""
        return name_mapping(self.fields, current)


def target_schema(
    metadata: Metadata,
    *,
    table: str,
    format_version: int,
    current: Mapping[str, Any] | None,
    last_column_id: int,
    mapping: Sequence[Mapping[str, Any]] = (),
) -> TargetSchema:
    if format_version not in (2, 3):
        raise UnsupportedFeatureError(
            f"{table} cannot be converted to version {format_version} of Iceberg's format",
            feature=f"format version {format_version}",
            needed_by=table,
            hint="use 2 or 3",
        )
    schema = convertible_schema(metadata, table)
    known = () if current is None else parse_fields(current)
    mapped = metadata.mapping_mode != "none"
    used = max([last_column_id, *(path[-1].id for path in walk_iceberg(known))])
    last = max(used, FIRST_OWN_ID - 1) if mapped else used
    ids = _Ids(table, known, last, dict(ids_by_path(mapping)), mapped=mapped)
    fields = tuple(ids.field(each, known) for each in schema.fields)
    found = TargetSchema(
        fields,
        max([last_column_id, *(path[-1].id for path in walk_iceberg(fields))]),
        tuple(ids.without_ids),
    )
    _require_ids(found, table)
    return found


def name_mapping(
    fields: tuple[TargetField, ...], current: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Return the mapping of physical names to ids.

    Iceberg accepts any physical name for `element`, `key` and `value`.
    """
    return _merged(fields, current, {path[-1].id for path in walk_iceberg(fields)})


def ids_by_path(
    mapping: Sequence[Mapping[str, Any]], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], int]]:
    for entry in mapping:
        for name in entry["names"]:
            path = (*above, name)
            if "field-id" in entry:
                yield path, entry["field-id"]
            yield from ids_by_path(entry.get("fields", ()), path)


def _merged(
    fields: tuple[TargetField, ...], current: Sequence[Mapping[str, Any]], used: set[int]
) -> list[dict[str, Any]]:
    old = {entry.get("field-id"): entry for entry in current}
    entries = []
    for field in fields:
        entry: dict[str, Any] = {"field-id": field.id, "names": [field.physical_name]}
        if inner := _merged(field.children, old.get(field.id, {}).get("fields", ()), used):
            entry["fields"] = inner
        entries.append(entry)
    taken = {field.physical_name for field in fields}
    return [*entries, *_dropped(current, used, taken)]


def _dropped(
    current: Sequence[Mapping[str, Any]], used: set[int], taken: set[str]
) -> Iterator[dict[str, Any]]:
    """Yield the entries of dropped columns."""
    for entry in current:
        # Iceberg joins names with dots and refuses two that are then equal.
        names = [name for name in entry["names"] if name not in taken and "." not in name]
        if names and "field-id" in entry and entry["field-id"] not in used:
            inner = list(_dropped(entry.get("fields", ()), used, set()))
            yield {"field-id": entry["field-id"], "names": names} | (
                {"fields": inner} if inner else {}
            )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a type is in the schema, and the nested ids of the nearest field of a struct."""

    name: str
    key: str
    path: tuple[str, ...]
    nested_ids: Mapping[str, Any]
    # Delta enforces NOT NULL in structs only; inside lists and maps there may be nulls anyway.
    is_checked: bool

    def inside(self, name: str) -> _Place:
        path = (*self.path, name)
        return _Place(f"{self.name}.{name}", f"{self.key}.{name}", path, self.nested_ids, False)


class _Ids:
    """Assigns ids to fields, outermost first."""

    def __init__(
        self,
        table: str,
        known: tuple[TargetField, ...],
        last: int,
        by_path: Mapping[tuple[str, ...], int],
        *,
        mapped: bool,
    ) -> None:
        self.table = table
        self.by_id = {path[-1].id: path[-1] for path in walk_iceberg(known)}
        self.by_path = by_path
        self.last = last
        self.mapped = mapped
        self.without_ids: list[str] = []

    def field(
        self, field: Field, siblings: tuple[TargetField, ...], above: _Place | None = None
    ) -> TargetField:
        """Convert a field of a struct; `siblings` are the target's fields of that struct."""
        place = _Place(
            f"{above.name}.{field.name}" if above else field.name,
            field.physical_name,
            (*(above.path if above else ()), field.physical_name),
            field.metadata.get("delta.columnMapping.nested.ids") or {},
            above.is_checked if above else True,
        )
        named = self.by_id.get(field.field_id or 0) if self.mapped else _named(siblings, field.name)
        known = _still(named, field.type)
        if self.mapped:
            number = self.delta_id(field, place)
        else:
            number = named.id if named else self.next(place.path)
        comment = field.metadata.get("comment")
        return TargetField(
            number,
            field.name,
            self.type(field.type, known, place),
            required=place.is_checked and not field.nullable,
            doc=None if comment is None else str(comment),
            physical_name=field.physical_name,
        )

    def next(self, path: tuple[str, ...]) -> int:
        """Return a free id: the one that the path once had, if possible."""
        number = self.by_path.get(path, 0)
        floor = FIRST_OWN_ID if self.mapped else 1
        if number >= floor and number not in self.by_id:
            return number
        self.last += 1
        return self.last

    def delta_id(self, field: Field, place: _Place) -> int:
        """Return the id of column mapping."""
        number = field.field_id
        if number is None or not 0 < number < FIRST_OWN_ID:
            raise FormatError(
                f"column {place.name!r} of {self.table}, which has column mapping, has no field id",
                expected=f"1 to {FIRST_OWN_ID - 1}",
                found=number,
            )
        return number

    def type(self, kind: DataType, known: TargetField | None, place: _Place) -> TargetType:
        """Convert a type; `known` is the target's field of that type."""
        siblings = known.children if known else ()
        if isinstance(kind, PrimitiveType):
            return _primitive(kind)
        if isinstance(kind, StructType):
            fields = (self.field(each, siblings, place) for each in kind.fields)
            return NestedType("struct", tuple(fields))
        if isinstance(kind, ArrayType):
            return NestedType("list", (self.child("element", kind.element, siblings, place),))
        key, value = (
            self.child(name, each, siblings, place)
            for name, each in (("key", kind.key), ("value", kind.value))
        )
        return NestedType("map", (key, value))

    def child(
        self, name: str, kind: DataType, siblings: tuple[TargetField, ...], place: _Place
    ) -> TargetField:
        known = _still(_named(siblings, name), kind)
        inside = place.inside(name)
        number = place.nested_ids.get(inside.key) if self.mapped else None
        if not isinstance(number, int):
            # Iceberg finds structs by the ids of their fields, and keys with their values.
            if self.mapped and name != "key" and not isinstance(kind, StructType):
                self.without_ids.append(place.name)
            # Delta may still assign an id from before column mapping was enabled.
            keeps = known and (not self.mapped or known.id >= FIRST_OWN_ID)
            number = known.id if known and keeps else self.next(inside.path)
        inner = self.type(kind, known, inside)
        return TargetField(number, name, inner, required=name == "key", physical_name=name)


def _named(fields: tuple[TargetField, ...], name: str) -> TargetField | None:
    return next((each for each in fields if each.name == name), None)


def _still(known: TargetField | None, kind: DataType) -> TargetField | None:
    """Return the target's field if its type can be promoted to the new one, or the other way.

    The target keeps the wider of the two, see `evolution.compatible_schema`.
    """
    if known is None:
        return None
    old, new = known.type, _outline(kind)
    return known if can_become(old, new) or can_become(new, old) else None


def _outline(kind: DataType) -> TargetType:
    if isinstance(kind, PrimitiveType):
        return _primitive(kind)
    if isinstance(kind, StructType):
        return NestedType("struct", ())
    return NestedType("list" if isinstance(kind, ArrayType) else "map", ())


def _primitive(kind: PrimitiveType) -> str:
    return "decimal({}, {})".format(*kind.decimal) if kind.decimal else _TYPES[kind.name]


def _require_ids(schema: TargetSchema, table: str) -> None:
    """Refuse ids that occur twice, or that Iceberg reserves."""
    seen: dict[int, str] = {}
    for path in walk_iceberg(schema.fields):
        number, name = path[-1].id, full_name(path)
        if number in seen or not 0 < number <= _LAST_ID:
            raise FormatError(
                f"column {name!r} of {table} has a field id that is not allowed",
                expected=f"another than that of {seen[number]!r}"
                if number in seen
                else f"1 to {_LAST_ID}",
                found=number,
            )
        seen[number] = name
