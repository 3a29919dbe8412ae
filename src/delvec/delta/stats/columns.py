"""Statistics of data files, one Arrow column at a time, from JSON or from columns of a checkpoint.

Only what a query asks for is read and parsed. What cannot be parsed is unknown, and a file with an
unknown bound is not pruned.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from delvec.delta.pruning.literals import convert_literal
from delvec.documents import is_plain, parse_json
from delvec.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["StatisticPath", "StatisticsSource", "statistics_columns"]

StatisticPath: TypeAlias = tuple[str, ...]

_BLOCK: Final = 8 << 20
# One buffer of Arrow's strings holds 2 GiB; a quarter leaves room for long ones.
_BYTES_AT_ONCE: Final = 1 << 29


class StatisticsSource(Protocol):
    """A file of the log that has statistics for its adds, in either form."""

    def json_statistics(self) -> pa.Array | pa.ChunkedArray | None:
        """Return the statistics of all adds as JSON."""

    def parsed_statistics(self, *path: str) -> pa.Array | None:
        """Return one column of the statistics."""


def statistics_columns(
    source: StatisticsSource, wanted: Mapping[StatisticPath, pa.DataType]
) -> dict[StatisticPath, pa.Array | None]:
    """Return values for all adds by path, such as `("minValues", "id")`; None if there are none."""
    found: dict[StatisticPath, pa.Array | None] = {}
    for path, kind in wanted.items():
        parsed = source.parsed_statistics(*path)
        found[path] = None if parsed is None else _cast(parsed, kind)
    # A checkpoint may hold both, and the parsed form only for files that its writer understood.
    open_ones = {
        path: kind
        for path, kind in wanted.items()
        if (column := found[path]) is None or column.null_count
    }
    texts = source.json_statistics() if open_ones else None
    if texts is not None and texts.null_count < len(texts):
        for path, column in _from_json(texts, open_ones).items():
            known = found[path]
            found[path] = column if known is None else pc.coalesce(known, column)
    return found


def _from_json(
    texts: pa.Array | pa.ChunkedArray, wanted: Mapping[StatisticPath, pa.DataType]
) -> dict[StatisticPath, pa.Array]:
    written = {path: _written_as(kind) for path, kind in wanted.items()}
    pieces: dict[StatisticPath, list[pa.Array]] = {path: [] for path in wanted}
    for piece in _pieces(texts):
        values = _parsed_at_once(piece, written) or _parsed_one_by_one(piece, written)
        for path, kind in wanted.items():
            typed = _cast(values[path], kind)
            pieces[path].append(pa.nulls(len(piece), kind) if typed is None else typed)
    return {path: pa.concat_arrays(columns) for path, columns in pieces.items()}


def _pieces(texts: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    count = max(1, -(-texts.nbytes // _BYTES_AT_ONCE))
    step = max(1, -(-len(texts) // count))
    for start in range(0, len(texts), step):
        piece = texts.slice(start, step)
        yield piece.combine_chunks() if isinstance(piece, pa.ChunkedArray) else piece


def _parsed_at_once(
    texts: pa.Array, wanted: Mapping[StatisticPath, pa.DataType]
) -> dict[StatisticPath, pa.Array] | None:
    """Parse some fields of all documents together; None if one of them is not as expected."""
    # So that each string is at least one document: equal counts mean one document for each.
    stripped = pc.utf8_trim_whitespace(pc.fill_null(texts, ""))
    filled = pc.if_else(pc.equal(pc.binary_length(stripped), 0), "{}", stripped)
    bounds = pa.array([0, len(filled)], pa.int32())
    lines = pc.binary_join(pa.ListArray.from_arrays(bounds, filled), "\n")
    if not is_plain(memoryview(lines.buffers()[2])):
        return None
    try:
        table = pj.read_json(
            pa.BufferReader(lines.buffers()[2]),
            read_options=pj.ReadOptions(block_size=_BLOCK),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema(_fields(wanted)), unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None  # a value of another type, a document that is longer than a block, ...
    if table.num_rows != len(texts):
        return None
    return {path: _inside(table, path) for path in wanted}


def _fields(wanted: Mapping[StatisticPath, pa.DataType]) -> list[pa.Field]:
    """Make the smallest nested type that has all paths."""
    heads: dict[str, dict[StatisticPath, pa.DataType]] = {}
    for (head, *rest), kind in wanted.items():
        heads.setdefault(head, {})[tuple(rest)] = kind
    return [
        pa.field(head, inner[()] if () in inner else pa.struct(_fields(inner)))
        for head, inner in heads.items()
    ]


def _inside(table: pa.Table, path: StatisticPath) -> pa.Array:
    value = table.column(path[0]).combine_chunks()
    for name in path[1:]:
        value = pc.struct_field(value, [name])
    return value


def _parsed_one_by_one(
    texts: pa.Array, wanted: Mapping[StatisticPath, pa.DataType]
) -> dict[StatisticPath, pa.Array]:
    documents = [_document(text) for text in texts.to_pylist()]
    return {
        path: pa.array([_value(document, path, kind) for document in documents], kind)
        for path, kind in wanted.items()
    }


def _document(text: str | None) -> object:
    try:
        return parse_json(text or "{}", "a statistic", parse_float=Decimal)
    except FormatError:
        return None  # statistics are optional: a file without them is not pruned


def _value(value: object, path: StatisticPath, kind: pa.DataType) -> object:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, Decimal) and pa.types.is_integer(kind):
        value = int(value) if value == value.to_integral_value() else None
    elif isinstance(value, Decimal) and not pa.types.is_decimal(kind):
        value = float(value)
    return convert_literal(
        value, kind
    )  # NaN and infinities, which are written as strings, are unknown


def _written_as(kind: pa.DataType) -> pa.DataType:
    """Return the type in which JSON holds another: dates and timestamps as strings."""
    if pa.types.is_temporal(kind):
        return pa.string()
    return pa.int64() if pa.types.is_integer(kind) else kind


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return the values in the type of the column; None where the types have nothing in common."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if values.type == kind:
        return values
    try:
        if pa.types.is_string(values.type) and pa.types.is_timestamp(kind):
            return _timestamps(values, kind)
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _cast_one_by_one(values, kind)


def _timestamps(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parse timestamps; those of instants are unknown without a zone (`Z`, `+01:00`)."""
    if kind.tz is not None:
        zoned = pc.match_substring_regex(values, r"(Z|[+-]\d\d:?\d\d)$")
        values = pc.if_else(zoned, values, pa.scalar(None, pa.string()))
    return values.cast(kind)


def _cast_one_by_one(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    cells = [_cast_cell(value, kind) for value in values]
    return pa.array(cells, kind) if any(cell is not None for cell in cells) else None


def _cast_cell(value: pa.Scalar, kind: pa.DataType) -> object:
    try:
        return value.cast(kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
