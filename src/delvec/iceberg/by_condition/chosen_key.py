"""The key of a table: named by the caller, by a table property or by the identifier fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delvec.errors import InvalidArgumentError
from delvec.iceberg.deletes.key_columns import key_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.iceberg.client.metadata import TableMetadata
    from delvec.iceberg.deletes.key_columns import KeyColumn

__all__ = ["KEY_PROPERTY", "ChosenKey", "chosen_key"]

KEY_PROPERTY: Final = "delvec.key"
"""The table property that names the columns of the key, separated by commas."""


@dataclass(frozen=True)
class ChosenKey:
    """The columns of a key.

    Attributes:
        columns: Its columns; empty if the table has no key.
        reason: Who named them, or why there are none, as a part of a sentence.
    """

    columns: tuple[KeyColumn, ...]
    reason: str


def chosen_key(
    metadata: TableMetadata, table: str, key: str | Sequence[str] | None = None
) -> ChosenKey:
    """Return the key of a table.

    Args:
        metadata: The table's metadata.
        table: Its name, for errors.
        key: The columns that the caller names.

    Raises:
        InvalidArgumentError: The caller names a column that there is not, or that cannot be a key.
    """
    if key is not None:
        names = [key] if isinstance(key, str) else list(key)
        return ChosenKey(key_columns(metadata.schema, names, table), "the call names it")
    named = metadata.properties.get(KEY_PROPERTY)
    if named is not None:
        names = [part.strip() for part in named.split(",")]
        return _unless_wrong(metadata, table, names, f"the property {KEY_PROPERTY}")
    ids = metadata.schema.get("identifier-field-ids", ())
    if not ids:
        reason = f"the table has neither identifier fields nor the property {KEY_PROPERTY}"
        return ChosenKey((), f"no key is known: {reason}")
    by_id = {field["id"]: field["name"] for field in metadata.schema["fields"]}
    names = [by_id.get(each, f"of field id {each}") for each in ids]
    return _unless_wrong(metadata, table, names, "the identifier fields")


def _unless_wrong(
    metadata: TableMetadata, table: str, names: Sequence[str], source: str
) -> ChosenKey:
    """Return columns that the table itself names; what it says may be out of date."""
    try:
        return ChosenKey(key_columns(metadata.schema, names, table), f"by {source}")
    except InvalidArgumentError as error:
        return ChosenKey((), f"{source} of the table cannot be used: {error.args[0]}")
