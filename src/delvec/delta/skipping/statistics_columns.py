"""Statistics of data files as Arrow columns, from JSON or a checkpoint's columns, and back to JSON.

Only what a query asks for is read and parsed. What cannot be parsed is unknown, and a file with an
unknown bound is not pruned. Only strings with control characters are written one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from delvec.delta.skipping.predicate import convert_literal
from delvec.documents import is_plain, parse_json
from delvec.errors import FormatError

StatisticPath: TypeAlias = tuple[str, ...]
_BLOCK: Final = 8 << 20
# One buffer of Arrow's strings holds 2 GiB; a quarter leaves room for long ones.
_BYTES_AT_ONCE: Final = 1 << 29
_CONTROL: Final = r"[\x00-\x1f]"
_NULL_STRING: Final = pa.nulls(1, pa.string())[0]  # pa.scalar imports pandas, a quarter of a second


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


def statistics_to_json(values: pa.Array) -> pa.Array:
    """Return each value as a string of JSON, null where it is null; omit what JSON cannot hold.

    >>> from datetime import date
    >>> row = {"minValues": {"day": date(2024, 1, 31), "name": None}, "numRecords": 2}
    >>> statistics_to_json(pa.array([row, None])).to_pylist()
    ['{"minValues":{"day":"2024-01-31"},"numRecords":2}', None]
    """
    kind = values.type
    if pa.types.is_struct(kind):
        return _objects(values)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return values.cast(pa.string())
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(values), values.cast(pa.string()), _NULL_STRING)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _strings(values.cast(pa.string()))
    return _times(values)


def nested_type(columns: Mapping[StatisticPath, pa.DataType]) -> pa.DataType:
    """Return the smallest struct that has all paths."""
    return pa.struct(
        [
            (name, inner[()] if () in inner else nested_type(inner))
            for name, inner in by_head(columns).items()
        ]
    )


def by_head(columns: Mapping[StatisticPath, Any]) -> dict[str, dict[StatisticPath, Any]]:
    """Group columns by the first name of their paths, and leave it out."""
    heads: dict[str, dict[StatisticPath, Any]] = {}
    for (head, *rest), value in columns.items():
        heads.setdefault(head, {})[tuple(rest)] = value
    return heads


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
                explicit_schema=pa.schema(list(nested_type(wanted))),
                unexpected_field_behavior="ignore",
            ),
        )
    except pa.ArrowInvalid:
        return None  # a value of another type, a document that is longer than a block, ...
    if table.num_rows != len(texts):
        return None
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    return {
        (head, *inner): pc.struct_field(columns[head], [*inner]) if inner else columns[head]
        for head, *inner in wanted
    }


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
    # NaN and infinities, which are written as strings, are unknown.
    return convert_literal(value, kind)


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
        cells = [_cast_cell(value, kind) for value in values]
        return pa.array(cells, kind) if any(cell is not None for cell in cells) else None


def _timestamps(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parse timestamps; those of instants are unknown without a zone (`Z`, `+01:00`)."""
    if kind.tz is not None:
        zoned = pc.match_substring_regex(values, r"(Z|[+-]\d\d:?\d\d)$")
        values = pc.if_else(zoned, values, pa.scalar(None, pa.string()))
    return values.cast(kind)


def _cast_cell(value: pa.Scalar, kind: pa.DataType) -> object:
    try:
        return value.cast(kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _times(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_date(kind):
        return _in_quotes(values.cast(pa.string()))
    if pa.types.is_timestamp(kind):
        form = "%Y-%m-%dT%H:%M:%S" + ("Z" if kind.tz else "")
        return _in_quotes(pc.strftime(values.cast(pa.timestamp("us", kind.tz)), format=form))
    return pa.nulls(len(values), pa.string())


def _objects(values: pa.StructArray) -> pa.Array:
    parts = [
        pc.binary_join_element_wise(
            f"{json.dumps(field.name, ensure_ascii=False)}:",
            statistics_to_json(pc.struct_field(values, [place])),
            "",
        )
        for place, field in enumerate(values.type)
    ]
    if not parts:
        return pc.if_else(values.is_valid(), "{}", _NULL_STRING)
    # Arrow drops the rows in which all parts are null, so the first part is none of them.
    joined = pc.binary_join_element_wise("", *parts, ",", null_handling="skip")
    whole = pc.binary_join_element_wise("{", pc.utf8_slice_codeunits(joined, 1), "}", "")
    return pc.if_else(values.is_valid(), whole, _NULL_STRING)


def _strings(values: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(values, _CONTROL)).as_py():
        strings = values.to_pylist()
        escaped = [
            None if each is None else json.dumps(each, ensure_ascii=False) for each in strings
        ]
        return pa.array(escaped, pa.string())
    escaped = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
    return _in_quotes(escaped)


def _in_quotes(values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', values, '"', "")
