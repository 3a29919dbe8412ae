"""Statistics of a data file from its live rows; unlike footers they know deletion vectors.

They are formatted as those from footers, so a file has the same ones either way. Memory holds the
compressed bytes of the indexed columns of one row group, and a batch of 65,536 rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.parquet.bound_forms import MAX, MIN, NULLS, form_of, put
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.delta.schema.walk import walk
from delvec.delta.stats.indexed_columns import indexed_columns, prefix_length
from delvec.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.delta.parquet.bound_forms import Form
    from delvec.delta.parquet.data_file import ParquetData
    from delvec.delta.schema.metadata import Metadata
    from delvec.vector import Bitmap

__all__ = ["live_statistics", "measured_columns"]


def measured_columns(metadata: Metadata) -> StructType:
    """Return the indexed columns that have statistics: no arrays, maps and variants."""
    return StructType(_measured(indexed_columns(metadata).fields))


def _measured(fields: Sequence[Field]) -> tuple[Field, ...]:
    kept = []
    for field in fields:
        if isinstance(field.type, StructType):
            inner = _measured(field.type.fields)
            kept += [replace(field, type=StructType(inner))] if inner else []
        elif isinstance(field.type, PrimitiveType) and field.type.name != "variant":
            kept.append(field)
    return tuple(kept)


def live_statistics(
    data: ParquetData, vector: Bitmap | None, metadata: Metadata, *, tight_bounds: bool
) -> dict[str, Any]:
    """Return the statistics of the live rows of a file, by physical names.

    The number of records is that of all rows, deleted ones included; null counts and bounds are
    those of live rows.

    Args:
        data: The open file, with the columns of `measured_columns`.
        vector: The positions of deleted rows.
        metadata: The table.
        tight_bounds: Add that the bounds are tight, as tables with vectors want it.

    Raises:
        FormatError: The file is damaged, or the vector marks a row that it does not have.
    """
    rows = data.row_starts[-1]
    if vector is not None and vector.max is not None and vector.max >= rows:
        raise FormatError(
            "the deletion vector marks a row that its data file does not have",
            path=data.uri,
            expected=f"rows below {rows}",
            found=f"row {vector.max}",
        )
    leaves = _leaves(data.schema, prefix_length(metadata))
    for group in range(len(data.row_starts) - 1):
        for _, columns in data.read_group(group, vector):
            for leaf in leaves:
                leaf.measure(columns)
    found: dict[str, Any] = {"numRecords": rows, MIN: {}, MAX: {}, NULLS: {}}
    for leaf in leaves:
        put(found[NULLS], leaf.names, leaf.nulls)
        for name, value in leaf.bounds().items():
            put(found[name], leaf.names, value)
    known = {name: value for name, value in found.items() if value != {}}
    return known | ({"tightBounds": True} if tight_bounds else {})


@dataclass
class _Leaf:
    """A column of a primitive type, and what its values have been so far.

    Attributes:
        names: Its physical names, from the outermost struct on.
        place: Its position in each of these.
        kind: Its type.
        form: How its bounds are shown; None if it has none.
    """

    names: tuple[str, ...]
    place: tuple[int, ...]
    kind: PrimitiveType
    form: Form | None
    nulls: int = 0
    low: Any = None
    high: Any = None
    has_nan: bool = False

    def measure(self, columns: Sequence[pa.Array]) -> None:
        """Take the values of a batch into account."""
        first, *inner = self.place
        values = columns[first] if not inner else pc.struct_field(columns[first], inner)
        self.nulls += values.null_count
        if self.form is None:
            return
        values = self._comparable(values)
        low, high = (each.as_py() for each in pc.min_max(values).values())
        if low is not None:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)

    def _comparable(self, values: pa.Array) -> pa.Array:
        """Return values in the form that bounds are shown from, without NaN."""
        if pa.types.is_floating(values.type):
            is_nan = pc.is_nan(values)
            self.has_nan |= bool(pc.any(is_nan).as_py())
            return values.filter(pc.invert(is_nan)) if self.has_nan else values
        if pa.types.is_string(values.type):
            return values.cast(pa.binary())
        if pa.types.is_date(values.type):
            return values.view(pa.int32())
        return values.view(pa.int64()) if pa.types.is_timestamp(values.type) else values

    def bounds(self) -> dict[str, Any]:
        """Return the bounds of all values as JSON has them; a NaN is above all others."""
        if self.form is None or self.low is None:
            return {}
        shown = {
            MIN: self.form.show_low(self.low),
            MAX: None if self.has_nan else self.form.show_high(self.high),
        }
        return {name: value for name, value in shown.items() if value is not None}


def _leaves(schema: StructType, prefix: int) -> list[_Leaf]:
    found = []
    for path in walk(schema, structs_only=True):
        kind = path[-1].type
        if isinstance(kind, PrimitiveType):
            names = tuple(field.physical_name for field in path)
            found.append(_Leaf(names, _place(schema, path), kind, form_of(kind, prefix)))
    return found


def _place(schema: StructType, path: Sequence[Field]) -> tuple[int, ...]:
    place, inside = [], schema
    for field in path:
        place.append(inside.names.index(field.name))
        if isinstance(field.type, StructType):
            inside = field.type
    return tuple(place)
