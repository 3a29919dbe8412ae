"""The key columns of a table: which types they may have, how they are named and read.

A key is one or several columns of primitive types. Iceberg allows no floats in a key, and no
columns inside of lists and maps. Fields of structs it allows, but its readers do not: unless a
query selects the struct too, they take the field for null in all rows and all keys, and delete
every row. https://iceberg.apache.org/spec/#equality-delete-files

A key column may have been dropped since: its deletes apply all the same. It is then read beside the
table's columns, by its field id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from delvec.errors import FormatError, InvalidArgumentError, UnsupportedFeatureError
from delvec.iceberg.client.metadata import TableMetadata
from delvec.identifiers import quote_if_needed
from delvec.report.format import did_you_mean
from delvec.spark.input.key_values import KeyColumn, is_key_type

FIELD_ID: Final = "PARQUET:field_id"
_DROPPED: Final = "__delvec_key_"


def key_columns(
    schema: Mapping[str, Any], names: Sequence[str], table: str
) -> tuple[KeyColumn, ...]:
    """Return columns by name, exact or else ignoring case, in the given order."""
    if isinstance(names, str) or not names:
        raise InvalidArgumentError(
            f"a key of {table} needs one column or more, got {names!r}",
            hint="name them in a list of strings",
        )
    known = list(columns_of(schema["fields"]))
    found = tuple(_find(known, name, table) for name in names)
    ids = [each.id for each in found]
    for place, column in enumerate(found):
        if column.id in ids[:place]:
            raise InvalidArgumentError(f"column {column.name} is named twice in a key of {table}")
    return found


def columns_of(fields: Sequence[Mapping[str, Any]]) -> Iterator[KeyColumn]:
    """Yield all columns, whatever their type: those that cannot be keys have to be found as well.

    The type of one that is not primitive, or is inside of another, says what it is.
    """
    for field in fields:
        kind = field["type"]
        is_primitive = isinstance(kind, str)
        shown = kind if is_primitive else f"a {kind['type']}"
        yield KeyColumn(field["id"], field["name"], shown, field["required"])
        if not is_primitive:
            yield from _inside(kind, field["name"])


def arrow_schema(columns: Sequence[KeyColumn]) -> pa.Schema:
    """Return the schema of a file of these keys, with field ids.

    Without field ids Iceberg numbers the columns of a file by their order, and deletes other rows.
    """
    return pa.schema(
        [
            pa.field(
                column.name,
                pa.uuid() if column.type == "uuid" else column.arrow,
                nullable=not column.required,
                metadata={FIELD_ID: str(column.id)},
            )
            for column in columns
        ]
    )


def add_dropped_key_columns(
    metadata: TableMetadata, schema: Mapping[str, Any], ids: Iterable[int], table: str
) -> dict[str, Any]:
    """Return a schema with those of some key columns that it lacks, under names of their own."""
    known = key_paths(schema)
    missing = [field_id for field_id in ids if field_id not in known]
    added = [_dropped(metadata, field_id, table) for field_id in sorted(set(missing))]
    return {**schema, "identifier-field-ids": [], "fields": [*schema["fields"], *added]}


def key_paths(schema: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    return {field["id"]: path for path, field in _leaves(schema["fields"])}


def key_types(schema: Mapping[str, Any]) -> dict[int, str]:
    return {field["id"]: field["type"] for _, field in _leaves(schema["fields"])}


def key_schema(schema: Mapping[str, Any], ids: Iterable[int]) -> dict[str, Any]:
    """Return the part of a schema that has some columns; all are optional."""
    wanted = frozenset(ids)
    return {"type": "struct", "schema-id": 0, "fields": _chosen(schema["fields"], wanted)}


def _inside(kind: Mapping[str, Any], name: str, place: str = "") -> Iterator[KeyColumn]:
    """Yield what is inside of a struct, list or map, where no key can be."""
    place = place or f"inside of a {kind['type']}"
    parts = [(each["id"], each["name"], each["type"]) for each in kind.get("fields", ())]
    for part in ("element", "key", "value"):
        parts += [(kind[f"{part}-id"], part, kind[part])] if part in kind else []
    for number, part, inner in parts:
        path = f"{name}.{part}"
        yield KeyColumn(number, path, place, required=False)
        if not isinstance(inner, str):
            yield from _inside(inner, path, place)


def _find(known: Sequence[KeyColumn], name: str, table: str) -> KeyColumn:
    for exact in (lambda text: text, str.lower):
        found = [each for each in known if exact(each.name) == exact(name)]
        if len(found) == 1:
            if not is_key_type(found[0].type):
                raise _no_key(found[0], table)
            return found[0]
        if found:
            raise InvalidArgumentError(
                f"{name} is ambiguous: {table} has {', '.join(each.name for each in found)}",
                hint="write the name exactly as the table has it",
            )
    hint = did_you_mean(name, (quote_if_needed(each.name) for each in known)) or (
        f"its columns are {', '.join(each.name for each in known if '.' not in each.name)}"
    )
    raise InvalidArgumentError(f"{table} has no column {name}", hint=hint)


def _no_key(column: KeyColumn, table: str) -> InvalidArgumentError:
    what = f"column {column.name} of {table} is {column.type}"
    hint = "delete by a condition instead, or by other columns"
    if column.type in ("float", "double"):
        why = "which Iceberg allows in no key: equality of floats is not what it seems"
        return InvalidArgumentError(f"{what}, {why}", hint=hint)
    if column.type == "inside of a struct":
        why = "cannot be in a key: Iceberg's readers would delete every row by it"
        return InvalidArgumentError(f"{what} and {why}", hint=hint)
    return InvalidArgumentError(
        f"column {column.name} of {table} is {column.type} and cannot be in a key",
        hint="name columns of primitive types",
    )


def _leaves(
    fields: Iterable[Mapping[str, Any]], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield columns of primitive types with their paths, not those inside of lists and maps."""
    for field in fields:
        path = (*above, field["name"])
        if isinstance(field["type"], str):
            yield path, field
        elif field["type"]["type"] == "struct":
            yield from _leaves(field["type"]["fields"], path)


def _chosen(fields: Iterable[Mapping[str, Any]], wanted: frozenset[int]) -> list[dict[str, Any]]:
    found = []
    for field in fields:
        kind: Any = field["type"]
        if not isinstance(kind, str):
            below = _chosen(kind.get("fields", ()), wanted)  # a list and a map have no fields
            kind = {"type": "struct", "fields": below} if below else None
        elif field["id"] not in wanted:
            kind = None
        if kind is not None:
            found.append(
                {"id": field["id"], "name": field["name"], "required": False, "type": kind}
            )
    return found


def _dropped(metadata: TableMetadata, field_id: int, table: str) -> dict[str, Any]:
    for number in sorted(metadata.schemas, reverse=True):
        for path, field in _leaves(metadata.schemas[number]["fields"]):
            if field["id"] != field_id:
                continue
            if len(path) > 1:
                raise UnsupportedFeatureError(
                    f"equality deletes of {table} are by {'.'.join(path)}, a field of a struct that"
                    " was dropped",
                    feature="dropped key fields inside of structs",
                    hint="rewrite the data files with an engine that applies these deletes",
                )
            name = f"{_DROPPED}{field_id}"
            return {"id": field_id, "name": name, "required": False, "type": field["type"]}
    raise FormatError(
        f"equality deletes of {table} are by a column that no schema of the table has",
        found=f"field id {field_id}",
    )
