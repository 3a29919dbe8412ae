"""Statistics of the Delta log as metrics of Iceberg's manifests.

Iceberg trusts metrics, so they have to hold for every row of a file, deleted rows included: a
RESTORE may bring these back without a change of the file's manifest entry.

- A file with a vector has metrics only if its bounds are wide (`tightBounds` is false); tight ones
  may have been computed from the live rows alone.
- A column has bounds only where its null count is known: if some columns have null counts, Iceberg
  assumes that the other columns have no nulls.
- Floats have no upper bound: writers ignore NaN, which Spark sorts after every number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.schema.types import PrimitiveType, StructType, arrow_type
from delvec.delta.skipping.statistics import indexed_columns
from delvec.iceberg.client.content_files import hexadecimal, joined

if TYPE_CHECKING:
    from delvec.conversion.schema.iceberg_schema import TargetField, TargetSchema, TargetType
    from delvec.delta.log.file_set import FileSet
    from delvec.delta.skipping.predicate import ColumnPath
    from delvec.delta.skipping.statistics_columns import StatisticPath


_STRING: Final = pa.large_string()
_NULL: Final = pa.scalar(None, _STRING)
_TIGHT: Final[StatisticPath] = ("tightBounds",)
_LONGEST: Final = 64  # characters of a string bound
_MEMBERS: Final = ("value-counts", "null-value-counts", "lower-bounds", "upper-bounds")
_PARSED_TOGETHER: Final = 32  # columns
_WIDE: Final = {"long": pa.int64(), "double": pa.float64()}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column with statistics: its path in the log, and its id and type in the target."""

    names: ColumnPath
    physical: ColumnPath
    kind: PrimitiveType
    id: int
    target_type: TargetType

    @property
    def nulls(self) -> StatisticPath:
        return ("nullCount", *self.physical)

    @property
    def wanted(self) -> dict[StatisticPath, pa.DataType]:
        arrow = arrow_type(self.kind)
        return {
            ("minValues", *self.physical): arrow,
            ("maxValues", *self.physical): arrow,
            self.nulls: pa.int64(),
            ("numRecords",): pa.int64(),
            _TIGHT: pa.bool_(),
        }


def metrics_json(files: FileSet, schema: TargetSchema) -> pa.Array:
    """Return the metrics of each file as members of a JSON object for `ContentFileParser`.

    They cover the columns with statistics, without partition columns; the string is empty where
    nothing is known. Takes about 100 bytes of memory for each file and column with bounds.
    """
    metrics: dict[str, dict[int, pa.Array]] = {name: {} for name in _MEMBERS}
    columns = list(_columns(indexed_columns(files.metadata), schema.fields))
    for start in range(0, len(columns), _PARSED_TOGETHER):
        some = columns[start : start + _PARSED_TOGETHER]
        # The file set caches what it parsed: one pass over the JSON for all of these columns.
        files.statistics({path: kind for each in some for path, kind in each.wanted.items()})
        for column in some:
            known = _null_counts(files, column)
            if known.null_count == len(known):
                continue
            rows = pc.if_else(known.is_valid(), files.row_counts, pa.scalar(None, pa.int64()))
            bounds = map(_quoted, _bounds(files, column, known.is_valid()))
            values = (rows.cast(_STRING), known.cast(_STRING), *bounds)
            for name, each in zip(_MEMBERS, values, strict=True):
                if each is not None:
                    metrics[name][column.id] = each
    return _comma_separated([_member(name, each, len(files)) for name, each in metrics.items()])


def _columns(
    kind: StructType, fields: Sequence[TargetField], above: tuple[ColumnPath, ColumnPath] = ((), ())
) -> Iterator[_Column]:
    """Yield the primitive columns, also inside structs, that the target has as well."""
    ours = {field.name: field for field in fields}
    for field in kind.fields:
        target = ours.get(field.name)
        if target is None:
            continue
        names, physical = (*above[0], field.name), (*above[1], field.physical_name)
        if isinstance(field.type, StructType):
            yield from _columns(field.type, target.children, (names, physical))
        elif isinstance(field.type, PrimitiveType):
            yield _Column(names, physical, field.type, target.id, target.type)


