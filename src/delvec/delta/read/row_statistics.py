"""Statistics of a data file from its live rows; unlike footers they know deletion vectors.

They are formatted as those from footers, so a file has the same ones either way. Memory holds the
compressed bytes of the indexed columns of one row group, and a batch of 65,536 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.read.data_file import ParquetData
from delvec.delta.read.footer_statistics import NULLS, Form, as_logged, form_of
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.traversal import walk
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.delta.skipping.statistics import indexed_columns, prefix_length
from delvec.vector import Bitmap


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


def compute_statistics(
    data: ParquetData, vector: Bitmap | None, metadata: Metadata, *, tight_bounds: bool
) -> dict[str, Any]:
    """Return the statistics of the live rows of a file, by physical names.

    The number of records is that of all rows; null counts and bounds are those of live rows.
    """
    rows = data.row_starts[-1]
    data.check_vector(vector)
    prefix = prefix_length(metadata)
    leaves = [
        (
            path,
            _Leaf(
                data.schema.names.index(path[0].name),
                [each.name for each in path[1:]],
                form_of(kind, prefix),
            ),
        )
        for path in walk(data.schema, structs_only=True)
        if isinstance(kind := path[-1].type, PrimitiveType)
    ]
    for group in range(len(data.row_starts) - 1):
        for _, columns in data.read_group(group, vector):
            for _, leaf in leaves:
                leaf.measure(columns)
    found = ((path, leaf.statistics()) for path, leaf in leaves)
    return as_logged(rows, found, tight_bounds=tight_bounds)


@dataclass
class _Leaf:
    """A column of a primitive type, and what its values have been so far."""

    place: int  # the position of its outermost column; `inner` is the path from there
    inner: Sequence[str]
    form: Form | None  # how its bounds are shown; None if it has none
    nulls: int = 0
    low: Any = None
    high: Any = None
    has_nan: bool = False

    def measure(self, columns: Sequence[pa.Array]) -> None:
        values = columns[self.place]
        values = pc.struct_field(values, self.inner) if self.inner else values
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

    def statistics(self) -> dict[str, Any]:
        """Return the number of nulls, and the bounds of all values; a NaN is above all others."""
        high = None if self.has_nan else self.high
        return {NULLS: self.nulls} | (self.form.shown(self.low, high) if self.form else {})
