"""The columns of the change data feed, and which versions can be read as one feed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.properties import ENABLE_CHANGE_DATA_FEED
from delvec.delta.schema.types import ArrayType, MapType, StructType
from delvec.errors import InvalidArgumentError, located

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delvec.delta.log.json_actions import JsonActions
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.types import DataType

__all__ = [
    "CHANGE_TYPE",
    "COMMIT_TIMESTAMP",
    "COMMIT_VERSION",
    "FEED_COLUMNS",
    "readable_as",
    "require_feed_names",
    "require_recorded",
]

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
FEED_COLUMNS: Final = pa.schema(
    [
        (CHANGE_TYPE, pa.string()),
        (COMMIT_VERSION, pa.int64()),
        (COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")),
    ]
)


def require_feed_names(table: str, schema: StructType) -> None:
    """Refuse a table with columns that the feed has too.

    Raises:
        InvalidArgumentError: With the column.
    """
    taken = [name for name in schema.names if name.lower() in FEED_COLUMNS.names]
    if taken:
        raise InvalidArgumentError(
            f"{table} has a column {taken[0]}, as the change feed has", hint="rename the column"
        )


def require_recorded(
    table: str, first: Snapshot, last: Snapshot, commits: Sequence[JsonActions]
) -> None:
    """Refuse a range without recorded changes, or with other changes of columns than new ones.

    Raises:
        InvalidArgumentError: With the version.
    """
    require_feed_names(table, last.metadata.schema)
    for version, metadata in _metadata_of(first, commits):
        if not metadata.is_on(ENABLE_CHANGE_DATA_FEED):
            raise InvalidArgumentError(
                f"version {version} of {table} did not record its changes:"
                f" {ENABLE_CHANGE_DATA_FEED} was not true",
                hint="start at a version after the property was set; `delvec history` shows when",
            )
        if metadata.partition_columns != last.metadata.partition_columns or not readable_as(
            metadata.schema, last.metadata.schema
        ):
            raise InvalidArgumentError(
                f"the columns of {table} at version {version} cannot be read as those of version"
                f" {last.version}: {metadata.schema}, then {last.metadata.schema}",
                hint="read the versions before and after the change of columns one by one",
            )


def _metadata_of(first: Snapshot, commits: Sequence[JsonActions]) -> Iterator[tuple[int, Metadata]]:
    yield first.version, first.metadata
    for version, actions in enumerate(commits, first.version):
        for action in actions.others() if version > first.version else ():
            if isinstance(value := action.get("metaData"), dict):
                with located(actions.uri):
                    yield version, Metadata.from_json(value)


def readable_as(old: DataType, new: DataType) -> bool:
    """Tell whether files of one type can be read as another: the same, apart from new fields."""
    if isinstance(old, StructType) and isinstance(new, StructType):
        by_name = {field.name: field for field in new.fields}
        return all(
            (other := by_name.get(field.name)) is not None
            and other.physical_name == field.physical_name
            and (other.nullable or not field.nullable)
            and readable_as(field.type, other.type)
            for field in old.fields
        )
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return readable_as(old.element, new.element)
    if isinstance(old, MapType) and isinstance(new, MapType):
        return readable_as(old.key, new.key) and readable_as(old.value, new.value)
    return old == new
