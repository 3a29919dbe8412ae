"""Checks of a schema: the names of columns, their types, and the partition columns."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from delvec.delta.read.change_feed_schema import FEED_COLUMNS
from delvec.delta.schema.properties import ENABLE_CHANGE_DATA_FEED
from delvec.delta.schema.types import PrimitiveType, StructType
from delvec.delta.schema.walk import all_fields, primitives, walk
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError

if TYPE_CHECKING:
    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.types import DataType

__all__ = ["require_no_collations", "require_nullable_elements", "require_valid_schema"]

_FORBIDDEN: Final = " ,;{}()\n\t="
_COLLATIONS: Final = "__COLLATIONS"  # of the strings in a field, by their places


def require_valid_schema(metadata: Metadata) -> None:
    """Refuse a schema that Delta does not allow.

    Raises:
        InvalidArgumentError: A name or a type is not allowed, or the partition columns are not.
    """
    schema = metadata.schema
    if not schema.fields:
        raise InvalidArgumentError("the table has no columns", hint="give it at least one")
    _require_distinct(schema, "the table")
    for field in all_fields(schema):
        _require_distinct(field.type, field.name)
        if metadata.mapping_mode == "none" and any(each in field.name for each in _FORBIDDEN):
            raise InvalidArgumentError(
                f"column {field.name!r} has one of {_FORBIDDEN!r} in its name",
                hint="use another name, or set delta.columnMapping.mode to name",
            )
        if any(each.name == "void" for each in primitives(field.type)):
            raise InvalidArgumentError(
                f"column {field.name} has no type: it is {field.type}",
                hint="cast it to the type of its values",
            )
    if metadata.is_on(ENABLE_CHANGE_DATA_FEED):
        taken = [name for name in schema.names if name.lower() in FEED_COLUMNS.names]
        if taken:
            raise InvalidArgumentError(
                f"column {taken[0]} has a name that the change data feed reserves",
                hint="rename it, or leave delta.enableChangeDataFeed off",
            )
    _require_partitions(metadata)


def require_no_collations(schema: StructType, known: StructType | None = None) -> None:
    """Refuse strings with a collation, as delta-spark does, unless the table has them already.

    Raises:
        UnsupportedFeatureError: It names the column.
    """
    old = {each.physical_name for each in all_fields(known)} if known is not None else set()
    for field in all_fields(schema):
        if (found := field.metadata.get(_COLLATIONS)) and field.physical_name not in old:
            raise UnsupportedFeatureError(
                f"column {field.name} has a collation, by which other strings are equal: {found}",
                feature="collations",
                hint=f"cast it to a plain string: CAST({field.name} AS STRING COLLATE UTF8_BINARY)",
            )


def require_nullable_elements(schema: StructType) -> None:
    """Refuse NOT NULL fields inside arrays and maps: delta-spark does not write such tables.

    Raises:
        InvalidArgumentError: It names the column.
    """
    for *above, field in walk(schema):
        holder = next((each for each in above if not isinstance(each.type, StructType)), None)
        if holder is not None and not field.nullable:
            raise InvalidArgumentError(
                f"column {holder.name} has a NOT NULL field inside an array or a map",
                hint="Delta allows none there: make it nullable",
            )


def _require_distinct(kind: DataType, where: str) -> None:
    if not isinstance(kind, StructType):
        return
    counts = Counter(name.lower() for name in kind.names)
    equal = [name for name in kind.names if counts[name.lower()] > 1]
    if equal:
        raise InvalidArgumentError(
            f"{where} has more than one column of the same name: {', '.join(equal)}",
            hint="names that differ in case only are the same to Delta",
        )


def _require_partitions(metadata: Metadata) -> None:
    columns = metadata.partition_columns
    if len({name.lower() for name in columns}) < len(columns):
        raise InvalidArgumentError(f"a partition column is named twice: {', '.join(columns)}")
    for name in columns:
        kind = metadata.schema.field(name).type
        if not isinstance(kind, PrimitiveType) or kind.name in ("variant", "void"):
            raise InvalidArgumentError(
                f"the table cannot be partitioned by {name}, which is {kind}",
                hint="partition by a column of a primitive type",
            )
    if len(columns) == len(metadata.schema.fields):
        raise InvalidArgumentError(
            "the table is partitioned by all its columns, and data files would have none",
            hint="leave one out",
        )
