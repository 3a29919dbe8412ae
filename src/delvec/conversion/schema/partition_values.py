"""The partition of each file as Iceberg's JSON parser takes it; each distinct text is read once."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.schema.partition_values import parse_partition_value
from delvec.delta.schema.types import Field
from delvec.errors import FormatError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from delvec.conversion.schema.partition_spec import PartitionSpec
    from delvec.conversion.schema.time_transforms import TimeParts
    from delvec.delta.log.file_set import FileSet
    from delvec.delta.schema.partition_values import PartitionValue

__all__ = ["partition_texts"]

_TEXT: Final = pa.large_string()
_INFINITE: Final = "1e999"  # JSON has no word for it, and Java reads this as it
_LARGEST_INT: Final = 2**31 - 1


def partition_texts(files: FileSet, spec: PartitionSpec, *, time_zone: str = "UTC") -> pa.Array:
    """Give a JSON array for each file: a value for each field of the spec, in their order.

    Memory: a copy of the texts, about 20 bytes a value.

    Args:
        files: The files of one version of a Delta table.
        spec: How the target is partitioned.
        time_zone: Of the clock that instants without a zone in the log were read from; queries
            take that of the session.

    Raises:
        FormatError: A text in the log is no value of its column.
        UnsupportedFeatureError: A value cannot be told to Iceberg.
    """
    columns = [
        _identity(files, field.made_from, time_zone)
        if isinstance(field.made_from, Field)
        else _times(files, field.made_from)
        for field in spec.fields
    ]
    if not columns:
        return pa.repeat(pa.scalar("[]", _TEXT), len(files))
    values = columns[0]
    for column in columns[1:]:
        values = _joined(values, ",", column)
    return _joined("[", values, "]")


def _identity(files: FileSet, column: Field, time_zone: str) -> pa.Array:
    def convert(text: str | None) -> str:
        return _json(parse_partition_value(text, column.type, time_zone), column)

    return pc.fill_null(_each_text(files, column, convert, _TEXT), "null")


def _each_text(
    files: FileSet,
    column: Field,
    convert: Callable[[str | None], PartitionValue | None],
    kind: pa.DataType,
) -> pa.Array:
    """Convert the texts of a column, each distinct one once; an error names the first file."""
    encoded = _texts(files, column).dictionary_encode()
    found: list[PartitionValue | None] = []
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            found.append(convert(text))
        except (FormatError, UnsupportedFeatureError) as error:  # noqa: PERF203
            first = pc.index(encoded.indices, code).as_py()
            error.message += f" (column {column.name!r} of {files.paths[first].as_py()})"
            if isinstance(error, FormatError):
                error.path = error.path or files.root
            raise
    return pa.array(found, kind).take(encoded.indices)


def _texts(files: FileSet, column: Field) -> pa.Array:
    texts = files.partition_strings(column.physical_name)
    return texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts


def _json(value: PartitionValue | None, column: Field) -> str:
    """Give a value as Iceberg's `SingleValueParser` reads it."""
    if isinstance(value, float):
        return _number(value, column)
    if isinstance(value, datetime):
        return json.dumps(value.isoformat(timespec="microseconds"))  # instants end in +00:00
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
            "a partition whose value is NaN cannot be told to Iceberg",
            feature=f"partition column {column.name}",
            hint="rewrite the rows of that partition with another value",
        )
    if math.isinf(value):
        return _INFINITE if value > 0 else f"-{_INFINITE}"
    # Spark holds both zeros equal; Iceberg would leave out files of the one for the other.
    return repr(value + 0.0)


def _times(files: FileSet, parts: TimeParts) -> pa.Array:
    """Give what a transform makes of the source column: a date, or units since 1970."""
    known: dict[str, NDArray[np.int64]] = {}
    blank: NDArray[np.bool_] | None = None
    for part, column in parts.columns.items():
        kind = pa.date32() if part == "date" else pa.int64()
        parse = partial(parse_partition_value, data_type=column.type)
        values = _each_text(files, column, parse, kind)
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
    texts = _dates(numbers) if parts.unit == "day" else numbers.cast(_TEXT)
    return pc.fill_null(texts, "null")


def _counted(
    known: dict[str, NDArray[np.int64]], unit: str
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Count units since 1970, and tell where the parts are none of a time."""
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
    """Give the first days of months, all since 1970."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _dates(days: pa.Array) -> pa.Array:
    """Write days as ISO 8601 does; the sign of a year with five digits is a part of it."""
    encoded = days.dictionary_encode()
    numbers = np.asarray(encoded.dictionary.to_pylist(), np.int64).astype("datetime64[D]")
    months = numbers.astype("datetime64[M]")
    years = months.astype("datetime64[Y]").astype(np.int64) + 1970
    texts = [
        f'"{"-" if year < 0 else "+" if year > 9999 else ""}{abs(year):04d}-{month:02d}-{day:02d}"'
        for year, month, day in zip(
            years.tolist(),
            (months.astype(np.int64) % 12 + 1).tolist(),
            ((numbers - months.astype("datetime64[D]")).astype(np.int64) + 1).tolist(),
            strict=True,
        )
    ]
    return pa.array(texts, _TEXT).take(encoded.indices)


def _refuse(files: FileSet, parts: TimeParts, index: int) -> NoReturn:
    found = {column.name: _texts(files, column)[index].as_py() for column in parts.columns.values()}
    raise FormatError(
        f"the partition of {files.paths[index].as_py()} is not what generated columns make of"
        f" {parts.source.name!r}",
        path=files.root,
        expected=f"a {parts.unit}",
        found=found,
        hint="rewrite the file, or convert the table without transforms",
    )


def _joined(*parts: str | pa.Array) -> pa.Array:
    columns = [pa.scalar(part, _TEXT) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*columns, pa.scalar("", _TEXT))
