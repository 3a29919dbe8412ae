"""What a Parquet footer tells: rows, the bounds of row groups, and statistics for the log.

Bounds are trusted only where a column is stored in the very type that the table has: those of
INT96, of other units and of types that were widened since are ignored.

Statistics differ from delta-spark's, which reads all rows, in what a footer lacks: arrays and maps
have no null count, a column with a NaN has no maximum, one with strings of kilobytes no bounds.
Bounds are cut, rounded or omitted to become JSON: a missing one keeps a file in every query, a
wrong one would lose rows. So what is in doubt is omitted.

Specification: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from math import isfinite, isnan
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import types

from delvec.delta.log.file_set import FileSet
from delvec.delta.read.conform import find_field, plain_type
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.traversal import find, walk
from delvec.delta.schema.types import Field, PrimitiveType, StructType, arrow_type
from delvec.delta.skipping.data_skipping import ColumnBounds
from delvec.delta.skipping.predicate import ColumnPath
from delvec.delta.skipping.statistics import indexed_columns, prefix_length
from delvec.errors import FormatError
from delvec.parquet.readable import read_footer
from delvec.storage import Storage
from delvec.storage.listed_files import open_listed_file
from delvec.storage.parallel import gather

MIN, MAX, NULLS = "minValues", "maxValues", "nullCount"
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is written by hand
_FIRST_DAY: Final = date(1970, 1, 1)
_LAST_CHARACTER: Final = "\U0010ffff"
_LAST_OF_ASCII: Final = "\x7f"
_INEXACT: Final = ("float", "double")


def read_parquet_footer(storage: Storage, key: str, size: int) -> pq.FileMetaData:
    """Read the footer of a file: one GET up to 64 KiB, one more if it is longer."""
    with storage.open_input(key, size) as file:
        return read_footer(file, storage.uri_of(key))


def row_count(storage: Storage, key: str, size: int) -> int:
    """Count the rows of a file by its footer, see `read_parquet_footer`."""
    return int(read_parquet_footer(storage, key, size).num_rows)


def require_row_count(storage: Storage, path: str, entry: Mapping[str, Any], rows: int) -> None:
    """Compare the row count of the log with the footer, before a file is removed for good.

    Some writers count live rows only: a file with a vector would seem to be empty too early.
    """
    place, key = open_listed_file(storage, path)
    found = row_count(place, key, int(entry.get("size") or 0))
    if found != rows:
        raise FormatError(
            "the log has a wrong row count of a file",
            path=storage.root,
            expected=f"{found} rows in {path}, by its footer",
            found=f"numRecords {rows}",
            hint="let the engine that wrote the file recompute its statistics",
        )


def row_counts(
    storage: Storage, files: FileSet, indexes: Sequence[int] | NDArray[np.int64]
) -> list[int]:
    """Return the rows of some files, deleted ones included.

    Where the log lacks the count, the footer is read: one request for each such file, 16 at a time.
    """
    chosen = [int(index) for index in indexes]
    counts: list[int | None] = files.row_counts.take(chosen).to_pylist() if chosen else []
    unknown = [index for index, count in zip(chosen, counts, strict=True) if count is None]
    footers = iter(_footer_counts(storage, files, unknown))
    return [next(footers) if count is None else count for count in counts]


def physical_rows(
    storage: Storage, files: FileSet, places: NDArray[np.int64], known: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the rows of all files, deleted ones included, as an array.

    Where neither the log nor the target has a count, the footer is read, see `row_counts`.
    """
    counts = files.row_counts
    unknown_to_log = counts.is_null().to_numpy(zero_copy_only=False)
    rows: NDArray[np.int64] = counts.fill_null(0).to_numpy(zero_copy_only=False).copy()
    held = unknown_to_log & (places >= 0)
    rows[held] = known[places[held]]
    unknown = np.flatnonzero(unknown_to_log & (places < 0)).tolist()
    if unknown:
        rows[unknown] = _footer_counts(storage, files, unknown)
    return rows


def file_statistics(
    metadata: Metadata, footer: pq.FileMetaData, *, tight_bounds: bool
) -> dict[str, Any]:
    """Return the statistics of a file as the log keeps them, by physical names."""
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    stored, by_id = list(footer.schema.to_arrow_schema()), metadata.mapping_mode == "id"
    prefix = prefix_length(metadata)
    found: list[tuple[Sequence[Field], dict[str, Any]]] = []
    for path in walk(indexed_columns(metadata), structs_only=True):
        kind = path[-1].type
        if not isinstance(kind, PrimitiveType):
            continue
        index, held = find_leaf(stored, path, by_id=by_id, path="a new file")
        if index is None:
            found.append((path, {NULLS: footer.num_rows}))
            continue
        if kind.name == "variant" and pa.types.is_struct(held):
            index += held.get_field_index("metadata")  # null exactly where the variant is
        columns = [group.column(index).statistics for group in groups if group.num_rows]
        statistics = _bounds(kind, held, columns, prefix)
        # A NaN is the maximum of Java's writer, Spark's; others omit it.
        if kind.name in _INEXACT and not str(footer.created_by).startswith("parquet-mr"):
            statistics.pop(MAX, None)
        if all(each is not None and each.has_null_count for each in columns):
            statistics[NULLS] = sum(each.null_count for each in columns)
        found.append((path, statistics))
    return as_logged(footer.num_rows, found, tight_bounds=tight_bounds)


