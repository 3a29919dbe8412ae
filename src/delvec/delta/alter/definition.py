"""New tables, and changes to what a table is; pure functions from one state to the next.

Costs grow with the columns of the table. Nothing is read or written here.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from delvec.delta.alter.column_mapping import mapped, unmapped
from delvec.delta.alter.columns import add_columns, drop_column, evolved, rename_column
from delvec.delta.alter.table_state import TableState, needed_features
from delvec.delta.alter.valid_schema import require_enforced, require_valid
from delvec.delta.schema.expressions import CONSTRAINT, constraints
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from delvec.delta.schema.types import StructType

__all__ = [
    "TableState",
    "add_columns",
    "add_constraint",
    "add_feature",
    "drop_column",
    "drop_constraint",
    "enable_deletion_vectors",
    "evolved",
    "new_table",
    "rename_column",
    "set_properties",
    "unset_properties",
]

# Features that mean nothing without something else that delvec does not make.
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
    """Make the state of a new table, with deletion vectors on unless a property says otherwise.

    Raises:
        InvalidArgumentError: Columns or properties are not such as Delta takes.
    """
    asked = check_properties({ENABLE_DELETION_VECTORS: "true", **_spelled(properties or {})})
    checks = {
        f"{CONSTRAINT}{each.lower()}": _condition(each, text)
        for each, text in asked.constraints.items()
    }
    plain = unmapped(schema)
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
    state = mapped(TableState(Protocol(1, 2), metadata))
    require_valid(state.metadata)
    require_enforced(state.schema)
    state = _with_asked(state, asked.features)
    return _finished(state.with_features(needed_features(state.metadata)))


def set_properties(
    state: TableState, properties: Mapping[str, Any], *, is_empty: bool = False
) -> TableState:
    """Set properties; what they need of writers is added to the protocol.

    Args:
        state: The table.
        properties: Their texts by name; `delta.feature.<name>` adds a feature.
        is_empty: Whether the table has no files.

    Raises:
        InvalidArgumentError: A property that there is not, a value that it cannot have, or one that
            would shut out readers.
    """
    asked = check_properties(properties)
    if asked.constraints:
        raise InvalidArgumentError(
            f"constraint {next(iter(asked.constraints))} cannot be set as a property",
            hint="add_constraint() looks at the rows that are there first",
        )
    was = state.metadata
    changed = _with_asked(state, asked.features).with_properties(
        {**was.configuration, **asked.properties}
    )
    _require_mapping_change(was, asked.properties.get(MAPPING_MODE, was.mapping_mode))
    if (
        changed.metadata.is_on(ENABLE_ROW_TRACKING)
        and not was.is_on(ENABLE_ROW_TRACKING)
        and not is_empty
    ):
        raise UnsupportedFeatureError(
            "row tracking cannot be switched on for a table that has rows: each of its files would"
            " have to be given ids",
            feature="rowTracking",
            hint="switch it on with delta-spark, or when the table is created",
        )
    changed = mapped(changed, keep_names=True)
    require_valid(changed.metadata)
    return _finished(changed.upgraded(state))


def unset_properties(
    state: TableState, names: Iterable[str], *, if_exists: bool = False
) -> TableState:
    """Take properties away.

    Raises:
        InvalidArgumentError: One is not set (unless `if_exists`), or the table needs it.
    """
    properties = dict(state.metadata.configuration)
    for name in names:
        known = PROPERTIES.get(name.lower())
        found = known.name if known else name
        if found.startswith(CONSTRAINT):
            raise InvalidArgumentError(f"{found} is a constraint", hint="use drop_constraint()")
        if (known and known.managed) or found == MAPPING_MODE:
            raise InvalidArgumentError(f"{found} cannot be unset: the table needs it")
        if found not in properties and not if_exists:
            raise InvalidArgumentError(
                f"property {name} is not set", hint="if_exists=True passes over it"
            )
        properties.pop(found, None)
    return state.with_properties(properties)


def add_constraint(state: TableState, name: str, expression: str) -> TableState:
    """Add a CHECK constraint; whether rows that are there keep it is for the caller to see.

    Raises:
        InvalidArgumentError: There is one of that name.
    """
    text = _condition(name, expression)
    if found := _constraint(state, name):
        raise InvalidArgumentError(
            f"there is a constraint {found} already: {constraints(state.metadata)[found]}",
            hint="drop it first, or take another name",
        )
    properties = {**state.metadata.configuration, f"{CONSTRAINT}{name.lower()}": text}
    return state.with_properties(properties).upgraded(state)


def drop_constraint(state: TableState, name: str, *, if_exists: bool = False) -> TableState:
    """Take a CHECK constraint away.

    Raises:
        InvalidArgumentError: There is none of that name (unless `if_exists`).
    """
    found = _constraint(state, name)
    if found is None and not if_exists:
        known = ", ".join(constraints(state.metadata)) or "none at all"
        raise InvalidArgumentError(
            f"there is no constraint {name}, only {known}", hint="if_exists=True passes over it"
        )
    kept = dict(state.metadata.configuration)
    kept.pop(f"{CONSTRAINT}{found}", None)
    return state.with_properties(kept)


def add_feature(state: TableState, name: str) -> TableState:
    """Add a table feature and those that it needs; readers that do not know it are shut out.

    Raises:
        InvalidArgumentError: There is no such feature.
        UnsupportedFeatureError: It is one that delvec does not write.
    """
    return _finished(_with_asked(state, [feature_name(name)]))


def enable_deletion_vectors(state: TableState) -> TableState:
    """Add the feature and switch it on.

    Raises:
        UnsupportedFeatureError: Something of the table forbids vectors.
    """
    properties = {**state.metadata.configuration, ENABLE_DELETION_VECTORS: "true"}
    return _finished(state.with_features(["deletionVectors"]).with_properties(properties))


def _spelled(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Give known properties their right names, so that a default is overwritten and not doubled."""
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
    """Fill in what features want to be there, and refuse what does not go together."""
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
            hint="only from none to name; copy the rows to a new table for all else",
        )


def _constraint(state: TableState, name: str) -> str | None:
    return next(
        (each for each in constraints(state.metadata) if each.lower() == name.lower()), None
    )


def _condition(name: str, expression: str) -> str:
    if not name.strip() or not expression.strip():
        raise InvalidArgumentError(f"constraint {name!r} has no name or no condition")
    return expression.strip()
