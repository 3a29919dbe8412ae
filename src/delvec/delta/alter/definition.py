"""The definition of a table, new or replaced, and its properties, table features and CHECKs.

Pure functions from one state to the next; costs grow with the number of columns. REPLACE changes
schema and properties, and keeps the id and the history.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from delvec.delta.alter import table_state
from delvec.delta.alter.columns import assign_column_ids, without_mapping
from delvec.delta.alter.table_state import TableState
from delvec.delta.schema.expressions import CONSTRAINT, constraints
from delvec.delta.schema.known_properties import PROPERTIES, check_properties
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.schema.protocol import (
    FEATURES,
    READERS_WITH_FEATURES,
    WRITERS_WITH_FEATURES,
    Protocol,
    feature_name,
    implied_by,
)
from delvec.delta.schema.types import StructType
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.report.hints import Wording, argument, call, format_hint

# Features that need something else, which delvec does not write.
_NOT_BY_HAND: Final = {
    "clustering": "ALTER TABLE ... CLUSTER BY (columns) adds it",
    "checkpointProtection": "it comes with dropping a feature",
}
_TRACKING: Final = (Property.ROW_ID_COLUMN, Property.ROW_COMMIT_VERSION_COLUMN)
# Properties that writers set, and no user.
MANAGED: Final = (
    Property.MAX_COLUMN_ID,
    *_TRACKING,
    Property.IN_COMMIT_TIMESTAMPS_SINCE_VERSION,
    Property.IN_COMMIT_TIMESTAMPS_SINCE_TIME,
)


def new_table(
    schema: StructType,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    cluster_by: Sequence[str] = (),
) -> TableState:
    """Return the state of a new table; deletion vectors are on unless a property says otherwise."""
    defaults = {Property.ENABLE_DELETION_VECTORS: "true"}
    asked = check_properties({**defaults, **_spelled(properties or {})})
    checks = {
        f"{CONSTRAINT}{each.lower()}": checked_condition(each, sql)
        for each, sql in asked.constraints.items()
    }
    plain = without_mapping(schema)
    metadata = Metadata(
        id=str(uuid4()),
        name=name,
        description=description,
        provider="parquet",
        schema_string=json.dumps(plain.to_json(), separators=(",", ":"), ensure_ascii=False),
        partition_columns=tuple(plain.field(each).name for each in partition_by),
        configuration={**asked.properties, **checks},
        created_ms=int(time.time() * 1000),
    )
    state = assign_column_ids(TableState(Protocol(1, 2), metadata))
    table_state.require_valid_schema(state.metadata)
    table_state.require_no_collations(state.schema)
    table_state.require_nullable_elements(state.schema)
    state = _with_asked(state, asked.features)
    finished = _finished(state.with_features(table_state.needed_features(state.metadata)))
    return finished.clustered(cluster_by)


def replace_definition(
    state: TableState,
    schema: StructType,
    partition_by: Sequence[str],
    properties: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
    cluster_by: Sequence[str] = (),
) -> TableState:
    """Return the state of a table after its definition is replaced; its id stays.

    The protocol is never downgraded, since old versions stay readable under it.
    """
    was = state.metadata
    wanted: Mapping[str, Any] = was.configuration if properties is None else properties
    asked = {key: value for key, value in wanted.items() if key not in MANAGED}
    fresh = new_table(
        schema, partition_by, asked, name=name, description=description, cluster_by=cluster_by
    )
    tracking = {
        key: value
        for key, value in was.configuration.items()
        if key in _TRACKING and any(name in fresh.metadata.configuration for name in _TRACKING)
    }
    metadata = replace(
        fresh.metadata,
        id=was.id,
        created_ms=was.created_ms,
        name=was.name if name is None else name,
        description=was.description if description is None else description,
        configuration={**fresh.metadata.configuration, **tracking},
    )
    protocol = table_state.add_features(state.protocol, fresh.protocol.supported)
    return TableState(protocol, metadata, fresh.clustering)


def set_properties(
    state: TableState,
    properties: Mapping[str, Any],
    *,
    is_empty: Callable[[], bool] = lambda: False,
    for_readers: bool = False,
) -> TableState:
    """Set properties, and add the features that they need; those of readers only if told so."""
    asked = check_properties(properties)
    if asked.constraints:
        raise InvalidArgumentError(
            f"constraint {next(iter(asked.constraints))} cannot be set as a property",
            hint=format_hint("{} checks the rows of the table first", call("add_constraint")),
        )
    was, tracking = state.metadata, Property.ENABLE_ROW_TRACKING
    properties = {**was.configuration, **asked.properties}
    changed = _with_asked(state, asked.features).with_properties(properties)
    _require_mapping_change(was, asked.properties.get(Property.MAPPING_MODE, was.mapping_mode))
    if changed.metadata.is_on(tracking) and not was.is_on(tracking) and not is_empty():
        raise UnsupportedFeatureError(
            "row tracking cannot be switched on for a table that has rows: each of its files would"
            " have to be given ids",
            feature="rowTracking",
            hint="switch it on with delta-spark, or when the table is created",
        )
    changed = assign_column_ids(changed, keep_names=True)
    table_state.require_valid_schema(changed.metadata)
    return _finished(changed.upgraded(state, for_readers=for_readers))


def unset_properties(
    state: TableState, names: Iterable[str], *, if_exists: bool = False
) -> TableState:
    properties = dict(state.metadata.configuration)
    for name in names:
        known = PROPERTIES.get(name.lower())
        found = known.name if known else name
        if found.startswith(CONSTRAINT):
            raise InvalidArgumentError(
                f"{found} is a constraint",
                hint=format_hint("use {}", call("drop_constraint", found.removeprefix(CONSTRAINT))),
            )
        if (known and known.managed) or found == Property.MAPPING_MODE:
            raise InvalidArgumentError(f"{found} cannot be unset: the table needs it")
        if found not in properties and not if_exists:
            raise InvalidArgumentError(
                f"property {name} is not set",
                hint=Wording(
                    "if_exists=True ignores it", "`delvec properties TABLE` shows those that are"
                ),
            )
        properties.pop(found, None)
    return state.with_properties(properties)


def add_feature(state: TableState, name: str) -> TableState:
    """Add a table feature and those that it depends on."""
    return _finished(_with_asked(state, [feature_name(name)]))


def upgrade_protocol(state: TableState, reader: int, writer: int) -> TableState:
    """Raise the versions of the protocol, with the features that they imply; never lower them."""
    was = state.protocol
    reader, writer = max(reader, was.min_reader_version), max(writer, was.min_writer_version)
    if writer < WRITERS_WITH_FEATURES:
        return _with_asked(state, implied_by(reader, writer) - was.supported)
    named = [name for name in was.supported if name in FEATURES and FEATURES[name].for_readers]
    readers = frozenset(named) if reader >= READERS_WITH_FEATURES else frozenset[str]()
    return replace(state, protocol=Protocol(reader, writer, readers, was.supported))


def enable_deletion_vectors(state: TableState) -> TableState:
    """Add the feature `deletionVectors` and switch deletion vectors on."""
    properties = {**state.metadata.configuration, Property.ENABLE_DELETION_VECTORS: "true"}
    return _finished(state.with_features(["deletionVectors"]).with_properties(properties))


def add_constraint(state: TableState, name: str, expression: str) -> TableState:
    """Add a CHECK constraint; the caller has checked it on the rows of the table."""
    condition = checked_condition(name, expression)
    if found := _found(state, name):
        raise InvalidArgumentError(
            f"there is a constraint {found} already: {constraints(state.metadata)[found]}",
            hint="drop it first, or use another name",
        )
    properties = {**state.metadata.configuration, f"{CONSTRAINT}{name.lower()}": condition}
    return state.with_properties(properties).upgraded(state)


def drop_constraint(state: TableState, name: str, *, if_exists: bool = False) -> TableState:
    found = _found(state, name)
    if found is None and not if_exists:
        known = ", ".join(constraints(state.metadata))
        others = f", only {known}" if known else ": the table has none"
        raise InvalidArgumentError(
            f"there is no constraint {name}{others}",
            hint=format_hint("{} ignores it", argument(if_exists=True)),
        )
    kept = dict(state.metadata.configuration)
    kept.pop(f"{CONSTRAINT}{found}", None)
    return state.with_properties(kept)


def checked_condition(name: str, expression: str) -> str:
    """Return the condition of a constraint, trimmed."""
    if not name.strip() or not expression.strip():
        raise InvalidArgumentError(f"constraint {name!r} has no name or no condition")
    return expression.strip()


def _found(state: TableState, name: str) -> str | None:
    known = constraints(state.metadata)
    return next((each for each in known if each.lower() == name.lower()), None)


def _spelled(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties with known names spelled as Delta does, so that they replace defaults."""
    return {
        PROPERTIES[name.lower()].name if name.lower() in PROPERTIES else name: value
        for name, value in properties.items()
    }


