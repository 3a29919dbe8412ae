"""The table properties of a target: its source, its name mapping, and what keeps readers right."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from delvec.conversion.planning import target_layout
from delvec.conversion.planning.target_layout import NAME_MAPPING, own_layout
from delvec.conversion.schema.evolution import compatible_schema
from delvec.conversion.schema.iceberg_schema import ids_by_path
from delvec.delta.schema.metadata import Metadata, Property

if TYPE_CHECKING:
    from delvec.conversion.planning.planner import Planned
    from delvec.conversion.planning.target import Target
    from delvec.delta.log.snapshot import Snapshot

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
        current = target_layout.current_mapping(target.properties)
        if dict(ids_by_path(mapping)) != dict(ids_by_path(current)):
            wanted[NAME_MAPPING] = json.dumps(mapping)
    return {key: value for key, value in wanted.items() if target.properties.get(key) != value}


def staged_properties(
    planned: Planned, source: Snapshot, target: Target, time_zone: str
) -> dict[str, str]:
    """Return the properties to set when snapshots are staged, where the target has others.

    Readers of `main` see them before the snapshots are published.
    """
    metadata = source.metadata
    own_id = target_layout.source_id(metadata, source.table)
    known = {target_layout.SOURCE_ID: own_id, target_layout.TIME_ZONE: time_zone}
    wanted = {**known, **_PROTECTING}
    if metadata.description:
        wanted["comment"] = metadata.description
    mapping = _name_mapping(planned, source, target)
    before = dict(ids_by_path(own_layout(target, metadata).mapping))
    if before.items() <= dict(ids_by_path(mapping)).items():
        # If a name had another id, readers of `main` would miss columns until publication.
        wanted[NAME_MAPPING] = json.dumps(mapping)
    return {key: value for key, value in wanted.items() if target.properties.get(key) != value}


def published_properties(planned: Planned, source: Snapshot, target: Target) -> dict[str, str]:
    """Return the properties to set when snapshots are published."""
    mapping = _name_mapping(planned, source, target)
    version = str(source.version)
    return {target_layout.SOURCE_VERSION: version, NAME_MAPPING: json.dumps(mapping)}


def _name_mapping(planned: Planned, source: Snapshot, target: Target) -> list[dict[str, Any]]:
    """Return the name mapping of the target after the last step, or that it should have."""
    layout = own_layout(target, source.metadata)
    schemas = [step.schema for step in planned.steps]
    if not schemas and layout.schema is not None:
        schema = layout.schema_for(source.metadata, source.table, target.format_version)
        schemas = [compatible_schema(layout.schema, schema)]
    mapping = [dict(each) for each in layout.mapping if each.get("field-id", 0) < _FIRST_SPARE_ID]
    for schema in schemas:
        mapping = schema.name_mapping(mapping)
    return _with_row_tracking(mapping, source.metadata)


def _with_row_tracking(mapping: list[dict[str, Any]], metadata: Metadata) -> list[dict[str, Any]]:
    """Add the columns of Delta's row tracking, which are in files but not in the schema.

    PyIceberg requires a name for every column of a file without ids. They must not get the ids of
    Iceberg's row lineage, which would take the values for its own.
    """
    known = {name for entry in mapping for name in entry["names"]}
    tracked = {
        field_id: metadata.configuration.get(key)
        for field_id, key in enumerate(
            (Property.ROW_ID_COLUMN, Property.ROW_COMMIT_VERSION_COLUMN), _FIRST_SPARE_ID
        )
    }
    return [
        *mapping,
        *(
            {"field-id": field_id, "names": [name]}
            for field_id, name in tracked.items()
            if name and name not in known
        ),
    ]
