"""Data that callers have in other libraries, as Arrow: pandas, polars, DuckDB and the like.

None of these libraries is imported: what can be read as Arrow has `__arrow_c_stream__`.
"""

from __future__ import annotations

import sys
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from delvec.calls import shown
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["as_array", "as_table", "changed_by_arrow", "exact_limit", "stored", "stored_type"]

_HINT: Final = "give each column values of one type, for example by astype()"
_STORED: Final = frozenset({"arrow.bool8", "arrow.json", "arrow.uuid"})
_DOUBLE: Final = 52  # bits of the fraction of a double
_TIMES: Final = "times"
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
    ((time,), "times of day"),
    ((timedelta,), "durations"),
)


def as_table(data: Any) -> pa.Table | None:  # noqa: ANN401
    """Return what is a table, of whatever library, as an Arrow table; None if it is not one.

    A stream is read to its end. Missing values of pandas (NaN in columns of NumPy, NaT, None) are
    null. Levels of pandas' index that have a name are columns, unless a column has this name.

    Raises:
        InvalidArgumentError: Arrow has no type for a column, or would change a value.
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
                f"{shown(data)} cannot be read as Arrow: {error}",
                hint="cast the column first, for example 128-bit integers to a decimal",
            ) from error
    if isinstance(data, pa.ChunkedArray) or not hasattr(data, "__arrow_c_stream__"):
        return None
    try:
        return pa.RecordBatchReader.from_stream(data).read_all()
    except (pa.ArrowInvalid, pa.ArrowTypeError):
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
    except pa.ArrowException:
        pass  # a column of Python objects that Arrow has no type for
    return None


def changed_by_arrow(values: Iterable[object]) -> str | None:
    """Return what Python values have that Arrow would change silently; None if nothing.

    Arrow makes a date of a time if a date comes first, 1970-01-06 of the number 5 among dates, UTC
    of times without a zone among others, and cuts the nanoseconds of pandas' times.
    """
    listed = list(values)
    kinds = set(map(_kind, set(map(type, listed)))) - {None}
    if _TIMES in kinds:
        # Without NaT of pandas, which Arrow refuses.
        times = [each for each in listed if isinstance(each, datetime) and each == each]  # noqa: PLR0124
        kinds = (kinds - {_TIMES}) | {_kind_of_time(each) for each in times}
        if any(getattr(each, "nanosecond", 0) for each in times):
            return "nanoseconds in Python values, which Arrow would cut"
    return " and ".join(sorted(map(str, kinds))) if len(kinds) > 1 else None


def _kind(of: type) -> str | None:
    return next((name for classes, name in _KINDS if issubclass(of, classes)), None)


def _kind_of_time(value: datetime) -> str:
    return "times without a zone" if value.tzinfo is None else "times with a zone"


def exact_limit(kind: Any) -> float:  # noqa: ANN401
    """Return the number beyond which floats skip integers: 2^53 for doubles, `float` or "f8"."""
    return float(1 << min(int(np.finfo(kind).nmant), _DOUBLE) + 1)


def stored_type(kind: pa.DataType, name: str) -> pa.DataType:
    """Return the type in which Arrow stores an extension type; other types as they are.

    Raises:
        InvalidArgumentError: What is stored means something else, as the numbers of periods do.
    """
    if not isinstance(kind, pa.BaseExtensionType):
        return kind
    if kind.extension_name not in _STORED:
        raise InvalidArgumentError(
            f"column {name} is {kind} in Arrow, which no column of a table can hold",
            hint="convert it first, for example to a string",
        )
    return pa.bool_() if kind.extension_name == "arrow.bool8" else kind.storage_type


def stored(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column in its `stored_type`."""
    kind = stored_type(column.type, name)
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    chunks = [chunk.storage for chunk in column.chunks]
    found = pa.chunked_array(chunks, column.type.storage_type)
    return found if found.type == kind else found.cast(kind)


def _changed_in(column: Any) -> str | None:  # noqa: ANN401
    """Return what Arrow would change in a column of pandas that holds Python values."""
    values = getattr(getattr(column, "dtype", None), "categories", column)
    if str(getattr(values, "dtype", "")) != "object":
        return None
    return changed_by_arrow(values.dropna() if hasattr(values, "dropna") else values)


def _is_of(data: object, library: str, name: str) -> bool:
    """Return whether data is of a class of a library, which is not imported for that."""
    kind = getattr(sys.modules.get(library), name, None)
    return isinstance(kind, type) and isinstance(data, kind)


def _of_pandas(rows: Any) -> pa.Table:  # noqa: ANN401
    index = _named_levels(rows)
    columns = [(name, rows.iloc[:, place]) for place, name in enumerate(rows.columns)]
    for name, column in (*columns, *index):
        changed = _changed_in(column)
        if changed is not None:
            raise InvalidArgumentError(
                f"{shown(rows)} cannot be read as Arrow: column {name} has {changed}", hint=_HINT
            )
    try:
        table = pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(None)
        for name, level in index:
            table = table.append_column(name, pa.array(level, from_pandas=True))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{shown(rows)} cannot be read as Arrow: {'; '.join(map(str, error.args))}",
            hint=_HINT,
        ) from error
    return table


def _of_polars(data: Any) -> Any:  # noqa: ANN401
    kinds = data.dtypes if hasattr(data, "dtypes") else [data.dtype]
    if any(_has_objects(kind) for kind in kinds):
        # Arrow would get the addresses of these objects as bytes.
        raise InvalidArgumentError(
            f"{shown(data)} has a column of Python objects, polars' type Object",
            hint="cast it to a type of its values, such as pl.String",
        )
    # The newest form has Enum and Categorical as dictionaries of views, which Arrow cannot decode.
    return data.to_arrow(compat_level=sys.modules["polars"].CompatLevel.oldest())


def _has_objects(kind: Any) -> bool:  # noqa: ANN401
    inner = [getattr(kind, "inner", None), *(each.dtype for each in getattr(kind, "fields", ()))]
    return str(kind) == "Object" or any(_has_objects(each) for each in inner if each is not None)


def _named_levels(rows: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
    """Return the levels of the index that have a name which no column has."""
    taken = set(map(str, rows.columns))
    return [
        (str(name), rows.index.get_level_values(place))
        for place, name in enumerate(rows.index.names)
        if name is not None and str(name) not in taken
    ]
