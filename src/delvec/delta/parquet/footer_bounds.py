"""The bounds of columns in each row group, by the footer of a Parquet file, to prune row groups.

Statistics are trusted only where a column is stored in the very type that the table has: those of
INT96, of other units and of types that were widened since are ignored.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types

from delvec.delta.parquet.conform import find_field, plain_type
from delvec.delta.pruning.skipping import ColumnBounds
from delvec.delta.schema.arrow import arrow_type
from delvec.delta.schema.types import StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow.parquet as pq

    from delvec.delta.pruning.predicate import ColumnPath
    from delvec.delta.schema.types import DataType, Field

__all__ = ["decimal_of", "footer_bounds", "leaf_count", "string_of"]


def footer_bounds(
    parquet: pq.ParquetFile, schema: StructType, *, by_id: bool, path: str
) -> Callable[[ColumnPath], ColumnBounds | None]:
    """Return the bounds of columns, one entry per row group, for `skipping.may_match`.

    Args:
        parquet: The open file.
        schema: The columns that are in the file, by logical name; no partition columns.
        by_id: Columns are found by their Parquet ids.
        path: The file, for errors.
    """
    groups = [parquet.metadata.row_group(i) for i in range(parquet.metadata.num_row_groups)]
    row_counts = pa.array([group.num_rows for group in groups], pa.int64())

    def bounds_of(column: ColumnPath) -> ColumnBounds | None:
        leaf = _find_leaf(parquet.schema_arrow, schema, column, by_id=by_id, path=path)
        if leaf is None or leaf[0] is None:
            return leaf and ColumnBounds(null_count=row_counts, row_count=row_counts)
        index, stored, data_type = leaf
        if (
            plain_type(stored) != arrow_type(data_type)
            or parquet.schema.column(index).physical_type == "INT96"
        ):
            return None
        statistics = [group.column(index).statistics for group in groups]
        return _bounds(statistics, arrow_type(data_type), row_counts)

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


def _find_leaf(
    stored: pa.Schema, schema: StructType, column: ColumnPath, *, by_id: bool, path: str
) -> tuple[int | None, pa.DataType, DataType] | None:
    """Find the Parquet column of a path through structs.

    Returns:
        Its index and types, the index None if the file does not have it; None if the path leads to
        a nested column or into something else than a struct.
    """
    fields: Sequence[pa.Field] = list(stored)
    inside: DataType = schema
    first = 0
    for name in column:
        if not isinstance(inside, StructType):
            return None
        wanted: Field = inside.field(name)
        inside = wanted.type
        index = find_field(fields, wanted, by_id=by_id, path=path)
        if index is None:
            return None, pa.null(), inside
        first += sum(leaf_count(field.type) for field in fields[:index])
        kind = fields[index].type
        fields = [kind.field(i) for i in range(kind.num_fields)] if types.is_struct(kind) else []
    return None if types.is_nested(kind) else (first, kind, inside)


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
