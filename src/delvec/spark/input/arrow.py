"""Data that callers have in other libraries, as Arrow: pandas, polars, DuckDB and the like.

None of these libraries is imported: what can be read as Arrow has `__arrow_c_stream__`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.calls import describe_value
from delvec.errors import InvalidArgumentError

_HINT: Final = "give each column values of one type, for example by astype()"
_STORED: Final = frozenset({"arrow.bool8", "arrow.json", "arrow.uuid"})
# Arrow takes no values of views, and so decodes no dictionaries of them.
_WITHOUT_VIEWS: Final = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
_DOUBLE: Final = 52  # bits of the fraction of a double
_TIMES: Final = "times"
_OF_DAY: Final = "times of day"
_ERRORS: Final = (pa.ArrowInvalid, NotImplementedError, OverflowError, TypeError)
# The first that fits; what is none of these Arrow converts exactly, or with an error.
_KINDS: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((bool, np.bool_), "booleans"),
    ((np.float16,), "floats of 16 bits"),
    ((np.datetime64,), "times of numpy"),
    ((np.timedelta64,), "durations of numpy"),
    ((int, float, Decimal, np.number), "numbers"),
    ((str,), "strings"),
    ((bytes, bytearray, memoryview), "bytes"),
    ((datetime,), _TIMES),
    ((date,), "dates"),
    ((time,), _OF_DAY),
    ((timedelta,), "durations"),
)


def to_arrow_table(data: Any) -> pa.Table | None:  # noqa: ANN401
    """Return what is a table, of whatever library, as an Arrow table; None if it is not one.

    A stream is read to its end. Missing values of pandas (NaN in columns of NumPy, NaT, None) are
    null. Levels of pandas' index that have a name are columns, unless a column has this name.
    """
    if isinstance(data, pa.StructArray):
        data = pa.RecordBatch.from_struct_array(data)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return data
    if _is_of(data, "pandas", "DataFrame"):
        return _of_pandas(data)
    if _is_of(data, "polars", "LazyFrame"):
        data = data.collect()
    if _is_of(data, "polars", "DataFrame"):
        try:
            return _of_polars(data)
        except pa.ArrowException as error:
            raise InvalidArgumentError(
                f"{describe_value(data)} cannot be read as Arrow: {error}",
                hint="cast the column first, for example 128-bit integers to a decimal",
            ) from error
    has_stream = hasattr(data, "__arrow_c_stream__") and not isinstance(data, pa.ChunkedArray)
    if not has_stream or _changed_in(data) is not None:  # by mixed values Arrow can crash
        return None
    try:
        return pa.RecordBatchReader.from_stream(data).read_all()
    except _ERRORS:
        return None  # a single column


def as_array(data: Any) -> pa.ChunkedArray | NDArray[Any] | None:  # noqa: ANN401
    """Return what is a single column, of whatever library; None if it is not.

    None as well for Python values of which Arrow would change some: the caller looks at each.
    """
    if isinstance(data, pa.ChunkedArray | np.ndarray):
        return data
    if _changed_in(data) is not None:
        return None
    try:
        if _is_of(data, "polars", "Series"):
            return pa.chunked_array([_of_polars(data)])
        if hasattr(data, "__arrow_c_stream__"):
            return pa.chunked_array(data)
        if hasattr(data, "__arrow_c_array__") or hasattr(data, "to_numpy"):
            return pa.chunked_array([pa.array(data)])
    except (pa.ArrowException, *_ERRORS):
        pass  # a column of Python objects that Arrow has no type for
    return None


def find_inexact(values: Iterable[object]) -> str | None:
    """Return what Python values have that Arrow would change silently; None if nothing.

    Arrow makes a date of a time if a date comes first, 1970-01-06 of the number 5 among dates, UTC
    of times without a zone among others, the number 5 of a UUID that ends with it, and cuts the
    nanoseconds of pandas' times.
    """
    listed = list(values)
    kinds = {_kind(each) for each in set(map(type, listed)) - {type(None)}}
    if _OF_DAY in kinds and any(getattr(each, "tzinfo", None) for each in listed):
        return "times of day with a zone, which Arrow would drop"
    if _TIMES in kinds:
        # Without NaT of pandas, which Arrow refuses.
        times = [each for each in listed if isinstance(each, datetime) and each == each]  # noqa: PLR0124
        zones = {"without" if each.tzinfo is None else "with" for each in times}
        kinds = (kinds - {_TIMES}) | {f"times {each} a zone" for each in zones}
        if any(getattr(each, "nanosecond", 0) for each in times):
            return "nanoseconds in Python values, which Arrow would cut"
    mixed = " and ".join(sorted(each or "other values" for each in kinds))
    return mixed if len(kinds) > 1 else None


def _kind(of: type) -> str | None:
    return next((name for classes, name in _KINDS if issubclass(of, classes)), None)


def max_exact_integer(kind: Any) -> float:  # noqa: ANN401
    """Return the number beyond which floats skip integers: 2^53 for doubles, `float` or "f8"."""
    return float(1 << min(int(np.finfo(kind).nmant), _DOUBLE) + 1)


def stored_type(kind: pa.DataType, name: str) -> pa.DataType:
    """Return the type in which Arrow stores an extension type; other types as they are."""
    if not isinstance(kind, pa.BaseExtensionType):
        return kind
    if kind.extension_name not in _STORED:
        raise InvalidArgumentError(
            f"column {name} is {kind} in Arrow, which no column of a table can hold",
            hint="convert it first, for example to a string",
        )
    return pa.bool_() if kind.extension_name == "arrow.bool8" else kind.storage_type


def stored(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column in its `stored_type`; dictionaries and runs as the values that they mean."""
    kind = stored_type(column.type, name)
    if isinstance(column.type, pa.BaseExtensionType):
        chunks = [chunk.storage for chunk in column.chunks]
        column = pa.chunked_array(chunks, column.type.storage_type)
        column = column if column.type == kind else column.cast(kind)
    if pa.types.is_dictionary(column.type):
        kind = _WITHOUT_VIEWS.get(column.type.value_type, column.type.value_type)
        chunks = [each.dictionary.cast(kind).take(each.indices) for each in column.chunks]
        column = pa.chunked_array(chunks, kind)
    if pa.types.is_run_end_encoded(column.type):
        kind = column.type.value_type
        column = pa.chunked_array([pc.run_end_decode(each) for each in column.chunks], kind)
    return column


