"""Column mapping: the ids and physical names that columns have in data files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from delvec.delta.schema.parse import parse_schema
from delvec.delta.schema.properties import MAX_COLUMN_ID, property_number
from delvec.delta.schema.types import FIELD_ID, PHYSICAL_NAME
from delvec.delta.schema.walk import all_fields, map_fields
from delvec.errors import FormatError

if TYPE_CHECKING:
    from delvec.delta.alter.table_state import TableState
    from delvec.delta.schema.types import Field, StructType

__all__ = ["assign_column_ids", "without_mapping"]

_KEYS: Final = "delta.columnMapping."
_LARGEST_ID: Final = 2**31 - 1


def assign_column_ids(state: TableState, *, keep_names: bool = False) -> TableState:
    """Assign an id and a physical name to each field without, if column mapping is on.

    Args:
        state: The table, with its new columns.
        keep_names: Whether physical names are the names of the columns, as they are in files that
            were written before column mapping was switched on.
    """
    if state.metadata.mapping_mode == "none":
        return state
    # Not `state.schema`: that would demand the ids which new fields do not have yet.
    schema = parse_schema(state.metadata.schema_string)
    highest = max(
        [
            property_number(state.metadata.configuration, MAX_COLUMN_ID, 0, _LARGEST_ID),
            *(_id_of(field) for field in all_fields(schema)),
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


def _id_of(field: Field) -> int:
    found = field.metadata.get(FIELD_ID, 0)
    if type(found) is not int or not 0 <= found <= _LARGEST_ID:
        raise FormatError(f"column {field.name} has an id that is none", found=repr(found)[:40])
    return found


def without_mapping(schema: StructType) -> StructType:
    """Return a schema without the ids and physical names of another table."""

    def plain(field: Field) -> Field:
        kept = {key: value for key, value in field.metadata.items() if not key.startswith(_KEYS)}
        return replace(field, metadata=kept, physical_name=field.name, field_id=None)

    return map_fields(schema, plain)


def _with_metadata(field: Field, more: dict[str, Any]) -> Field:
    return replace(field, metadata={**field.metadata, **more})
