"""Column mapping: the ids and the names that columns have in files, whatever queries call them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from delvec.delta.schema.parse import parse_schema
from delvec.delta.schema.properties import MAX_COLUMN_ID
from delvec.delta.schema.types import FIELD_ID, PHYSICAL_NAME
from delvec.delta.schema.walk import all_fields, map_fields

if TYPE_CHECKING:
    from delvec.delta.alter.table_state import TableState
    from delvec.delta.schema.types import Field, StructType

__all__ = ["mapped", "unmapped"]

_KEYS: Final = "delta.columnMapping."


def mapped(state: TableState, *, keep_names: bool = False) -> TableState:
    """Give every field that has none an id and a name for files, if the table maps its columns.

    Args:
        state: The table, with its new columns.
        keep_names: Whether names in files are those of the columns: of files that exist they are.
    """
    if state.metadata.mapping_mode == "none":
        return state
    # Fields are read by the rules of the mode, which those without an id do not keep yet.
    schema = parse_schema(state.metadata.schema_string)
    highest = max(
        [
            int(state.metadata.configuration.get(MAX_COLUMN_ID, "0")),
            *(int(field.metadata.get(FIELD_ID, 0)) for field in all_fields(schema)),
        ]
    )

    def with_id(field: Field) -> Field:
        nonlocal highest
        if FIELD_ID in field.metadata and PHYSICAL_NAME in field.metadata:
            return field
        highest += 1
        name = field.name if keep_names else f"col-{uuid4()}"
        return _with_metadata(field, {FIELD_ID: highest, PHYSICAL_NAME: name})

    schema = map_fields(schema, with_id)
    properties = {**state.metadata.configuration, MAX_COLUMN_ID: str(highest)}
    return state.with_schema(schema).with_properties(properties)


def unmapped(schema: StructType) -> StructType:
    """Take from fields what maps them in another table."""

    def plain(field: Field) -> Field:
        kept = {key: value for key, value in field.metadata.items() if not key.startswith(_KEYS)}
        return replace(field, metadata=kept, physical_name=field.name, field_id=None)

    return map_fields(schema, plain)


def _with_metadata(field: Field, more: dict[str, Any]) -> Field:
    return replace(field, metadata={**field.metadata, **more})
