"""Statistics of the Delta log as the metrics of Iceberg's manifests.

Iceberg trusts what it finds, so only what holds for every row of a file is told to it, deleted rows
too: a RESTORE may bring these back, and the entry of the file in the target stays as it is.

- A file with a vector has metrics only if its log entry says that bounds are wide; others may have
  been made from the rows that were left.
- A column has bounds only where its nulls are counted: if those of some columns are, Iceberg takes
  the other columns to have none.
- Floats have no upper bound: writers leave out NaN, which Spark holds larger than any number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.conversion.schema.value_bytes import hexadecimal
from delvec.delta.schema.arrow import arrow_type
from delvec.delta.schema.types import PrimitiveType, StructType
from delvec.delta.stats.indexed_columns import indexed_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delvec.conversion.schema.iceberg_schema import TargetSchema
    from delvec.conversion.schema.iceberg_types import TargetField
    from delvec.delta.log.file_set import FileSet
    from delvec.delta.pruning.predicate import ColumnPath
    from delvec.delta.stats.columns import StatisticPath

__all__ = ["metric_texts"]

_TEXT: Final = pa.large_string()
_NONE: Final = pa.scalar(None, _TEXT)
_TIGHT: Final[StatisticPath] = ("tightBounds",)
_LONGEST: Final = 64  # characters of a text in bounds
_AT_ONCE: Final = 32  # columns whose statistics are parsed together


@dataclass(frozen=True, slots=True)
class _Column:
    """A column with statistics: where the log has them, and its id in the target."""

    names: ColumnPath
    physical: ColumnPath
    kind: PrimitiveType
    id: int

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


@dataclass(frozen=True, slots=True)
class _Metric:
    """One metric of one column, null for the files without it."""

    id: int
    values: pa.Array


def metric_texts(files: FileSet, schema: TargetSchema) -> pa.Array:
    """Give members of a JSON object for each file, as Iceberg's `ContentFileParser` takes them.

    Of the columns that the table keeps statistics for, without those of partitions. An empty text
    where nothing is known. Memory: about 100 bytes for each file and column with bounds.
    """
    counts: list[_Metric] = []
    nulls: list[_Metric] = []
    lower: list[_Metric] = []
    upper: list[_Metric] = []
    columns = list(_columns(indexed_columns(files.metadata), schema.fields))
    for start in range(0, len(columns), _AT_ONCE):
        some = columns[start : start + _AT_ONCE]
        # The file set keeps what it parsed: one pass over the texts for all of these columns.
        files.statistics({path: kind for each in some for path, kind in each.wanted.items()})
        for column in some:
            known = _null_counts(files, column)
            if known.null_count == len(known):
                continue
            rows = pc.if_else(known.is_valid(), files.row_counts, pa.scalar(None, pa.int64()))
            counts.append(_Metric(column.id, rows.cast(_TEXT)))
            nulls.append(_Metric(column.id, known.cast(_TEXT)))
            low, high = _bounds(files, column, known.is_valid())
            lower += [_Metric(column.id, _quoted(low))] if low is not None else []
            upper += [_Metric(column.id, _quoted(high))] if high is not None else []
    members = [
        _member("value-counts", counts, len(files)),
        _member("null-value-counts", nulls, len(files)),
        _member("lower-bounds", lower, len(files)),
        _member("upper-bounds", upper, len(files)),
    ]
    return _listed(members)


def _columns(
    kind: StructType, fields: Sequence[TargetField], above: tuple[ColumnPath, ColumnPath] = ((), ())
) -> Iterator[_Column]:
    """Find the simple columns, those in structs too, that the target has as well."""
    ours = {field.name: field for field in fields}
    for field in kind.fields:
        target = ours.get(field.name)
        if target is None:
            continue
        names, physical = (*above[0], field.name), (*above[1], field.physical_name)
        if isinstance(field.type, StructType):
            yield from _columns(field.type, target.children, (names, physical))
        elif isinstance(field.type, PrimitiveType):
            yield _Column(names, physical, field.type, target.id)


def _null_counts(files: FileSet, column: _Column) -> pa.Array:
    """Count nulls among all rows, null where that is not known."""
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
    """Give the bounds that hold for every value, in Iceberg's order of values."""
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
        return _lowest_zero(low), None
    return _cut(low), _short(high)


def _lowest_zero(low: pa.Array | None) -> pa.Array | None:
    """Take the lower of both zeros, which Iceberg tells apart; NaN is no bound."""
    if low is None:
        return None
    low = pc.if_else(pc.is_nan(low), pa.scalar(None, low.type), low)
    return pc.if_else(pc.equal(low, 0.0), pa.scalar(-0.0, low.type), low)


def _cut(low: pa.Array | None) -> pa.Array | None:
    """Cut long texts: what they begin with is below them."""
    if low is None or not pa.types.is_string(low.type):
        return low
    return pc.utf8_slice_codeunits(low, 0, _LONGEST)


def _short(high: pa.Array | None) -> pa.Array | None:
    if high is None or not pa.types.is_string(high.type):
        return high
    return pc.if_else(
        pc.less_equal(pc.utf8_length(high), _LONGEST), high, pa.scalar(None, high.type)
    )


def _member(name: str, metrics: Sequence[_Metric], files: int) -> pa.Array:
    """Write one map of a metric by column; null for files that have it for none."""
    if not metrics:
        return pa.nulls(files, _TEXT)
    keys = _listed([_where(each.values.is_valid(), str(each.id)) for each in metrics])
    values = _listed([each.values for each in metrics])
    whole = _joined(f'"{name}":{{"keys":[', keys, '],"values":[', values, "]}")
    return pc.if_else(pc.greater(pc.binary_length(keys), 0), whole, _NONE)


def _quoted(values: pa.Array) -> pa.Array:
    return _joined('"', hexadecimal(values), '"')


def _where(there: pa.Array, text: str) -> pa.Array:
    return pc.if_else(there, pa.scalar(text, _TEXT), _NONE)


def _listed(parts: Sequence[pa.Array]) -> pa.Array:
    """Join what is not null with commas; an empty text where all is."""
    # Arrow drops the rows in which all parts are null, so the first part is none of them.
    separator, nothing = pa.scalar(",", _TEXT), pa.repeat(pa.scalar("", _TEXT), len(parts[0]))
    joined = pc.binary_join_element_wise(nothing, *parts, separator, null_handling="skip")
    return pc.utf8_slice_codeunits(joined, 1)


def _joined(*parts: str | pa.Array) -> pa.Array:
    columns = [pa.scalar(part, _TEXT) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*columns, pa.scalar("", _TEXT))
