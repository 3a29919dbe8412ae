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
from delvec.conversion.schema.name_mapping import ids_by_path
from delvec.delta.schema.properties import ROW_COMMIT_VERSION_COLUMN, ROW_ID_COLUMN

if TYPE_CHECKING:
    from delvec.conversion.planning.planner import Planned
    from delvec.conversion.planning.target import Target
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata

__all__ = ["published_properties", "staged_properties"]

_FIRST_SPARE_ID: Final = 2_000_000_000  # no column has it, neither of Delta nor of Iceberg
_PROTECTING: Final = {
    # Shared data files are the source's to remove.
    "gc.enabled": "false",
    # Bounds may be wide, so min() and max() must not be answered from them.
    "write.metadata.metrics.default": "counts",
    # Following a source makes many commits; only files of table metadata are removed.
    "write.metadata.delete-after-commit.enabled": "true",
}


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
    mapping = _name_mapping(planned, metadata, target)
    current = json.loads(target.properties.get(NAME_MAPPING, "[]"))
    if _keeps_names(current, mapping):
        # Otherwise readers of `main` would miss columns until publication.
        wanted[NAME_MAPPING] = json.dumps(mapping)
    return {key: value for key, value in wanted.items() if target.properties.get(key) != value}


def published_properties(planned: Planned, source: Snapshot, target: Target) -> dict[str, str]:
    """Return the properties to set when snapshots are published."""
    mapping = _name_mapping(planned, source.metadata, target)
    return {SOURCE_VERSION: str(source.version), NAME_MAPPING: json.dumps(mapping)}


def _name_mapping(planned: Planned, metadata: Metadata, target: Target) -> list[dict[str, Any]]:
    """Return the name mapping of the target after the last step."""
    mapping: list[dict[str, Any]] = json.loads(target.properties.get(NAME_MAPPING, "[]"))
    mapping = [entry for entry in mapping if entry.get("field-id", 0) < _FIRST_SPARE_ID]
    for step in planned.steps:
        mapping = step.schema.name_mapping(mapping)
    return _with_row_tracking(mapping, metadata)


def _keeps_names(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
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
