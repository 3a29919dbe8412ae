"""The columns of a key: found by name, and their types in Arrow and in Parquet.

A key is one or several columns of primitive types. Iceberg allows no floats in a key, and no
columns inside of lists and maps. Fields of structs it allows, but its readers do not: unless a
query selects the struct too, they take the field for null in all rows and all keys, and
delete every row.

Specification: https://iceberg.apache.org/spec/#equality-delete-files
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote_if_needed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["FIELD_ID", "KeyColumn", "arrow_schema", "arrow_type", "key_columns"]

FIELD_ID: Final = "PARQUET:field_id"

_TYPES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "string": pa.large_string(),
    "uuid": pa.binary(16),
    "binary": pa.large_binary(),
}
_FIXED: Final = re.compile(r"fixed\[([0-9]+)\]")
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+), ?([0-9]+)\)")
_ANSWERS: Final = 3


@dataclass(frozen=True)
class KeyColumn:
    """A column of a key.

    Attributes:
        id: Its field id, by which delete files name it.
        name: Its name.
        type: Iceberg's primitive type, as in the schema's JSON.
        required: Whether it is never null.
    """

    id: int
    name: str
    type: str
    required: bool

    @property
    def path(self) -> tuple[str, ...]:
        """Its name, as the path of a column."""
        return (self.name,)


def key_columns(
    schema: Mapping[str, Any], names: Sequence[str], table: str
) -> tuple[KeyColumn, ...]:
    """Return columns by name, in the given order.

    A name is matched exactly if it can be, else ignoring case.

    Args:
        schema: Iceberg's schema, in its JSON form.
        names: The names.
        table: The table's name, for errors.

    Raises:
        InvalidArgumentError: There is no such column, its type cannot be a key, or it is named
            twice.
    """
    if isinstance(names, str) or not names:
        raise InvalidArgumentError(
            f"a key of {table} needs one column or more, got {names!r}",
            hint="name them in a list of strings",
        )
    known = list(_columns(schema["fields"]))
    found = tuple(_find(known, name, table) for name in names)
    ids = [each.id for each in found]
    for place, column in enumerate(found):
        if column.id in ids[:place]:
            raise InvalidArgumentError(f"column {column.name} is named twice in a key of {table}")
    return found


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type in which values of a type are kept and written.

    A UUID is 16 bytes here; Parquet's annotation is the writer's affair.

    >>> arrow_type("decimal(9, 2)"), arrow_type("timestamptz")
    (Decimal128Type(decimal128(9, 2)), TimestampType(timestamp[us, tz=UTC]))
    """
    if kind in _TYPES:
        return _TYPES[kind]
    if fixed := _FIXED.fullmatch(kind):
        return pa.binary(int(fixed[1]))
    if decimal := _DECIMAL.fullmatch(kind):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    raise KeyError(kind)


def arrow_schema(columns: Sequence[KeyColumn]) -> pa.Schema:
    """Return the schema of a file of these keys, with field ids.

    Without field ids Iceberg numbers the columns of a file by their order, and deletes other rows.
    """
    return pa.schema(
        [
            pa.field(
                column.name,
                pa.uuid() if column.type == "uuid" else arrow_type(column.type),
                nullable=not column.required,
                metadata={FIELD_ID: str(column.id)},
            )
            for column in columns
        ]
    )


def _columns(fields: Sequence[Mapping[str, Any]]) -> Iterator[KeyColumn]:
    """Yield all columns, whatever their type: those that cannot be keys have to be found as well.

    The type of one that is not primitive, or is inside of another, says what it is.
    """
    for field in fields:
        kind = field["type"]
        is_primitive = isinstance(kind, str)
        shown = kind if is_primitive else f"a {kind['type']}"
        yield KeyColumn(field["id"], field["name"], shown, field["required"])
        if not is_primitive:
            yield from _inside(kind, field["name"])


def _inside(kind: Mapping[str, Any], name: str, place: str = "") -> Iterator[KeyColumn]:
    """Yield what is inside of a struct, list or map, where no key can be."""
    place = place or f"inside of a {kind['type']}"
    parts = [(each["id"], each["name"], each["type"]) for each in kind.get("fields", ())]
    for part in ("element", "key", "value"):
        parts += [(kind[f"{part}-id"], part, kind[part])] if part in kind else []
    for number, part, inner in parts:
        path = f"{name}.{part}"
        yield KeyColumn(number, path, place, required=False)
        if not isinstance(inner, str):
            yield from _inside(inner, path, place)


def _find(known: Sequence[KeyColumn], name: str, table: str) -> KeyColumn:
    column = _named(known, name, table)
    try:
        arrow_type(column.type)
    except KeyError:
        raise _no_key(column, table) from None
    return column


def _named(known: Sequence[KeyColumn], name: str, table: str) -> KeyColumn:
    for exact in (lambda text: text, str.lower):
        found = [each for each in known if exact(each.name) == exact(name)]
        if len(found) == 1:
            return found[0]
        if found:
            raise InvalidArgumentError(
                f"{name} is ambiguous: {table} has {', '.join(each.name for each in found)}",
                hint="write the name exactly as the table has it",
            )
    lower = {each.name.lower(): each.name for each in known}
    near = [lower[each] for each in get_close_matches(name.lower(), lower, _ANSWERS)]
    hint = (
        f"do you mean {' or '.join(map(quote_if_needed, near))}?"
        if near
        else f"its columns are {', '.join(each.name for each in known if '.' not in each.name)}"
    )
    raise InvalidArgumentError(f"{table} has no column {name}", hint=hint)


def _no_key(column: KeyColumn, table: str) -> InvalidArgumentError:
    if column.type in ("float", "double"):
        return InvalidArgumentError(
            f"column {column.name} of {table} is {column.type}, which Iceberg allows in no key:"
            " equality of floats is not what it seems",
            hint="delete by a condition instead, or by other columns",
        )
    if column.type == "inside of a struct":
        return InvalidArgumentError(
            f"column {column.name} of {table} is {column.type} and cannot be in a key: Iceberg's"
            " readers would delete every row by it",
            hint="delete by a condition instead, or by other columns",
        )
    return InvalidArgumentError(
        f"column {column.name} of {table} is {column.type} and cannot be in a key",
        hint="name columns of primitive types",
    )
