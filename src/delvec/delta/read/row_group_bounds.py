"""The bounds of columns in each row group, by the footer of a Parquet file, to prune row groups.

Statistics are trusted only where a column is stored in the very type that the table has: those of
INT96, of other units and of types that were widened since are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from math import isnan
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from delvec.delta.read.conform import find_field, plain_type
from delvec.delta.schema.traversal import find
from delvec.delta.schema.types import Field, StructType, arrow_type
from delvec.delta.skipping.data_skipping import ColumnBounds
from delvec.delta.skipping.predicate import ColumnPath


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
        return _bounds([group.column(index).statistics for group in groups], stored, row_counts)

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


def _bounds(statistics: Sequence[Any], kind: pa.DataType, row_counts: pa.Array) -> ColumnBounds:
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
    """Decode a bound of strings; None if it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:  # cut inside a character by a writer that keeps bounds short
        return None


def decimal_of(raw: int | bytes, scale: int) -> Decimal:
    """Decode a bound of decimals from any of the three physical types that files have."""
    number = raw if isinstance(raw, int) else int.from_bytes(raw, "big", signed=True)
    digits = tuple(int(digit) for digit in str(abs(number)))
    return Decimal((int(number < 0), digits, -scale))
