"""The columns that a read through equality deletes needs: the table's, and those of keys.

A key column may have been dropped since: its deletes apply all the same. It is then read beside the
table's columns, by its field id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delvec.errors import FormatError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from delvec.iceberg.client.metadata import TableMetadata

__all__ = ["key_paths", "key_schema", "key_types", "with_dropped_keys"]

_DROPPED: Final = "__delvec_key_"


def with_dropped_keys(
    metadata: TableMetadata, schema: Mapping[str, Any], ids: Iterable[int], table: str
) -> dict[str, Any]:
    """Return a schema with those of some key columns that it lacks, under names of their own.

    Raises:
        UnsupportedFeatureError: A field of a struct was dropped that is part of a key.
        FormatError: No schema of the table has such a column.
    """
    known = key_paths(schema)
    missing = [field_id for field_id in ids if field_id not in known]
    added = [_dropped(metadata, field_id, table) for field_id in sorted(set(missing))]
    return {**schema, "identifier-field-ids": [], "fields": [*schema["fields"], *added]}


def key_paths(schema: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    """Return the path of each column that may be in a key, by field id."""
    return {field["id"]: path for path, field in _leaves(schema["fields"])}


def key_types(schema: Mapping[str, Any]) -> dict[int, str]:
    """Return the type of each column that may be in a key, by field id."""
    return {field["id"]: field["type"] for _, field in _leaves(schema["fields"])}


def key_schema(schema: Mapping[str, Any], ids: Iterable[int]) -> dict[str, Any]:
    """Return the part of a schema that has some columns; all are optional."""
    wanted = frozenset(ids)
    return {"type": "struct", "schema-id": 0, "fields": _chosen(schema["fields"], wanted)}


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
        kind = field["type"]
        inner: object
        if isinstance(kind, str):
            inner = kind if field["id"] in wanted else None
        elif kind["type"] == "struct":
            below = _chosen(kind["fields"], wanted)
            inner = {"type": "struct", "fields": below} if below else None
        else:
            inner = None
        if inner is not None:
            found.append(
                {"id": field["id"], "name": field["name"], "required": False, "type": inner}
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