def as_logged(
    rows: int, columns: Iterable[tuple[Sequence[Field], dict[str, Any]]], *, tight_bounds: bool
) -> dict[str, Any]:
    """Return statistics as the log keeps them: a tree of columns, by physical names, for each."""
    found: dict[str, Any] = {"numRecords": rows, MIN: {}, MAX: {}, NULLS: {}}
    for path, statistics in columns:
        *above, last = (field.physical_name for field in path)
        for name, value in statistics.items():
            tree = found[name]
            for each in above:
                tree = tree.setdefault(each, {})
            tree[last] = value
    known = {name: value for name, value in found.items() if value != {}}
    return known | ({"tightBounds": True} if tight_bounds else {})


@dataclass(frozen=True, slots=True)
class Form:
    """How bounds of a type are read, to compare them, and shown as JSON; None is omitted."""

    read: Callable[[Any], Any]
    show_low: Callable[[Any], Any]
    show_high: Callable[[Any], Any]

    def shown(self, low: Any, high: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return bounds as JSON has them; one that is None is not known."""
        bounds = {
            MIN: None if low is None else self.show_low(low),
            MAX: None if high is None else self.show_high(high),
        }
        return {name: value for name, value in bounds.items() if value is not None}


def form_of(kind: PrimitiveType, prefix: int) -> Form | None:
    if kind.decimal:
        return Form(partial(decimal_of, scale=kind.decimal[1]), _same, _same)
    if kind.name == "string":  # compared as bytes, which is the order of strings in Spark
        return Form(bytes, partial(_cut_low, prefix), partial(_cut_high, prefix))
    return _FORMS.get(kind.name)


def _same(value: Any) -> Any:  # noqa: ANN401
    return value


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _day(days: int) -> str | None:
    try:
        return (_FIRST_DAY + timedelta(days=days)).isoformat()
    except OverflowError:
        return None  # beyond the years 1 to 9999, as Spark has them


def _clock(zone: str, micros: int) -> str | None:
    """Show a time in milliseconds, rounded down: readers allow for a maximum of 1 ms more."""
    try:
        shown = _EPOCH + timedelta(milliseconds=micros // 1000)
    except OverflowError:
        return None
    return shown.isoformat(timespec="milliseconds") + zone


def _cut_low(prefix: int, raw: bytes) -> str | None:
    text = string_of(raw)
    return None if text is None or prefix <= 0 else text[:prefix]


def _cut_high(prefix: int, raw: bytes) -> str | None:
    """Truncate a string and append a character that sorts after the one that was cut off.

    As delta-spark does: lengths are counted in units of UTF-16, and up to twice as many are kept
    where the next character is itself the last of all.
    """
    text = string_of(raw)
    if text is None or prefix <= 0:
        return None
    units = cut = 0
    while cut < len(text) and units < prefix:
        units += 1 + (text[cut] > "\uffff")
        cut += 1
    while units <= 2 * prefix:
        if cut >= len(text):
            return text
        if text[cut] != _LAST_CHARACTER:
            return text[:cut] + (_LAST_OF_ASCII if text[cut] < _LAST_OF_ASCII else _LAST_CHARACTER)
        units += 2
        cut += 1
    return None


_FORMS: Final = {
    **dict.fromkeys(("byte", "short", "integer", "long"), Form(_same, _same, _same)),
    **dict.fromkeys(("float", "double"), Form(float, _finite, _finite)),
    "date": Form(_same, _day, _day),
    "timestamp": Form(_same, partial(_clock, "Z"), partial(_clock, "Z")),
    "timestamp_ntz": Form(_same, partial(_clock, ""), partial(_clock, "")),
}


def _bounds(
    kind: PrimitiveType, stored: pa.DataType, columns: Sequence[Any], prefix: int
) -> dict[str, Any]:
    """Return the bounds that hold for all row groups, as JSON has them."""
    form = form_of(kind, prefix)
    if form is None or stored != arrow_type(kind):
        return {}
    # A row group of nulls alone has no bounds and needs none.
    known = [each for each in columns if each is None or each.num_values or not each.has_null_count]
    if not known or not all(map(_is_exact, known)):
        return {}
    lows = [form.read(each.min_raw) for each in known]
    highs = [form.read(each.max_raw) for each in known]
    return form.shown(
        None if any(map(_is_nan, lows)) else min(lows),
        None if any(map(_is_nan, highs)) else max(highs),
    )


def _is_nan(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, float) and isnan(value)


def _is_exact(column: Any) -> bool:  # noqa: ANN401
    """Tell whether a row group has both bounds; newer versions of pyarrow know if they were cut."""
    return (
        column is not None
        and column.has_min_max
        and column.physical_type != "INT96"
        and getattr(column, "is_min_value_exact", None) is not False
        and getattr(column, "is_max_value_exact", None) is not False
    )


def _footer_counts(storage: Storage, files: FileSet, indexes: Sequence[int]) -> list[int]:
    def count(index: int) -> int:
        place, key = open_listed_file(storage, files.paths[index].as_py())
        return row_count(place, key, int(files.sizes[index]))

    return gather(count, indexes)


def footer_bounds(
    parquet: pq.ParquetFile, schema: StructType, *, by_id: bool, path: str
) -> Callable[[ColumnPath], ColumnBounds | None]:
    """Return the bounds of columns, one entry per row group, for `data_skipping.may_match`."""
    groups = [parquet.metadata.row_group(i) for i in range(parquet.metadata.num_row_groups)]
    row_counts = pa.array([group.num_rows for group in groups], pa.int64())

    def bounds_of(column: ColumnPath) -> ColumnBounds | None:
        fields = find(schema, column)
        if fields is None:
            return None
        index, stored = find_leaf(list(parquet.schema_arrow), fields, by_id=by_id, path=path)
        if index is None:
            return ColumnBounds(null_count=row_counts, row_count=row_counts)
        if (
            types.is_nested(stored)
            or stored != arrow_type(fields[-1].type)
            or parquet.schema.column(index).physical_type == "INT96"
        ):
            return None
        return _per_group([group.column(index).statistics for group in groups], stored, row_counts)

    return bounds_of


def leaf_count(stored: pa.DataType) -> int:
    """Count the Parquet columns that a type is stored in.

    >>> leaf_count(pa.map_(pa.string(), pa.struct([("a", pa.int64()), ("b", pa.int64())])))
    3
    """
    if isinstance(stored, pa.BaseExtensionType):
        return leaf_count(stored.storage_type)
    if types.is_struct(stored):
        return sum(leaf_count(stored.field(index).type) for index in range(stored.num_fields))
    if types.is_map(stored):
        return leaf_count(stored.key_type) + leaf_count(stored.item_type)
    return leaf_count(stored.value_type) if types.is_nested(stored) else 1


def find_leaf(
    stored: Sequence[pa.Field], column: Sequence[Field], *, by_id: bool, path: str
) -> tuple[int | None, pa.DataType]:
    """Return the place of a column among a file's Parquet columns, and its type there.

    The column is a path through structs. Its place is None if the file does not have it.
    """
    first, kind = 0, pa.null()
    for field in column:
        index = find_field(stored, field, by_id=by_id, path=path)
        if index is None:
            return None, pa.null()
        first += sum(leaf_count(each.type) for each in stored[:index])
        kind = plain_type(stored[index].type)
        stored = list(kind) if types.is_struct(kind) else []
    return first, kind


def _per_group(statistics: Sequence[Any], kind: pa.DataType, row_counts: pa.Array) -> ColumnBounds:
    known = [each if each is not None and each.has_min_max else None for each in statistics]
    nulls = [
        each.null_count
        if each is not None and each.has_null_count and each.null_count in (0, rows)
        else None
        for each, rows in zip(statistics, row_counts.to_pylist(), strict=True)
    ]
    return ColumnBounds(
        minimum=_values([each and each.min_raw for each in known], kind),
        maximum=_values([each and each.max_raw for each in known], kind),
        null_count=pa.array(nulls, pa.int64()),
        row_count=row_counts,
    )


def _values(raw: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """Read statistics in their physical form, which unlike Python's dates has no limits."""
    if types.is_date32(kind) or types.is_timestamp(kind):
        return pa.array(raw, pa.int32() if types.is_date32(kind) else pa.int64()).view(kind)
    if types.is_decimal(kind):
        read: Callable[[Any], Any] = partial(decimal_of, scale=kind.scale)
    elif types.is_string(kind):
        read = string_of
    elif types.is_floating(kind):
        read = _number
    elif types.is_boolean(kind) or types.is_integer(kind) or types.is_binary(kind):
        return pa.array(raw, kind)
    else:
        return None
    return pa.array([None if each is None else read(each) for each in raw], kind)


def _number(raw: float) -> float | None:
    return None if isnan(raw) else raw


def string_of(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:  # cut inside a character by a writer that keeps bounds short
        return None


def decimal_of(raw: int | bytes, scale: int) -> Decimal:
    """Decode a bound of decimals from any of the three physical types that files have."""
    number = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
    digits = tuple(int(digit) for digit in str(abs(number)))
    return Decimal((int(number < 0), digits, -scale))
