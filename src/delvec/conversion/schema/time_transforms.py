"""Generated partition columns that are a part of a time: which part, and of which column.

Only expressions with the same result in every session count. `DATE_FORMAT` depends on the session's
time zone, where 02:30 is 03:30 on one night of the year, and so does anything over a `timestamp`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from delvec.delta.schema.expressions import GENERATION
from delvec.delta.schema.types import PrimitiveType
from delvec.identifiers import QUOTED, unquote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.types import Field

__all__ = ["TimePart", "TimeParts", "Unit", "time_parts"]

Unit: TypeAlias = Literal["year", "month", "day", "hour"]
TimePart: TypeAlias = Literal["date", "year", "month", "day", "hour"]

_COLUMN: Final = rf"({QUOTED}|[^\W\d]\w*)"
_CAST: Final = re.compile(rf"\s*cast\s*\(\s*{_COLUMN}\s+as\s+date\s*\)\s*", re.IGNORECASE)
_CALL: Final = re.compile(
    rf"\s*(year|month|day|dayofmonth|hour)\s*\(\s*{_COLUMN}\s*\)\s*", re.IGNORECASE
)
_PARTS: Final[dict[str, TimePart]] = {
    "year": "year",
    "month": "month",
    "day": "day",
    "dayofmonth": "day",
    "hour": "hour",
}
_NUMBERS: Final = ("byte", "short", "integer", "long")
# The parts that determine a time down to a unit, the finest first.
_NEEDED: Final[tuple[tuple[Unit, tuple[tuple[TimePart, ...], ...]], ...]] = (
    ("hour", (("date", "hour"), ("year", "month", "day", "hour"))),
    ("day", (("date",), ("year", "month", "day"))),
    ("month", (("year", "month"),)),
    ("year", (("year",),)),
)


@dataclass(frozen=True)
class TimeParts:
    """Partition columns that together determine a time down to a unit."""

    source: Field
    unit: Unit
    columns: Mapping[TimePart, Field]


def time_parts(metadata: Metadata) -> list[TimeParts]:
    """Return the columns whose time the partition columns determine, each to the finest unit."""
    parts: dict[str, dict[TimePart, Field]] = {}
    for column in metadata.partition_fields:
        found = _part(column, metadata)
        if found is not None:
            part, source = found
            parts.setdefault(source.name, {}).setdefault(part, column)
    known = [_finest(metadata.schema.field(name), found) for name, found in parts.items()]
    return [each for each in known if each is not None]


def _finest(source: Field, parts: Mapping[TimePart, Field]) -> TimeParts | None:
    for unit, ways in _NEEDED:
        for way in ways:
            if all(part in parts for part in way):
                return TimeParts(source, unit, {part: parts[part] for part in way})
    return None


def _part(column: Field, metadata: Metadata) -> tuple[TimePart, Field] | None:
    expression = str(column.metadata.get(GENERATION, ""))
    part: TimePart
    if cast := _CAST.fullmatch(expression):
        part, name = "date", cast[1]
    elif call := _CALL.fullmatch(expression):
        part, name = _PARTS[call[1].lower()], call[2]
    else:
        return None
    name = unquote(name)
    sources = [each for each in metadata.schema.fields if each.name.lower() == name.lower()]
    if len(sources) != 1 or not _fits(part, column, sources[0]):
        return None
    return part, sources[0]


def _fits(part: TimePart, column: Field, source: Field) -> bool:
    """Tell whether the expression is exactly this part, for all values and in all sessions."""
    if not isinstance(source.type, PrimitiveType) or not isinstance(column.type, PrimitiveType):
        return False
    kinds = ("timestamp_ntz",) if part in ("date", "hour") else ("timestamp_ntz", "date")
    results = ("date",) if part == "date" else _NUMBERS
    return source.type.name in kinds and column.type.name in results
