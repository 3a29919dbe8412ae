"""The definition of a new table, and changes of properties and table features.

Pure functions from one state to the next; costs grow with the number of columns.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from delvec.delta.alter.column_mapping import assign_column_ids, without_mapping
from delvec.delta.alter.constraints import checked_condition
from delvec.delta.alter.table_state import TableState, needed_features
from delvec.delta.alter.valid_schema import (
    require_no_collations,
    require_nullable_elements,
    require_valid_schema,
)
from delvec.delta.schema.expressions import CONSTRAINT
from delvec.delta.schema.features import FEATURES, feature_name
from delvec.delta.schema.known_properties import PROPERTIES, check_properties
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.properties import (
    ENABLE_DELETION_VECTORS,
    ENABLE_ROW_TRACKING,
    MAPPING_MODE,
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
    SYMLINK_MANIFEST,
)
from delvec.delta.schema.protocol import Protocol
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.report.wordings import Wording, call, worded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from delvec.delta.schema.types import StructType

__all__ = [
    "add_feature",
    "enable_deletion_vectors",
    "new_table",
    "set_properties",
    "unset_properties",
]

# Features that need something else, which delvec does not write.
_NOT_BY_HAND: Final = {
    "clustering": "create the table clustered, with delta-spark",
    "checkpointProtection": "it comes with dropping a feature",
}


def new_table(
    schema: StructType,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
) -> TableState:
    """Return the state of a new table, with deletion vectors on unless a property says otherwise.

    Raises:
        InvalidArgumentError: Delta does not allow the schema or a property.
        UnsupportedFeatureError: A string has a collation.
    """
    asked = check_properties({ENABLE_DELETION_VECTORS: "true", **_spelled(properties or {})})
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
    require_valid_schema(state.metadata)
    require_no_collations(state.schema)
    require_nullable_elements(state.schema)
    state = _with_asked(state, asked.features)
    return _finished(state.with_features(needed_features(state.metadata)))


def set_properties(
    state: TableState,
    properties: Mapping[str, Any],
    *,
    is_empty: Callable[[], bool] = lambda: False,
) -> TableState:
    """Set properties, and add the writer features that they need to the protocol.

    Args:
        state: The table.
        properties: Their values by name; `delta.feature.<name>` adds a feature.
        is_empty: Tells whether the table has no files; called only if a property depends on it,
            since the answer takes the entries of all files.

    Raises:
        InvalidArgumentError: Delta has no such property or value, or it needs a reader feature.
        UnsupportedFeatureError: delvec cannot do what the property asks for.
    """
    asked = check_properties(properties)
    if asked.constraints:
        raise InvalidArgumentError(
            f"constraint {next(iter(asked.constraints))} cannot be set as a property",
            hint=worded("{} checks the rows of the table first", call("add_constraint")),
        )
    was = state.metadata
    changed = _with_asked(state, asked.features).with_properties(
        {**was.configuration, **asked.properties}
    )
    _require_mapping_change(was, asked.properties.get(MAPPING_MODE, was.mapping_mode))
    if (
        changed.metadata.is_on(ENABLE_ROW_TRACKING)
        and not was.is_on(ENABLE_ROW_TRACKING)
        and not is_empty()
    ):
        raise UnsupportedFeatureError(
            "row tracking cannot be switched on for a table that has rows: each of its files would"
            " have to be given ids",
            feature="rowTracking",
            hint="switch it on with delta-spark, or when the table is created",
        )
    changed = assign_column_ids(changed, keep_names=True)
    require_valid_schema(changed.metadata)
    return _finished(changed.upgraded(state))


def unset_properties(
    state: TableState, names: Iterable[str], *, if_exists: bool = False
) -> TableState:
    """Unset properties.

    Raises:
        InvalidArgumentError: One is not set (unless `if_exists`), or the table needs it.
    """
    properties = dict(state.metadata.configuration)
    for name in names:
        known = PROPERTIES.get(name.lower())
        found = known.name if known else name
        if found.startswith(CONSTRAINT):
            raise InvalidArgumentError(
                f"{found} is a constraint",
                hint=worded("use {}", call("drop_constraint", found.removeprefix(CONSTRAINT))),
            )
        if (known and known.managed) or found == MAPPING_MODE:
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
    """Add a table feature and those that it depends on.

    Raises:
        InvalidArgumentError: There is no such feature.
        UnsupportedFeatureError: delvec does not write tables with it.
    """
    return _finished(_with_asked(state, [feature_name(name)]))


def enable_deletion_vectors(state: TableState) -> TableState:
    """Add the feature `deletionVectors` and switch deletion vectors on.

    Raises:
        UnsupportedFeatureError: Another feature or property forbids deletion vectors.
    """
    properties = {**state.metadata.configuration, ENABLE_DELETION_VECTORS: "true"}
    return _finished(state.with_features(["deletionVectors"]).with_properties(properties))


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
    if metadata.is_on(ENABLE_DELETION_VECTORS):
        for each in FEATURES.values():
            if each.writing == "no_vectors" and metadata.is_on(each.switch):
                raise UnsupportedFeatureError(
                    f"{each.name} does not go together with deletion vectors",
                    feature=each.name,
                    hint=f"set {each.switch} to false first",
                )
        if metadata.is_on(SYMLINK_MANIFEST):
            raise UnsupportedFeatureError(
                f"{SYMLINK_MANIFEST} does not go together with deletion vectors: readers of"
                " the manifest would see deleted rows",
                feature=SYMLINK_MANIFEST,
                hint=f"set {ENABLE_DELETION_VECTORS} or {SYMLINK_MANIFEST} to false",
            )
    if "rowTracking" not in state.protocol.supported:
        return state
    columns = {ROW_ID_COLUMN: f"_row-id-col-{uuid4()}"}
    columns[ROW_COMMIT_VERSION_COLUMN] = f"_row-commit-version-col-{uuid4()}"
    return state.with_properties({**columns, **metadata.configuration})


def _require_mapping_change(was: Metadata, mode: str) -> None:
    if (was.mapping_mode, mode) not in (("none", "name"), (mode, mode)):
        raise InvalidArgumentError(
            f"{MAPPING_MODE} cannot be changed from {was.mapping_mode} to {mode}",
            hint="only from none to name; for all else copy the rows to a new table",
        )
