"""The definition of a table after RESTORE: that of the wanted version, but nothing goes down.

The protocol supports what either version needs, since all versions in between stay readable. What
counts upwards is kept, so that nothing is given twice: ids of columns, values of identity columns.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delvec.delta.alter.table_state import TableState, with_features
from delvec.delta.schema.features import FEATURES
from delvec.delta.schema.identity import Identity, identity_fields, with_mark
from delvec.delta.schema.properties import (
    CHECKPOINT_PROTECTION_BEFORE,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    IN_COMMIT_TIMESTAMPS_SINCE_TIME,
    IN_COMMIT_TIMESTAMPS_SINCE_VERSION,
    MAX_COLUMN_ID,
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
    property_number,
)
from delvec.documents import parse_json
from delvec.errors import FormatError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.protocol import Protocol

__all__ = ["CLUSTERING_DOMAIN", "clustered_by", "restored_clustering", "restored_definition"]

CLUSTERING_DOMAIN: Final = "delta.clustering"
"""The metadata domain that names the columns by which a table is clustered."""

_SINCE: Final = (IN_COMMIT_TIMESTAMPS_SINCE_VERSION, IN_COMMIT_TIMESTAMPS_SINCE_TIME)
_NO_CLUSTERING: Final = '{"clusteringColumns":[],"domainName":"delta.clustering"}'


def restored_definition(newest: Snapshot, wanted: Snapshot) -> TableState:
    """Return protocol and metadata of a table that is restored to a version.

    Raises:
        UnsupportedFeatureError: The wanted version has a table feature that delvec does not know.
    """
    protocol = _united(newest, wanted)
    return TableState(protocol, _lasting(newest.metadata, wanted.metadata, protocol))


def clustered_by(domains: Mapping[str, str]) -> Sequence[Sequence[str]]:
    """Return the columns by which a table is clustered, as paths of physical names.

    Raises:
        FormatError: The domain names no columns.
    """
    what = f"the domain {CLUSTERING_DOMAIN}"
    value = parse_json(domains.get(CLUSTERING_DOMAIN, _NO_CLUSTERING), what)
    found = value.get("clusteringColumns", []) if isinstance(value, dict) else None
    if not isinstance(found, list) or not all(isinstance(path, list) for path in found):
        raise FormatError(f"{what} names no columns", expected=_NO_CLUSTERING)
    return found


def restored_clustering(newest: Snapshot, wanted: Snapshot) -> dict[str, str]:
    """Return the clustering columns of the wanted version as a domain; empty if nothing changes.

    Other domains belong to applications and stay as they are, as with delta-spark.
    """
    now, then = (each.domains.get(CLUSTERING_DOMAIN) for each in (newest, wanted))
    if now == then:
        return {}
    return {CLUSTERING_DOMAIN: then or _NO_CLUSTERING}


def _united(newest: Snapshot, wanted: Snapshot) -> Protocol:
    then = wanted.protocol.supported
    unknown = sorted(then - FEATURES.keys())
    if unknown:
        raise UnsupportedFeatureError(
            f"version {wanted.version} of {newest.table} needs a writer that supports"
            f" {', '.join(unknown)}",
            feature=unknown[0],
            needed_by=newest.table,
            hint="restore a version without this table feature, or use the engine that added it",
        )
    return with_features(newest.protocol, then)


def _lasting(now: Metadata, then: Metadata, protocol: Protocol) -> Metadata:
    properties = dict(then.configuration)
    if now.is_on(ENABLE_IN_COMMIT_TIMESTAMPS) and then.is_on(ENABLE_IN_COMMIT_TIMESTAMPS):
        # They may have been off in between: commits hold them since the last time.
        for name in _SINCE:
            properties.pop(name, None)
        properties |= {
            name: now.configuration[name] for name in _SINCE if name in now.configuration
        }
    if "rowTracking" in protocol.supported:
        # The files of the wanted version have the columns that it names.
        names = (ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN)
        kept = {name: now.configuration[name] for name in names if name in now.configuration}
        properties = {**kept, **properties}
    if CHECKPOINT_PROTECTION_BEFORE in now.configuration:
        properties[CHECKPOINT_PROTECTION_BEFORE] = now.configuration[CHECKPOINT_PROTECTION_BEFORE]
    if MAX_COLUMN_ID in now.configuration:
        ids = [property_number(each, MAX_COLUMN_ID, 0) for each in (now.configuration, properties)]
        properties[MAX_COLUMN_ID] = str(max(ids))
    return replace(then, configuration=properties, schema_string=_with_marks(now, then))


def _with_marks(now: Metadata, then: Metadata) -> str:
    """Return the schema with the furthest high-water mark of each identity column."""
    marks = {
        field.physical_name: mark
        for field in identity_fields(now.schema)
        if (mark := Identity.of(field).high_water_mark) is not None
    }
    columns = {field.name for field in identity_fields(then.schema)}
    fields = [
        with_mark(field, Identity.of(field).mark_after(marks[field.physical_name]))
        if field.name in columns and field.physical_name in marks
        else field
        for field in then.schema.fields
    ]
    if tuple(fields) == then.schema.fields:
        return then.schema_string
    schema = replace(then.schema, fields=tuple(fields))
    return json.dumps(schema.to_json(), separators=(",", ":"), ensure_ascii=False)
