"""The bounds of a column's values in each live file, by the statistics of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.pruning.skipping import ColumnBounds
from delvec.delta.schema.arrow import arrow_type
from delvec.delta.schema.partition_values import partition_column
from delvec.delta.schema.types import PrimitiveType
from delvec.delta.schema.walk import find

if TYPE_CHECKING:
    from delvec.delta.log.file_set import FileSet
    from delvec.delta.pruning.predicate import ColumnPath

__all__ = ["column_bounds"]

_LAST_MICROSECOND: Final = 2**63 - 1


def column_bounds(files: FileSet, column: ColumnPath, time_zone: str) -> ColumnBounds | None:
    """Return bounds that hold for every value, or None if nothing is known of the column.

    Args:
        files: The files.
        column: The path of a column, by its logical names.
        time_zone: Of partition values that are timestamps without one.
    """
    metadata = files.metadata
    fields = find(metadata.schema, column)
    if not fields:
        return None
    names, kind = tuple(each.physical_name for each in fields), fields[-1].type
    if not isinstance(kind, PrimitiveType) or fields[0].char_type:
        return None  # char(n) is compared with its padding, which files lack
    if len(column) == 1 and any(field.name == column[0] for field in metadata.partition_fields):
        return _partition_bounds(files, names[0], kind, time_zone)
    low, high, nulls = (("minValues", *names), ("maxValues", *names), ("nullCount", *names))
    arrow = arrow_type(kind)
    ordered = {low: arrow, high: arrow} if _is_ordered(kind) else {}
    found = files.statistics({**ordered, nulls: pa.int64(), ("numRecords",): pa.int64()})
    bottom, top = found.get(low), found.get(high)
    return ColumnBounds(
        None if bottom is None else _surely_below(bottom),
        None if top is None else _surely_above(top),
        _null_counts(found[nulls], files.row_counts),
        files.row_counts,
    )


def _partition_bounds(
    files: FileSet, name: str, kind: PrimitiveType, time_zone: str
) -> ColumnBounds:
    values = partition_column(files.partition_strings(name), kind, time_zone)
    rows = pc.coalesce(files.row_counts, 1)
    nulls = pc.if_else(values.is_null(), rows, pa.scalar(0, pa.int64()))
    return ColumnBounds(values, values, nulls, rows)


def _null_counts(counts: pa.Array | None, rows: pa.Array) -> pa.Array | None:
    """Return null counts that can be trusted: none at all, or every row of the file.

    With a vector any other count says nothing of the rows that are left, and not all writers
    tell by `tightBounds` which rows they counted.
    """
    if counts is None:
        return None
    sure = pc.or_(pc.equal(counts, 0), pc.equal(counts, rows))
    return pc.if_else(sure, counts, pa.scalar(None, pa.int64()))


def _surely_below(low: pa.Array) -> pa.Array:
    """Return minima that no value is below.

    A column of doubles may have been one of floats. Statistics hold these in their shortest form,
    0.7 for 0.699999988079071, which is what a reader gets.
    """
    if not pa.types.is_float64(low.type):
        return low
    return pc.min_element_wise(low, _as_floats(low), skip_nulls=False)


def _as_floats(values: pa.Array) -> pa.Array:
    with np.errstate(over="ignore"):
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float32).astype(np.float64)
    return pa.array(numbers, pa.float64(), mask=~values.is_valid().to_numpy(zero_copy_only=False))


def _surely_above(high: pa.Array) -> pa.Array:
    """Return maxima that no value exceeds, though writers cut timestamps and long strings."""
    if pa.types.is_float64(high.type):
        return pc.max_element_wise(high, _as_floats(high), skip_nulls=False)
    if pa.types.is_timestamp(high.type):
        at_the_end = pc.greater(high.cast(pa.int64()), _LAST_MICROSECOND - 1000)
        # Writers cut them to milliseconds: a value may lie that much above the stored maximum.
        cut = pa.scalar(1000, pa.duration("us"))
        return pc.add(pc.if_else(at_the_end, pa.scalar(None, high.type), high), cut)
    if pa.types.is_string(high.type):
        # A cut string ends in a character that is above all others. Some writers took one that is
        # not: the emoji and other characters beyond 16 bits are larger.
        doubtful = pc.match_substring_regex(high, "[\ufffd\uffff]$")
        return pc.if_else(doubtful, pa.scalar(None, pa.string()), high)
    return high


def _is_ordered(kind: PrimitiveType) -> bool:
    """Whether writers keep a smallest and a largest value for the type, and we trust them."""
    return kind.name not in ("binary", "boolean", "variant", "void")
