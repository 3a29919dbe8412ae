"""REPLACE of the definition of a table: new schema and properties, same id and history."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delvec.delta.alter.definition import new_table
from delvec.delta.alter.table_state import TableState, with_features
from delvec.delta.schema.properties import (
    IN_COMMIT_TIMESTAMPS_SINCE_TIME,
    IN_COMMIT_TIMESTAMPS_SINCE_VERSION,
    MAX_COLUMN_ID,
    ROW_COMMIT_VERSION_COLUMN,
    ROW_ID_COLUMN,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delvec.delta.schema.types import StructType

__all__ = ["replace_definition"]

_TRACKING: Final = (ROW_ID_COLUMN, ROW_COMMIT_VERSION_COLUMN)
# Properties that writers set, and no user.
_MANAGED: Final = (
    MAX_COLUMN_ID,
    *_TRACKING,
    IN_COMMIT_TIMESTAMPS_SINCE_VERSION,
    IN_COMMIT_TIMESTAMPS_SINCE_TIME,
)


def replace_definition(
    state: TableState,
    schema: StructType,
    partition_by: Sequence[str],
    properties: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
) -> TableState:
    """Return the state of a table after its definition is replaced; its id stays.

    The protocol is never downgraded, since old versions stay readable under it.

    Args:
        state: The table before.
        schema: The new schema.
        partition_by: The new partition columns.
        properties: The new properties; unchanged by default.
        name: The new name; unchanged by default.
        description: The new description; unchanged by default.
    """
    was = state.metadata
    wanted: Mapping[str, Any] = was.configuration if properties is None else properties
    asked = {key: value for key, value in wanted.items() if key not in _MANAGED}
    fresh = new_table(schema, partition_by, asked, name=name, description=description)
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
    return TableState(with_features(state.protocol, fresh.protocol.supported), metadata)
