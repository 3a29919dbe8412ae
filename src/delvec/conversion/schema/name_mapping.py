"""Name mapping: the ids of columns in files without field ids (`schema.name-mapping.default`).

Specification: https://iceberg.apache.org/spec/#name-mapping-serialization
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.conversion.schema.iceberg_types import walk_iceberg

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from delvec.conversion.schema.iceberg_types import TargetField

__all__ = ["ids_by_path", "name_mapping"]


def name_mapping(
    fields: tuple[TargetField, ...], current: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Return the mapping of physical names to ids.

    Iceberg accepts any physical name for `element`, `key` and `value`.

    Args:
        fields: The columns of the table.
        current: The mapping so far. Dropped columns stay in it where their names are still free.
    """
    return _merged(fields, current, {path[-1].id for path in walk_iceberg(fields)})


def ids_by_path(
    mapping: Sequence[Mapping[str, Any]], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the ids of a mapping by the paths of physical names."""
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
