"""Columns added, renamed, dropped and mapped to physical names; no data file is rewritten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, zip_longest
from typing import Final
from uuid import uuid4

from delvec.delta.alter.table_state import TableState, require_no_collations, require_valid_schema
from delvec.delta.schema import expressions, traversal
from delvec.delta.schema.column_metadata import TYPE_CHANGES, can_widen, with_type_changes
from delvec.delta.schema.metadata import Property, property_number
from delvec.delta.schema.types import (
    FIELD_ID,
    PHYSICAL_NAME,
    ArrayType,
    DataType,
    Field,
    MapType,
    PrimitiveType,
    StructType,
    parse_schema,
)
from delvec.errors import FormatError, InvalidArgumentError, UnsupportedFeatureError
from delvec.identifiers import split_path
from delvec.report.hints import Wording

_KEYS: Final = "delta.columnMapping."
_LARGEST_ID: Final = 2**31 - 1
_EXPRESSIONS: Final = (expressions.CURRENT_DEFAULT, expressions.GENERATION, expressions.INVARIANT)
# Both at once, so that it is right whether the protocol has the feature or not.
_FEATURE: Final = "delta.feature.columnMapping"
_MAPPED: Final = Wording(
    f'switch column mapping on: set_properties({{"{_FEATURE}": "supported",'
    f' "{Property.MAPPING_MODE}": "name"}})',
    f"switch column mapping on: `delvec properties TABLE --set {_FEATURE}=supported --set"
    f" {Property.MAPPING_MODE}=name`",
)


@dataclass(frozen=True)
class Place:
    """A place among columns: behind the one that is named, or the first."""

    after: str | None = None

    def __str__(self) -> str:
        return "FIRST" if self.after is None else f"AFTER {self.after}"

    def put(self, field: Field, others: Sequence[Field]) -> tuple[Field, ...]:
        """Return fields with one more at this place."""
        before = 0
        if self.after is not None:
            neighbour = StructType(tuple(others)).field(self.after)
            before = list(others).index(neighbour) + 1
        return (*others[:before], field, *others[before:])


def add_columns(
    state: TableState, fields: Sequence[Field], places: Sequence[Place | None] = ()
) -> TableState:
    """Add columns; the name `a.b` adds the field `b` to the struct `a`.

    Without a place of its own a column becomes the last one.
    """
    schema = state.schema
    for field, place in zip_longest(fields, places):
        *parents, name = split_path(field.name)
        _require_plain(field)
        new = _new_column(replace(field, name=name, physical_name=name))
        schema = traversal.change_struct(schema, parents, partial(_with_field, new, place))
    return finished(state, schema)


def rename_column(state: TableState, old: str, new: str) -> TableState:
    """Rename a column or a field of a struct; its physical name stays."""
    *parents, name = _existing(state, old, "renamed")

    def renamed(struct: StructType) -> StructType:
        field = struct.field(name)
        taken = [each.name for each in struct.fields if each is not field]
        if new.lower() in (each.lower() for each in taken):
            raise InvalidArgumentError(f"there is a column {new!r} already")
        fields = [replace(each, name=new) if each is field else each for each in struct.fields]
        return StructType(tuple(fields))

    schema = traversal.change_struct(state.schema, parents, renamed)
    partitions = tuple(
        new if not parents and each.lower() == name.lower() else each
        for each in state.metadata.partition_columns
    )
    metadata = replace(state.metadata, partition_columns=partitions)
    return finished(replace(state, metadata=metadata), schema)


def drop_column(state: TableState, name: str) -> TableState:
    """Drop a column or a field of a struct; its values stay in the data files."""
    *parents, last = _existing(state, name, "dropped")
    if not parents and last.lower() in (each.lower() for each in state.metadata.partition_columns):
        raise InvalidArgumentError(f"{name} cannot be dropped: the table is partitioned by it")
    found = traversal.resolve(state.schema, (*parents, last))
    physical = tuple(each.physical_name for each in found)
    if any(path[: len(physical)] == physical for path in state.clustering):
        raise InvalidArgumentError(
            f"{name} cannot be dropped: the table is clustered by it",
            hint="cluster the table by other columns first: ALTER TABLE ... CLUSTER BY",
        )

    def dropped(struct: StructType) -> StructType:
        field = struct.field(last)
        kept = tuple(each for each in struct.fields if each is not field)
        if not kept:
            raise InvalidArgumentError(f"{name} cannot be dropped: it is the only one")
        return StructType(kept)

    return finished(state, traversal.change_struct(state.schema, parents, dropped))


def evolve_schema(state: TableState, incoming: StructType) -> TableState:
    """Add the columns and fields that only incoming rows have, at the end and nullable.

    Types become those of incoming rows where the table has type widening enabled and they are
    wider. Else they stay, and writing casts the values or refuses to.
    """
    widens = state.metadata.is_on(Property.ENABLE_TYPE_WIDENING) and (
        "typeWidening" in state.protocol.supported
    )
    schema = _merged(state.schema, incoming, "", widens=widens)
    if widens:
        require_unnamed(state, schema)
    return finished(state, schema)


def assign_column_ids(state: TableState, *, keep_names: bool = False) -> TableState:
    """Assign an id and a physical name to each field without, if column mapping is on."""
    if state.metadata.mapping_mode == "none":
        return state
    # Not `state.schema`: that would demand the ids which new fields do not have yet.
    schema = parse_schema(state.metadata.schema_string)
    known = property_number(state.metadata.configuration, Property.MAX_COLUMN_ID, 0, _LARGEST_ID)
    highest = max([known, *map(_id_of, traversal.all_fields(schema))])

    def with_id(field: Field) -> Field:
        nonlocal highest
        if FIELD_ID in field.metadata and PHYSICAL_NAME in field.metadata:
            return field
        highest += 1
        name = field.name if keep_names else f"col-{uuid4()}"
        ids = {FIELD_ID: highest, PHYSICAL_NAME: name}
        return replace(field, metadata={**field.metadata, **ids})

    schema = traversal.map_fields(schema, with_id)
    properties = {**state.metadata.configuration, Property.MAX_COLUMN_ID: str(highest)}
    return state.with_schema(schema).with_properties(properties)


def without_mapping(schema: StructType) -> StructType:
    """Return a schema without the ids and physical names of another table."""

    def plain(field: Field) -> Field:
        kept = {key: value for key, value in field.metadata.items() if not key.startswith(_KEYS)}
        return replace(field, metadata=kept, physical_name=field.name, field_id=None)

    return traversal.map_fields(schema, plain)


def _id_of(field: Field) -> int:
    found = field.metadata.get(FIELD_ID, 0)
    if type(found) is not int or not 0 <= found <= _LARGEST_ID:
        raise FormatError(f"column {field.name} has an id that is none", found=repr(found)[:40])
    return found


def require_unnamed(state: TableState, schema: StructType) -> None:
    """Refuse to widen a column that is generated, or that a constraint or another one names."""
    old = traversal.walk(state.schema)
    before = {_dotted(path): path[-1].metadata.get(TYPE_CHANGES) for path in old}
    for path in traversal.walk(schema):
        name = _dotted(path)
        if path[-1].metadata.get(TYPE_CHANGES) == before.get(name):
            continue
        hint = "cast its values to the type of the column"
        if expressions.GENERATION in path[0].metadata:
            raise InvalidArgumentError(
                f"column {name} cannot be widened: it is generated, by an expression of its type:"
                f" {path[0].metadata[expressions.GENERATION]}",
                hint=hint,
            )
        for holder, expression in _expressions(state):
            is_named = _words(path) <= expressions.names_in(expression)
            if is_named and Property.STATS_COLUMNS not in holder:
                raise InvalidArgumentError(
                    f"column {name} cannot be widened: {holder} names it: {expression}", hint=hint
                )


def _dotted(path: Sequence[Field]) -> str:
    return ".".join(each.name for each in path)


def _words(path: Sequence[Field]) -> set[str]:
    """Return the words that SQL has for a path; it has none for the steps into arrays and maps."""
    inner = {
        field.name.lower() for above, field in pairwise(path) if isinstance(above.type, StructType)
    }
    return {path[0].name.lower()} | inner


def finished(state: TableState, schema: StructType) -> TableState:
    """Return the state of a table with another schema, and what that needs; refuse a wrong one."""
    if schema == state.schema:
        return state
    changed = assign_column_ids(state.with_schema(schema))
    require_valid_schema(changed.metadata)
    require_no_collations(changed.schema, state.schema)
    return changed.upgraded(state)


def _require_plain(field: Field) -> None:
    if not field.nullable:
        raise InvalidArgumentError(
            f"column {field.name} is NOT NULL, and existing rows have no value for it",
            hint="add it as nullable",
        )
    own = [key for key in field.metadata if _is_expression(key)]
    if own:
        raise InvalidArgumentError(
            f"column {field.name} has {own[0]}, which existing rows would not follow",
            hint="columns with expressions can only be defined when the table is created",
        )


def _is_expression(key: str) -> bool:
    return key in _EXPRESSIONS or key.startswith(expressions.IDENTITY)


def _new_column(field: Field) -> Field:
    """Return a field as a new column: nullable at every level, without expressions and ids."""

    def plain(each: Field) -> Field:
        kept = {key: value for key, value in each.metadata.items() if not _is_expression(key)}
        return replace(each, metadata=kept)

    alone = traversal.map_fields(traversal.nullable(StructType((field,))), plain)
    return without_mapping(alone).fields[0]


def _with_field(new: Field, place: Place | None, struct: StructType) -> StructType:
    if new.name.lower() in (each.name.lower() for each in struct.fields):
        raise InvalidArgumentError(f"there is a column {new.name!r} already")
    fields = struct.fields
    return StructType((*fields, new) if place is None else place.put(new, fields))


def _existing(state: TableState, name: str, what: str) -> tuple[str, ...]:
    """Return the path of a column that may be changed, in the case that the table uses."""
    names = [field.name for field in state.schema.fields]
    path = (name,) if name in names else split_path(name)
    found = traversal.resolve(state.schema, path)
    if state.metadata.mapping_mode == "none":
        raise UnsupportedFeatureError(
            f"{name} cannot be {what}: the files know their columns by name",
            feature="columnMapping",
            hint=_MAPPED,
        )
    for holder, expression in _expressions(state):
        if _words(found) <= expressions.names_in(expression):
            raise InvalidArgumentError(
                f"{name} cannot be {what}: {holder} names it: {expression}",
                hint="drop the constraint first" if "constraint" in holder else None,
            )
    return tuple(each.name for each in found)


def _expressions(state: TableState) -> Iterator[tuple[str, str]]:
    """Yield all that refers to columns by name: who does, and the SQL."""
    for each in expressions.stored_expressions(state.metadata):
        if each.kind != "default":
            yield each.holder, each.text
    if (names := state.metadata.configuration.get(Property.STATS_COLUMNS)) is not None:
        yield f"property {Property.STATS_COLUMNS}", names


def _merged(have: StructType, incoming: StructType, prefix: str, *, widens: bool) -> StructType:
    by_name = {field.name.lower(): field for field in have.fields}
    fields = dict(by_name)
    for field in incoming.fields:
        key, path = field.name.lower(), f"{prefix}{field.name}"
        if key not in by_name:
            fields[key] = _new_column(field)
            continue
        old = by_name[key]
        kind = _merged_type(old.type, field.type, path, widens=widens)
        fields[key] = with_type_changes(old, replace(old, type=kind))
    return StructType(tuple(fields.values()))


def _merged_type(have: DataType, incoming: DataType, path: str, *, widens: bool) -> DataType:
    inner = partial(_merged_type, widens=widens)
    if have == PrimitiveType("void"):
        # No file has values of it.
        return _new_column(Field(path, incoming)).type
    if isinstance(have, StructType) and isinstance(incoming, StructType):
        return _merged(have, incoming, f"{path}.", widens=widens)
    if isinstance(have, ArrayType) and isinstance(incoming, ArrayType):
        return replace(have, element=inner(have.element, incoming.element, f"{path}.element"))
    if isinstance(have, MapType) and isinstance(incoming, MapType):
        return replace(
            have,
            key=inner(have.key, incoming.key, f"{path}.key"),
            value=inner(have.value, incoming.value, f"{path}.value"),
        )
    if isinstance(incoming, PrimitiveType) and incoming.name == "void":
        return have
    if isinstance(have, PrimitiveType) and isinstance(incoming, PrimitiveType):
        return incoming if widens and can_widen(have, incoming) else have
    raise InvalidArgumentError(
        f"column {path} is {have} in the table and {incoming} in the rows",
        hint=f"cast it to {have}",
    )