def _with_asked(state: TableState, names: Iterable[str]) -> TableState:
    for name in names:
        feature = FEATURES[name]
        written = feature.is_read and feature.writing in ("handled", "append_only", "identity")
        if not written or name in _NOT_BY_HAND:
            raise UnsupportedFeatureError(
                f"delvec does not add the table feature {name}",
                feature=name,
                hint=_NOT_BY_HAND.get(name) or feature.advice,
            )
    return state.with_features(names)


def _finished(state: TableState) -> TableState:
    """Add the properties that features need, and refuse features that exclude each other."""
    metadata = state.metadata
    if metadata.is_on(Property.ENABLE_DELETION_VECTORS):
        for each in FEATURES.values():
            if each.writing == "no_vectors" and metadata.is_on(each.switch):
                raise UnsupportedFeatureError(
                    f"{each.name} does not go together with deletion vectors",
                    feature=each.name,
                    hint=f"set {each.switch} to false first",
                )
        if metadata.is_on(Property.SYMLINK_MANIFEST):
            raise UnsupportedFeatureError(
                f"{Property.SYMLINK_MANIFEST} does not go together with deletion vectors: readers"
                " of the manifest would see deleted rows",
                feature=Property.SYMLINK_MANIFEST,
                hint=f"set {Property.ENABLE_DELETION_VECTORS} or {Property.SYMLINK_MANIFEST} to"
                " false",
            )
    if "rowTracking" not in state.protocol.supported:
        return state
    columns = {Property.ROW_ID_COLUMN: f"_row-id-col-{uuid4()}"}
    columns[Property.ROW_COMMIT_VERSION_COLUMN] = f"_row-commit-version-col-{uuid4()}"
    return state.with_properties({**columns, **metadata.configuration})


def _require_mapping_change(was: Metadata, mode: str) -> None:
    if (was.mapping_mode, mode) not in (("none", "name"), (mode, mode)):
        raise InvalidArgumentError(
            f"{Property.MAPPING_MODE} cannot be changed from {was.mapping_mode} to {mode}",
            hint="only from none to name; for all else copy the rows to a new table",
        )
