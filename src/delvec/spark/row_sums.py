"""A digest of all rows of a DataFrame, independent of their order, computed by one aggregation.

Two DataFrames with the same rows, each as often as in the other, have the same sums. Spark's
`xxhash64` ignores nulls and does not see where a nested value ends: `(null, 5)` and `(5, null)`
have the same hash, as have `[1], [2]` and `[1, 2], []`. So each value is hashed together with
whether it is null, each array and map together with its size. The hashes are added up, since equal
rows would cancel each other out in an exclusive or.

Values are equal as they are to Spark: 0.0 is -0.0, NaN is NaN, and the entries of a map have no
order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, MapType, StructType

from delvec.identifiers import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = ["row_sums", "sums_by_rows"]


def row_sums(rows: DataFrame, kind: StructType) -> tuple[int, ...]:
    """Return the number of rows and the sums of their hashes; one scan.

    Args:
        rows: The rows.
        kind: The columns to hash, with the types that their values are hashed in: a value has
            another hash as an integer than as a long.
    """
    found = rows.agg(*sums_by_rows(kind)).first()
    if found is None:
        raise AssertionError("an aggregate without groups returns a row")
    return tuple(found)


def sums_by_rows(kind: StructType) -> list[Column]:
    """Return the aggregates: the number of rows, and the sums of the three parts of their hashes.

    The sum of a part of 22 bits is exact for two trillion rows, and faster than a sum of decimals.
    """
    hashed = _hash(
        *(part for f in kind.fields for part in _parts(F.col(quote(f.name)), f.dataType))
    )
    parts = (
        F.shiftright(hashed, 43),
        F.shiftright(hashed, 21).bitwiseAND((1 << 22) - 1),
        hashed.bitwiseAND((1 << 21) - 1),
    )
    return [F.count(F.lit(1)), *(F.coalesce(F.sum(part), F.lit(0)) for part in parts)]


def _parts(value: Column, kind: DataType) -> Iterator[Column]:
    """Yield what to hash for a value; different values have different parts."""
    yield value.isNull()
    if isinstance(kind, StructType):
        # The fields of a null struct are null. Flattened, they need no object for each row.
        for field in kind.fields:
            yield from _parts(value.getField(field.name), field.dataType)
    elif isinstance(kind, ArrayType):
        yield F.size(value)
        yield F.transform(value, lambda element: _hash(*_parts(element, kind.elementType)))
    elif isinstance(kind, MapType):
        yield F.size(value)
        yield F.sort_array(
            F.transform(
                F.map_entries(value),
                lambda entry: _hash(
                    *_parts(entry["key"], kind.keyType), *_parts(entry["value"], kind.valueType)
                ),
            )
        )
    else:
        yield value.cast(kind)


def _hash(*parts: Column) -> Column:
    return F.xxhash64(*parts)