def _changed_in(column: Any) -> str | None:  # noqa: ANN401
    """Return what Arrow would change in a column of pandas that holds Python values."""
    values = getattr(getattr(column, "dtype", None), "categories", column)
    if str(getattr(values, "dtype", "")) != "object":
        return None
    return find_inexact(values.dropna() if hasattr(values, "dropna") else values)


def _is_of(data: object, library: str, name: str) -> bool:
    """Return whether data is of a class of a library, which is not imported for that."""
    kind = getattr(sys.modules.get(library), name, None)
    return isinstance(kind, type) and isinstance(data, kind)


def _of_pandas(rows: Any) -> pa.Table:  # noqa: ANN401
    taken = set(map(str, rows.columns))
    index = [
        (str(name), rows.index.get_level_values(place))
        for place, name in enumerate(rows.index.names)
        if name is not None and str(name) not in taken
    ]
    columns = [(name, rows.iloc[:, place]) for place, name in enumerate(rows.columns)]
    for name, column in (*columns, *index):
        changed = _changed_in(column)
        if changed is not None:
            raise InvalidArgumentError(
                f"{describe_value(rows)} cannot be read as Arrow: column {name} has {changed}",
                hint=_HINT,
            )
    try:
        table = pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(None)
        for name, level in index:
            table = table.append_column(name, pa.array(level, from_pandas=True))
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{describe_value(rows)} cannot be read as Arrow: {'; '.join(map(str, error.args))}",
            hint=_HINT,
        ) from error
    return table


def _of_polars(data: Any) -> Any:  # noqa: ANN401
    kinds = data.dtypes if hasattr(data, "dtypes") else [data.dtype]
    if any(_has_objects(kind) for kind in kinds):
        # Arrow would get the addresses of these objects as bytes.
        raise InvalidArgumentError(
            f"{describe_value(data)} has a column of Python objects, polars' type Object",
            hint="cast it to a type of its values, such as pl.String",
        )
    # The newest form has Enum and Categorical as dictionaries of views, which Arrow cannot decode.
    return data.to_arrow(compat_level=sys.modules["polars"].CompatLevel.oldest())


def _has_objects(kind: Any) -> bool:  # noqa: ANN401
    inner = [getattr(kind, "inner", None), *(each.dtype for each in getattr(kind, "fields", ()))]
    return str(kind) == "Object" or any(_has_objects(each) for each in inner if each is not None)
