"""Statistics of a data file from its Parquet footer; no row is read.

They differ from delta-spark's, which reads all rows, in what a footer lacks: arrays and maps have
no null count, a column with a NaN has no maximum, one with strings of kilobytes no bounds. A
missing bound keeps a file in every query; a wrong one would lose rows. So what is in doubt is
omitted.

Specification: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from math import isnan
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from delvec.delta.parquet.bound_forms import MAX, MIN, NULLS, form_of, put
from delvec.delta.parquet.conform import find_field, plain_type
from delvec.delta.parquet.footer_bounds import leaf_count
from delvec.delta.schema.arrow import arrow_type
from delvec.delta.schema.types import PrimitiveType, StructType
from delvec.delta.stats.indexed_columns import indexed_columns, prefix_length
from delvec.errors import FormatError
from delvec.parquet.readable import read_footer
from delvec.storage.listed_files import open_listed_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from delvec.delta.schema.metadata import Metadata
    from delvec.delta.schema.types import Field
    from delvec.storage import Storage

__all__ = [
    "file_statistics",
    "read_parquet_footer",
    "require_row_count",
    "row_count",
    "statistics_json",
]

_INEXACT: Final = ("float", "double")


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column that may have statistics, and where the file has it.

    Attributes:
        path: Its physical names, from the outermost struct on.
        type: Its type in the table.
        index: Its place among the Parquet columns; None if the file does not have it.
        stored: Its type in the file.
    """

    path: tuple[str, ...]
    type: PrimitiveType
    index: int | None
    stored: pa.DataType


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

    Raises:
        FormatError: They differ.
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


def file_statistics(
    metadata: Metadata, footer: pq.FileMetaData, *, tight_bounds: bool
) -> dict[str, Any]:
    """Return the statistics of a file as the log keeps them, by physical names.

    Args:
        metadata: The table; its properties decide which columns have statistics.
        footer: Of a file that was written for this table.
        tight_bounds: Add that the bounds are tight, as tables with vectors want it.
    """
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    found: dict[str, Any] = {"numRecords": footer.num_rows, MIN: {}, MAX: {}, NULLS: {}}
    for leaf in _leaves(metadata, footer):
        if leaf.index is None:
            put(found[NULLS], leaf.path, footer.num_rows)
            continue
        columns = [group.column(leaf.index).statistics for group in groups if group.num_rows]
        if all(each is not None and each.has_null_count for each in columns):
            put(found[NULLS], leaf.path, sum(each.null_count for each in columns))
        bounds = _bounds(leaf, columns, prefix_length(metadata))
        if leaf.type.name in _INEXACT and not _names_nan(footer):
            bounds.pop(MAX, None)
        for name, value in bounds.items():
            put(found[name], leaf.path, value)
    known = {name: value for name, value in found.items() if value != {}}
    return known | ({"tightBounds": True} if tight_bounds else {})


def statistics_json(statistics: Any) -> str:  # noqa: ANN401
    """Write statistics as JSON, decimals with all their digits.

    >>> statistics_json({"minValues": {"price": Decimal("1234567890123456789.10")}})
    '{"minValues":{"price":1234567890123456789.10}}'
    """
    if isinstance(statistics, dict):
        pairs = (f"{json.dumps(key)}:{statistics_json(each)}" for key, each in statistics.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(statistics, Decimal):
        return format(statistics, "f")
    return json.dumps(statistics, ensure_ascii=False, allow_nan=False)


def _leaves(metadata: Metadata, footer: pq.FileMetaData) -> Iterator[_Leaf]:
    by_id = metadata.mapping_mode == "id"
    stored = list(footer.schema.to_arrow_schema())
    yield from _leaves_of(indexed_columns(metadata), stored, 0, (), by_id=by_id)


def _leaves_of(
    schema: StructType,
    stored: Sequence[pa.Field],
    first: int,
    above: tuple[str, ...],
    *,
    by_id: bool,
) -> Iterator[_Leaf]:
    for field in schema.fields:
        path = (*above, field.physical_name)
        place = find_field(stored, field, by_id=by_id, path="a new file")
        kind = pa.null() if place is None else plain_type(stored[place].type)
        index = None
        if place is not None:
            index = first + sum(leaf_count(each.type) for each in stored[:place])
        if isinstance(field.type, StructType):
            inner = list(kind) if pa.types.is_struct(kind) else []
            yield from _leaves_of(field.type, inner, index or 0, path, by_id=by_id)
        elif isinstance(field.type, PrimitiveType):
            yield _leaf(field, path, index, kind)


def _leaf(field: Field, path: tuple[str, ...], index: int | None, stored: pa.DataType) -> _Leaf:
    assert isinstance(field.type, PrimitiveType)  # noqa: S101
    if index is not None and field.type.name == "variant" and pa.types.is_struct(stored):
        # Its metadata is null exactly where the variant is.
        index += stored.get_field_index("metadata")
    return _Leaf(path, field.type, index, stored)


def _bounds(leaf: _Leaf, columns: Sequence[Any], prefix: int) -> dict[str, Any]:
    """Return the bounds that hold for all row groups, as JSON has them."""
    form = form_of(leaf.type, prefix)
    if form is None or leaf.stored != arrow_type(leaf.type):
        return {}
    # A row group of nulls alone has no bounds and needs none.
    known = [each for each in columns if each is None or each.num_values or not each.has_null_count]
    if not known or not all(map(_is_exact, known)):
        return {}
    lows = [form.read(each.min_raw) for each in known]
    highs = [form.read(each.max_raw) for each in known]
    shown = {
        MIN: None if any(map(_is_nan, lows)) else form.show_low(min(lows)),
        MAX: None if any(map(_is_nan, highs)) else form.show_high(max(highs)),
    }
    return {name: value for name, value in shown.items() if value is not None}


def _is_nan(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, float) and isnan(value)


def _names_nan(footer: pq.FileMetaData) -> bool:
    """Tell whether a NaN would be the maximum, as Delta has it, and is not omitted.

    Java's writer, which Spark uses, does that; others omit it.
    """
    return str(footer.created_by).startswith("parquet-mr")


def _is_exact(column: Any) -> bool:  # noqa: ANN401
    """Tell whether a row group has both bounds; newer versions of pyarrow know if they were cut."""
    return (
        column is not None
        and column.has_min_max
        and column.physical_type != "INT96"
        and getattr(column, "is_min_value_exact", None) is not False
        and getattr(column, "is_max_value_exact", None) is not False
    )