def _null_counts(files: FileSet, column: _Column) -> pa.Array:
    """Return null counts over all physical rows; null where they are unknown."""
    nothing = pa.nulls(len(files), pa.int64())
    counts = files.statistic(column.nulls, pa.int64())
    if counts is None:
        return nothing
    tight = files.statistic(_TIGHT, pa.bool_())
    wide = pa.nulls(len(files), pa.bool_()) if tight is None else pc.invert(tight)
    of_all_rows = pc.or_(pa.array(~files.has_vector), pc.fill_null(wide, False))
    possible = pc.and_(pc.greater_equal(counts, 0), pc.less_equal(counts, files.row_counts))
    sure = pc.and_(of_all_rows, pc.fill_null(possible, False))
    return pc.if_else(sure, counts, nothing)


def _bounds(
    files: FileSet, column: _Column, known: pa.Array
) -> tuple[pa.Array | None, pa.Array | None]:
    """Return the bounds that hold for every value, in Iceberg's sort order."""
    bounds = files.bounds(column.names, "UTC")
    low = None if bounds is None else bounds.minimum
    high = None if bounds is None else bounds.maximum
    if low is not None:
        low = pc.if_else(known, low, pa.scalar(None, low.type))
    if high is not None:
        high = pc.if_else(known, high, pa.scalar(None, high.type))
    if low is not None and high is not None:
        ordered = pc.fill_null(pc.less_equal(low, high), True)
        low, high = (pc.if_else(ordered, each, pa.scalar(None, each.type)) for each in (low, high))
    if pa.types.is_floating(arrow_type(column.kind)):
        return _widened(_float_lower_bound(low), column), None
    return _truncated(_widened(low, column)), _short(_widened(high, column))


def _widened(values: pa.Array | None, column: _Column) -> pa.Array | None:
    """Return values in the target's type, which may be wider; decimals have the same bytes."""
    kind = _WIDE.get(column.target_type) if isinstance(column.target_type, str) else None
    return values if values is None or kind is None else values.cast(kind)


def _float_lower_bound(low: pa.Array | None) -> pa.Array | None:
    """Return -0.0 for zeros, since Iceberg distinguishes the two; NaN is no bound."""
    if low is None:
        return None
    low = pc.if_else(pc.is_nan(low), pa.scalar(None, low.type), low)
    return pc.if_else(pc.equal(low, 0.0), pa.scalar(-0.0, low.type), low)


def _truncated(low: pa.Array | None) -> pa.Array | None:
    """Truncate long strings: a prefix is a lower bound, too."""
    if low is None or not pa.types.is_string(low.type):
        return low
    return pc.utf8_slice_codeunits(low, 0, _LONGEST)


def _short(high: pa.Array | None) -> pa.Array | None:
    """Drop long strings: a prefix is not an upper bound."""
    if high is None or not pa.types.is_string(high.type):
        return high
    return pc.if_else(
        pc.less_equal(pc.utf8_length(high), _LONGEST), high, pa.scalar(None, high.type)
    )


def _member(name: str, metrics: Mapping[int, pa.Array], files: int) -> pa.Array:
    """Return one metric of columns, by their ids, as a JSON member; null for files without it."""
    if not metrics:
        return pa.nulls(files, _STRING)
    keys = _comma_separated([_where(each.is_valid(), str(id_)) for id_, each in metrics.items()])
    values = _comma_separated(list(metrics.values()))
    whole = joined(f'"{name}":{{"keys":[', keys, '],"values":[', values, "]}")
    return pc.if_else(pc.greater(pc.binary_length(keys), 0), whole, _NULL)


def _quoted(values: pa.Array | None) -> pa.Array | None:
    return None if values is None else joined('"', hexadecimal(values), '"')


def _where(condition: pa.Array, value: str) -> pa.Array:
    return pc.if_else(condition, pa.scalar(value, _STRING), _NULL)


def _comma_separated(parts: Sequence[pa.Array]) -> pa.Array:
    """Join the non-null parts with commas; the empty string where all are null."""
    # Arrow drops rows in which all parts are null, so the first part never is.
    separator, empty = pa.scalar(",", _STRING), pa.repeat(pa.scalar("", _STRING), len(parts[0]))
    listed = pc.binary_join_element_wise(empty, *parts, separator, null_handling="skip")
    return pc.utf8_slice_codeunits(listed, 1)
