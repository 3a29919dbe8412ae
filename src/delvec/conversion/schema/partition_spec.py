"""The partition spec of the target: identity fields, and time transforms of generated columns.

Data files have no values of partition columns, so Iceberg reads them from the identity fields. A
transform field serves queries on the column that the partition columns are generated from.

Only expressions with the same result in every session count. `DATE_FORMAT` depends on the session's
time zone, where 02:30 is 03:30 on one night of the year, and so does anything over a `timestamp`.

The partition of each file is JSON for Iceberg; each distinct string value is parsed once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.schema.iceberg_schema import TargetSchema, full_name, walk_iceberg
from delvec.delta.schema.expressions import GENERATION
from delvec.delta.schema.partition_values import PartitionValue, parse_partition_value
from delvec.delta.schema.types import Field, PrimitiveType
from delvec.errors import FormatError, UnsupportedFeatureError
from delvec.iceberg.client.content_files import joined
from delvec.identifiers import QUOTED, unquote

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
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


_STRING: Final = pa.large_string()
_INFINITE: Final = "1e999"  # JSON has no infinity, but Java parses this as one
_LARGEST_INT: Final = 2**31 - 1


def partition_json(files: FileSet, spec: PartitionSpec, *, time_zone: str = "UTC") -> pa.Array:
    """Return a JSON array for each file: the values of the spec's fields, in their order.

    Takes about 20 bytes of memory for each value.
    """
    columns = [
        _identity(files, field.made_from, time_zone)
        if isinstance(field.made_from, Field)
        else _times(files, field.made_from)
        for field in spec.fields
    ]
    if not columns:
        return pa.repeat(pa.scalar("[]", _STRING), len(files))
    values = columns[0]
    for column in columns[1:]:
        values = joined(values, ",", column)
    return joined("[", values, "]")


def _identity(files: FileSet, column: Field, time_zone: str) -> pa.Array:
    def convert(value: str | None) -> str:
        return _json(parse_partition_value(value, column.type, time_zone), column)

    return pc.fill_null(_each_distinct(files, column, convert, _STRING), "null")


def _each_distinct(
    files: FileSet,
    column: Field,
    convert: Callable[[str | None], PartitionValue | None],
    kind: pa.DataType,
) -> pa.Array:
    """Convert the string values of a column, each distinct one once; errors name the first file."""
    encoded = files.partition_strings(column.physical_name).dictionary_encode()
    found: list[PartitionValue | None] = []
    for code, value in enumerate(encoded.dictionary.to_pylist()):
        try:
            found.append(convert(value))
        except (FormatError, UnsupportedFeatureError) as error:  # noqa: PERF203
            first = pc.index(encoded.indices, code).as_py()
            error.message += f" (column {column.name!r} of {files.paths[first].as_py()})"
            if isinstance(error, FormatError):
                error.path = error.path or files.root
            raise
    return pa.array(found, kind).take(encoded.indices)


def _json(value: PartitionValue | None, column: Field) -> str:
    """Return a value as Iceberg's `SingleValueParser` reads it."""
    if isinstance(value, float):
        return _number(value, column)
    if isinstance(value, datetime):
        return json.dumps(
            value.isoformat(timespec="microseconds")
        )  # those with a zone end in +00:00
    if isinstance(value, date):
        return json.dumps(value.isoformat())
    if isinstance(value, Decimal):
        return json.dumps(f"{value:f}")
    if isinstance(value, bytes):
        return json.dumps(value.hex().upper())
    return json.dumps(value)


def _number(value: float, column: Field) -> str:
    if math.isnan(value):
        raise UnsupportedFeatureError(
            "Iceberg cannot represent a partition whose value is NaN",
            feature=f"partition column {column.name}",
            hint="rewrite the rows of that partition with another value",
        )
    if math.isinf(value):
        return _INFINITE if value > 0 else f"-{_INFINITE}"
    # Spark takes both zeros for equal; Iceberg would prune files of one for the other.
    return repr(value + 0.0)


def _times(files: FileSet, parts: TimeParts) -> pa.Array:
    """Return the result of a transform of the source column: a date, or units since 1970."""
    known: dict[str, NDArray[np.int64]] = {}
    blank: NDArray[np.bool_] | None = None
    for part, column in parts.columns.items():
        kind = pa.date32() if part == "date" else pa.int64()
        parse = partial(parse_partition_value, data_type=column.type)
        values = _each_distinct(files, column, parse, kind)
        missing = values.is_null().to_numpy(zero_copy_only=False)
        if blank is not None and (missing != blank).any():
            _refuse(files, parts, int(np.flatnonzero(missing != blank)[0]))
        blank = missing
        numbers = values.cast(pa.int32()) if part == "date" else values
        known[part] = pc.fill_null(numbers, 0).to_numpy().astype(np.int64)
    assert blank is not None  # noqa: S101
    units, wrong = _counted(known, parts.unit)
    wrong = (wrong | (np.abs(units) > _LARGEST_INT)) & ~blank
    if wrong.any():
        _refuse(files, parts, int(np.flatnonzero(wrong)[0]))
    numbers = pa.array(units, mask=blank)
    values = _dates(numbers) if parts.unit == "day" else numbers.cast(_STRING)
    return pc.fill_null(values, "null")


def _counted(
    known: dict[str, NDArray[np.int64]], unit: str
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return units since 1970, and where the parts are no valid time."""
    some = next(iter(known.values()))
    wrong = np.zeros(len(some), np.bool_)
    count = known["date"] if "date" in known else np.clip(known["year"], -(10**6), 10**6) - 1970
    if "year" in known:
        wrong |= np.abs(known["year"]) > 10**6
    if "month" in known:
        wrong |= (known["month"] < 1) | (known["month"] > 12)
        count = count * 12 + known["month"] - 1
    if "day" in known:
        first = _days(count)
        wrong |= (known["day"] < 1) | (known["day"] > _days(count + 1) - first)
        count = first + known["day"] - 1
    if unit == "hour":
        wrong |= (known["hour"] < 0) | (known["hour"] > 23)
        count = count * 24 + known["hour"]
    return count, wrong


def _days(months: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first day of each month; both count from 1970."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _dates(days: pa.Array) -> pa.Array:
    """Return days as JSON strings in ISO 8601; a year of five digits has a sign."""
    encoded = days.dictionary_encode()
    numbers = np.asarray(encoded.dictionary.to_pylist(), np.int64).astype("datetime64[D]")
    months = numbers.astype("datetime64[M]")
    years = months.astype("datetime64[Y]").astype(np.int64) + 1970
    dates = [
        f'"{"-" if year < 0 else "+" if year > 9999 else ""}{abs(year):04d}-{month:02d}-{day:02d}"'
        for year, month, day in zip(
            years.tolist(),
            (months.astype(np.int64) % 12 + 1).tolist(),
            ((numbers - months.astype("datetime64[D]")).astype(np.int64) + 1).tolist(),
            strict=True,
        )
    ]
    return pa.array(dates, _STRING).take(encoded.indices)


def _refuse(files: FileSet, parts: TimeParts, index: int) -> NoReturn:
    found = {
        column.name: files.partition_strings(column.physical_name)[index].as_py()
        for column in parts.columns.values()
    }
    raise FormatError(
        f"the partition of {files.paths[index].as_py()} is not what generated columns make of"
        f" {parts.source.name!r}",
        path=files.root,
        expected=f"a {parts.unit}",
        found=found,
        hint="rewrite the file, or convert the table without transforms",
    )
