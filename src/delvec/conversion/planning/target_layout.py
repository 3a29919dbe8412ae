"""Schema, partition spec and name mapping of a target, and what others have changed of them.

The schema of the last publication is a conversion's own, whatever earlier ones had; the partition
spec never changes, so the first one is. Everything is read from the table's metadata: there is no
other state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delvec.conversion.planning.progress import (
    NAME_MAPPING,
    SOURCE_ID,
    SOURCE_VERSION,
    find_progress,
)
from delvec.conversion.schema.iceberg_types import NestedType, parse_fields, walk_iceberg
from delvec.conversion.schema.name_mapping import name_mapping
from delvec.conversion.schema.partition_spec import listed_fields
from delvec.documents import parse_json
from delvec.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from delvec.conversion.planning.target import Target
    from delvec.conversion.schema.iceberg_types import TargetField
    from delvec.delta.schema.metadata import Metadata
    from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata

__all__ = ["LayoutChanges", "TargetLayout", "current_mapping", "layout_changes", "own_layout"]


@dataclass(frozen=True)
class TargetLayout:
    """Schema, partition spec and name mapping of a target; empty for a new one.

    Attributes:
        schema: In Iceberg's JSON form; None for a new table.
        last_column_id: The highest field id that was ever used.
        spec: The partition spec, in Iceberg's JSON form; None for a new table.
        mapping: The name mapping.
    """

    schema: Mapping[str, Any] | None = None
    last_column_id: int = 0
    spec: Mapping[str, Any] | None = None
    mapping: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class LayoutChanges:
    """What others have changed of a target's layout, in words.

    Attributes:
        columns: A clause for each changed column.
        added: The columns that they added.
        partitions: How it is partitioned, if they changed it.
        is_documented: Whether they changed comments or the order of columns, which no row depends
            on.
        lasting: A clause for each changed type that cannot be taken back: manifests of their
            partitions have values of that type, and are read in the type of the column.
    """

    columns: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    is_documented: bool = False
    lasting: tuple[str, ...] = ()


def own_layout(target: Target, source: Metadata) -> TargetLayout:
    """Return the layout that the last conversion gave a target, whatever others made of it.

    Args:
        target: The target.
        source: The metadata of the source. Without column mapping the columns of files have their
            own names, whatever the name mapping says.
    """
    if target.table is None:
        return TargetLayout()
    metadata = target.table.metadata
    schema = _own_schema(metadata)
    mapping = current_mapping(metadata.properties)
    if schema is not metadata.schema:
        mapping = list(_only(mapping, _own_ids(metadata)))
    if source.mapping_mode == "none":
        mapping = name_mapping(tuple(map(_by_its_name, parse_fields(schema))), mapping)
    return TargetLayout(schema, metadata.last_column_id, _own_spec(metadata), mapping)


def layout_changes(metadata: TableMetadata) -> LayoutChanges:
    """Return what others have changed since the last conversion."""
    own, spec = _own_schema(metadata), _own_spec(metadata)
    columns: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    lasting: tuple[str, ...] = ()
    if own is not metadata.schema:
        before, after = _by_id(own), _by_id(metadata.schema)
        columns = tuple(_column_changes(before, after))
        added = tuple(_name(path) for path in after.values() if _is_added(path, before))
        lasting = tuple(_lasting_types(metadata, before, after))
    partitions: tuple[str, ...] = ()
    if spec["spec-id"] != metadata.spec["spec-id"]:
        now, then = (
            listed_fields([(field["name"], field["transform"]) for field in each["fields"]])
            for each in (metadata.spec, spec)
        )
        partitions = (f"it is partitioned by {now} and not by {then}",)
    is_documented = own is not metadata.schema and not columns
    return LayoutChanges(columns, added, partitions, is_documented, lasting)


def current_mapping(properties: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the name mapping of a target; none if what others wrote there is no name mapping."""
    try:
        found = parse_json(properties.get(NAME_MAPPING, "[]"), NAME_MAPPING)
    except FormatError:
        return []
    return found if _is_mapping(found) else []


def _is_mapping(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, dict)
        and isinstance(entry.get("names"), list)
        and _is_mapping(entry.get("fields", []))
        for entry in value
    )


