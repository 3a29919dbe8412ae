"""Data that callers have in other libraries, as Arrow: pandas, polars, DuckDB and the like.

None of these libraries is imported: what can be read as Arrow has `__arrow_c_stream__`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from delvec.calls import shown
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["as_array", "as_table"]


def as_table(data: Any) -> pa.Table | None:  # noqa: ANN401
    """Return what is a table, of whatever library, as an Arrow table; None if it is not one.

    A stream is read to its end. Missing values of pandas (NaN in columns of NumPy, NaT, None) are
    null. An index of pandas that has a name is a column, one without a name is omitted.

    Raises:
        InvalidArgumentError: Arrow has no type for a column.
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
    if isinstance(data, pa.ChunkedArray) or not hasattr(data, "__arrow_c_stream__"):
        return None
    try:
        return pa.RecordBatchReader.from_stream(data).read_all()
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None  # a single column


def as_array(data: Any) -> pa.ChunkedArray | NDArray[Any] | None:  # noqa: ANN401
    """Return what is a single column, of whatever library; None if it is not."""
    if isinstance(data, pa.ChunkedArray | np.ndarray):
        return data
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.chunked_array(data)
        if hasattr(data, "__arrow_c_array__") or hasattr(data, "to_numpy"):
            return pa.chunked_array([pa.array(data)])
    except pa.ArrowException:
        pass  # a column of Python objects that Arrow has no type for
    return None


def _is_of(data: object, library: str, name: str) -> bool:
    """Return whether data is of a class of a library, which is not imported for that."""
    kind = getattr(sys.modules.get(library), name, None)
    return isinstance(kind, type) and isinstance(data, kind)


def _of_pandas(rows: Any) -> pa.Table:  # noqa: ANN401
    names = [name for name in rows.index.names if name is not None]
    has_index = bool(names) and not set(names) & set(rows.columns)
    try:
        return pa.Table.from_pandas(rows, preserve_index=has_index).replace_schema_metadata(None)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{shown(rows)} cannot be read as Arrow: {'; '.join(map(str, error.args))}",
            hint="give each column values of one type, for example by astype()",
        ) from error
