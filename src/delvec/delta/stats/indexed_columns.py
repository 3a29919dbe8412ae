"""Which columns of a table have statistics: the first ones, or those that a property names."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delvec.delta.schema.properties import (
    INDEXED_COLUMN_COUNT,
    STATS_COLUMNS,
    STRING_PREFIX_LENGTH,
    property_number,
)
from delvec.delta.schema.types import Field, StructType
from delvec.errors import FormatError
from delvec.identifiers import QUOTED, unquote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.delta.schema.metadata import Metadata

__all__ = ["indexed_columns", "prefix_length"]

_PART: Final = rf"(?:{QUOTED}|[^`.,\s][^`.,]*)"
_NAME: Final = re.compile(rf"\s*({_PART}(?:\.{_PART})*)\s*(,|$)")


def indexed_columns(metadata: Metadata) -> StructType:
    """Return the part of the schema that has statistics; partition columns have none.

    `delta.dataSkippingStatsColumns` names columns, a struct with all its fields. Without it the
    first `delta.dataSkippingNumIndexedCols` (32) have statistics, -1 for all; fields of structs
    count one by one.
    """
    partitions = {field.name for field in metadata.partition_fields}
    stored = tuple(field for field in metadata.schema.fields if field.name not in partitions)
    names = metadata.configuration.get(STATS_COLUMNS)
    if names is not None:
        return StructType(_named(stored, _parsed(names)))
    count = _number(metadata, INDEXED_COLUMN_COUNT, 32)
    return StructType(stored if count < 0 else _first(stored, count)[0])


def prefix_length(metadata: Metadata) -> int:
    """Return the number of characters that statistics keep of a string."""
    return _number(metadata, STRING_PREFIX_LENGTH, 32)


def _number(metadata: Metadata, key: str, default: int) -> int:
    text = metadata.configuration.get(key, "").strip()
    if text[:1] == "-":  # for all columns
        return -property_number({key: text[1:]}, key, default)
    return property_number(metadata.configuration, key, default)


def _first(fields: Sequence[Field], count: int) -> tuple[tuple[Field, ...], int]:
    """Return the first fields with at most `count` leaves, and the number of their leaves."""
    kept: list[Field] = []
    taken = 0
    for field in fields:
        if taken >= count:
            break
        if isinstance(field.type, StructType):
            inner, leaves = _first(field.type.fields, count - taken)
            kept.append(replace(field, type=StructType(inner)))
            taken += leaves
        else:
            kept.append(field)
            taken += 1
    return tuple(kept), taken


def _named(fields: Sequence[Field], paths: Sequence[Sequence[str]]) -> tuple[Field, ...]:
    kept: list[Field] = []
    for field in fields:
        rests = [path[1:] for path in paths if path[0] == field.name.lower()]
        if rests and not all(rests):
            kept.append(field)
        elif rests and isinstance(field.type, StructType):
            kept.append(replace(field, type=StructType(_named(field.type.fields, rests))))
    return tuple(kept)


def _parsed(names: str) -> list[list[str]]:
    """Split `a, b.c, `x.y`.z` into paths of names in lower case."""
    paths: list[list[str]] = []
    position = 0
    while position < len(names.rstrip()):
        match = _NAME.match(names, position)
        if match is None:
            raise FormatError(
                f"the property {STATS_COLUMNS} is no list of columns", found=repr(names)[:80]
            )
        parts = re.findall(_PART, match[1])
        paths.append([unquote(part.strip()).lower() for part in parts])
        position = match.end()
    return paths