def _made_by_conversions(metadata: TableMetadata) -> list[IcebergSnapshot]:
    return [
        snapshot
        for snapshot in metadata.snapshots.values()
        if SOURCE_ID in snapshot.summary and snapshot.schema_id in metadata.schemas
    ]


def _own_schema(metadata: TableMetadata) -> Mapping[str, Any]:
    made = _made_by_conversions(metadata)
    progress = find_progress(metadata)
    version = metadata.properties.get(SOURCE_VERSION)
    if progress is not None and str(progress.version) == version:
        last = progress.snapshot
    elif published := [each for each in made if each.summary.get(SOURCE_VERSION) == version]:
        # The target was rolled back, which leaves the schema as it was.
        last = max(published, key=lambda each: each.timestamp_ms)
    elif not made or metadata.schema["schema-id"] in {each.schema_id for each in made}:
        return metadata.schema
    else:
        newest = max(made, key=lambda each: each.timestamp_ms)
        last = newest if progress is None else progress.snapshot
    return metadata.schemas.get(last.schema_id or 0, metadata.schema)


def _own_spec(metadata: TableMetadata) -> Mapping[str, Any]:
    return metadata.specs[min(metadata.specs)]


def _own_ids(metadata: TableMetadata) -> set[int]:
    """Return the field ids of all schemas that conversions made."""
    schemas = {snapshot.schema_id for snapshot in _made_by_conversions(metadata)}
    return {
        number
        for schema_id in schemas
        if schema_id is not None
        for number in _by_id(metadata.schemas[schema_id])
    }


def _only(mapping: Sequence[Mapping[str, Any]], ids: set[int]) -> Iterator[dict[str, Any]]:
    """Yield the entries of a name mapping that have these ids."""
    for entry in mapping:
        if entry.get("field-id") in ids:
            inner = list(_only(entry.get("fields", ()), ids))
            yield {**entry, "fields": inner} if inner else {**entry}


def _by_its_name(field: TargetField) -> TargetField:
    kind = field.type
    if isinstance(kind, NestedType):
        kind = NestedType(kind.kind, tuple(map(_by_its_name, kind.fields)))
    return replace(field, type=kind, physical_name=field.name)


def _by_id(schema: Mapping[str, Any]) -> dict[int, tuple[TargetField, ...]]:
    return {path[-1].id: path for path in walk_iceberg(parse_fields(schema))}


def _column_changes(
    before: Mapping[int, tuple[TargetField, ...]], after: Mapping[int, tuple[TargetField, ...]]
) -> Iterator[str]:
    """Yield a clause for each column that differs; of a struct, not of each field in it."""
    for number, path in after.items():
        if number not in before:
            if _is_added(path, before):
                yield f"column {_name(path)!r} was added"
            continue
        old, new = before[number][-1], path[-1]
        if old.name != new.name:
            yield f"column {_name(before[number])!r} was renamed to {new.name!r}"
        if not isinstance(new.type, NestedType) and old.type != new.type:
            yield f"column {_name(path)!r} is {new.type} and was {old.type}"
        if old.required != new.required:
            yield f"column {_name(path)!r} is {'required' if new.required else 'nullable'} now"
    for path in before.values():
        if _is_added(path, after):
            yield f"column {_name(path)!r} was dropped"


def _lasting_types(
    metadata: TableMetadata,
    before: Mapping[int, tuple[TargetField, ...]],
    after: Mapping[int, tuple[TargetField, ...]],
) -> Iterator[str]:
    own = _own_spec(metadata)["spec-id"]
    theirs = {
        field.get("source-id")
        for spec in metadata.specs.values()
        if spec["spec-id"] != own
        for field in spec["fields"]
    }
    for number in theirs & before.keys() & after.keys():
        now, then = after[number][-1].type, before[number][-1].type
        if now != then:
            yield f"partitions by {_name(after[number])!r} have values of {now}, not {then}"


def _is_added(path: tuple[TargetField, ...], before: Mapping[int, tuple[TargetField, ...]]) -> bool:
    """Tell whether a column is not among others, but what contains it is."""
    return path[-1].id not in before and (len(path) == 1 or path[-2].id in before)


def _name(path: tuple[TargetField, ...]) -> str:
    return ".".join(each.name for each in path)
