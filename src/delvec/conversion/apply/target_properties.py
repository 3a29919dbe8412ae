"""The table properties of a target: its source, its name mapping, and what keeps readers right."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from delvec.conversion.planning.progress import (
    NAME_MAPPING,
    SOURCE_ID,
    SOURCE_VERSION,
    TIME_ZONE,
    source_id,
)
from delvec.conversion.planning.target_layout import current_mapping, own_layout
from delvec.conversion.schema.evolution import compatible_schema
from delvec.conversion.schema.iceberg_schema import target_schema
from delvec.conversion.schema.name_mapping import ids_by_path
from delvec.delta.schema.properties import ROW_COMMIT_VERSION_COLUMN, ROW_ID_COLUMN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delvec.conversion.planning.planner import Planned
    from delvec.conversion.planning.target import Target
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata

__all__ = ["lost_properties", "published_properties", "staged_properties"]

_FIRST_SPARE_ID: Final = 2_000_000_000  # no column has it, neither of Delta nor of Iceberg
_PROTECTING: Final = {
    # Shared data files are the source's to remove.
    "gc.enabled": "false",
    # Bounds may be wide, so min() and max() must not be answered from them.
    "write.metadata.metrics.default": "counts",
    # Following a source makes many commits; only files of table metadata are removed.
    "write.metadata.delete-after-commit.enabled": "true",
}


def lost_properties(planned: Planned, source: Snapshot, target: Target) -> dict[str, str]:
    """Return properties that a conversion had set and that others have changed or removed.

    With the values that they should have: a plan without steps sets these, others set them anyway.
    """
    if target.table is None:
        return {}
    wanted = dict(_PROTECTING)
    if not planned.steps:
        if source.metadata.description:
            wanted["comment"] = source.metadata.description
        mapping = _name_mapping(planned, source, target)
        if dict(ids_by_path(mapping)) != dict(ids_by_path(current_mapping(target.properties))):
            wanted[NAME_MAPPING] = json.dumps(mapping)
    return {key: value for key, value in wanted.items() if target.properties.get(key) != value}


def staged_properties(
    planned: Planned, source: Snapshot, target: Target, time_zone: str
) -> dict[str, str]:
    """Return the properties to set when snapshots are staged, where the target has others.

    Readers of `main` see them before the snapshots are published.
    """
    metadata = source.metadata
    wanted = {
        SOURCE_ID: source_id(metadata, source.table),
        TIME_ZONE: time_zone,
        **_PROTECTING,
    }
    if metadata.description:
        wanted["comment"] = metadata.description
    mapping = _name_mapping(planned, source, target)
    if _keeps_names(own_layout(target, metadata).mapping, mapping):
        # Otherwise readers of `main` would miss columns until publication.
        wanted[NAME_MAPPING] = json.dumps(mapping)
    return {key: value for key, value in wanted.items() if target.properties.get(key) != value}


def published_properties(planned: Planned, source: Snapshot, target: Target) -> dict[str, str]:
    """Return the properties to set when snapshots are published."""
    mapping = _name_mapping(planned, source, target)
    return {SOURCE_VERSION: str(source.version), NAME_MAPPING: json.dumps(mapping)}


def _name_mapping(planned: Planned, source: Snapshot, target: Target) -> list[dict[str, Any]]:
    """Return the name mapping of the target after the last step, or that it should have."""
    layout = own_layout(target, source.metadata)
    schemas = [step.schema for step in planned.steps]
    if not schemas and layout.schema is not None:
        schema = target_schema(
            source.metadata,
            table=source.table,
            format_version=target.format_version,
            current=layout.schema,
            last_column_id=layout.last_column_id,
            mapping=layout.mapping,
        )
        schemas = [compatible_schema(layout.schema, schema)]
    mapping = [dict(each) for each in layout.mapping if each.get("field-id", 0) < _FIRST_SPARE_ID]
    for schema in schemas:
        mapping = schema.name_mapping(mapping)
    return _with_row_tracking(mapping, source.metadata)


def _keeps_names(before: Sequence[Mapping[str, Any]], after: list[dict[str, Any]]) -> bool:
    """Tell whether every name still has the id that it had."""
    return dict(ids_by_path(before)).items() <= dict(ids_by_path(after)).items()


def _with_row_tracking(mapping: list[dict[str, Any]], metadata: Metadata) -> list[dict[str, Any]]:
    """Add the columns of Delta's row tracking, which are in files but not in the schema.

    PyIceberg requires a name for every column of a file without ids. They must not get the ids of
    Iceberg's row lineage, which would take the values for its own.
    """
    known = {name for entry in mapping for name in entry["names"]}
    tracked = {
        field_id: metadata.configuration.get(key)
        for field_id, key in enumerate((ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN), _FIRST_SPARE_ID)
    }
    return [
        *mapping,
        *(
            {"field-id": field_id, "names": [name]}
            for field_id, name in tracked.items()
            if name and name not in known
        ),
    ]
