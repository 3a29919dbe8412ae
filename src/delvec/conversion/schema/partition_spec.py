"""The partition spec of the target: identity fields, and time transforms of generated columns.

Data files have no values of partition columns, so Iceberg reads them from the identity fields. A
transform field serves queries on the column that the partition columns are generated from.

Only expressions with the same result in every session count. `DATE_FORMAT` depends on the session's
time zone, where 02:30 is 03:30 on one night of the year, and so does anything over a `timestamp`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from delvec.conversion.schema.iceberg_types import full_name, walk_iceberg
from delvec.delta.schema.expressions import GENERATION
from delvec.delta.schema.types import Field, PrimitiveType
from delvec.errors import UnsupportedFeatureError
from delvec.identifiers import QUOTED, unquote

if TYPE_CHECKING:
    from delvec.conversion.schema.iceberg_schema import TargetSchema
    from delvec.delta.schema.metadata import Metadata

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
_FIRST_ID: Final = 1000


@dataclass(frozen=True)
class PartitionSpec:
    """The partition spec of the target; it has no fields if the target is not partitioned."""

    fields: tuple[PartitionField, ...]

    def to_json(self) -> dict[str, Any]:
        """Return Iceberg's JSON form."""
        return {"spec-id": 0, "fields": [field.to_json() for field in self.fields]}


@dataclass(frozen=True)
class PartitionField:
    """A field of the partition spec, and its partition column or the parts of its time."""

    name: str
    transform: str
    source_id: int
    field_id: int
    made_from: Field | TimeParts

    def to_json(self) -> dict[str, Any]:
        """Return Iceberg's JSON form."""
        return {
            "name": self.name,
            "transform": self.transform,
            "source-id": self.source_id,
            "field-id": self.field_id,
        }


@dataclass(frozen=True)
class TimeParts:
    """Partition columns that together determine a time down to a unit."""

    source: Field
    unit: Unit
    columns: Mapping[TimePart, Field]


def partition_spec(
    metadata: Metadata, schema: TargetSchema, *, table: str, transforms: bool = True
) -> PartitionSpec:
    ids = {field.name: field.id for field in schema.fields}
    taken = {full_name(path).lower() for path in walk_iceberg(schema.fields)}
    found: list[tuple[str, str, int, Field | TimeParts]] = []
    for column in metadata.partition_fields:
        if column.name not in ids:
            raise UnsupportedFeatureError(
                f"{table} is partitioned by {column.name!r}, which is not a column of the target",
                feature="partition columns",
                needed_by=table,
                hint="make the partition spec from the schema of the same version",
            )
        found.append((column.name, "identity", ids[column.name], column))
    for parts in time_parts(metadata) if transforms else ():
        name = f"{parts.source.name}_{parts.unit}"
        while name.lower() in taken:
            name += "_part"
        taken.add(name.lower())
        found.append((name, parts.unit, ids[parts.source.name], parts))
    return PartitionSpec(
        tuple(
            PartitionField(name, transform, source, _FIRST_ID + at, made_from)
            for at, (name, transform, source, made_from) in enumerate(found)
        )
    )


def require_same_spec(
    current: Mapping[str, Any], spec: PartitionSpec, table: str, *, schema: TargetSchema
) -> None:
    """Refuse a partition spec that differs from that of the target."""
    ours = [(field.source_id, field.transform) for field in spec.fields]
    theirs = [(field["source-id"], field["transform"]) for field in current["fields"]]
    if ours != theirs:
        names = {field.source_id: field.name for field in spec.fields}
        raise UnsupportedFeatureError(
            f"{table} is partitioned in another way than the target:"
            f" by {listed_fields([(names[number], how) for number, how in ours])} and not by "
            + listed_fields([(field["name"], field["transform"]) for field in current["fields"]]),
            feature="partition columns",
            needed_by=table,
            hint="convert the table to a new target",
        )
    for field in current["fields"]:
        twins = [
            path
            for path in walk_iceberg(schema.fields)
            if full_name(path) == field["name"] and path[-1].id != field["source-id"]
        ]
        if twins:
            raise UnsupportedFeatureError(
                f"{table} has a column {field['name']!r} now, and the target a partition field of"
                " that name which is made from another column",
                feature="partition columns",
                needed_by=table,
                hint="rename the column, or convert the table to a new target",
            )


def listed_fields(fields: list[tuple[str, str]]) -> str:
    """Return partition fields, given by name and transform, as they are named in messages."""
    names = [name if how == "identity" else f"{how} ({name})" for name, how in fields]
    return ", ".join(names) or "nothing"


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


def _finest(source: Field, parts: Mapping[TimePart, Field]) -> TimeParts | None:
    for unit, ways in _NEEDED:
        for way in ways:
            if all(part in parts for part in way):
                return TimeParts(source, unit, {part: parts[part] for part in way})
    return None
