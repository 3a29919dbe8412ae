"""Keys to delete, from whatever a caller has them in: distinct, sorted, of the columns' types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.errors import InvalidArgumentError
from delvec.iceberg.deletes.key_values import from_arrow, from_python
from delvec.spark.given_data import as_array, as_table
from delvec.spark.given_keys import key_parts, listed_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from delvec.iceberg.deletes.key_columns import KeyColumn

__all__ = ["Keys"]

_MOST: Final = 1 << 31
_HINT: Final = (
    "pass a list, a range, a numpy array, a column or table of Arrow or pandas, or a DataFrame of"
    " Spark"
)


@dataclass(frozen=True, eq=False)
class Keys:
    """Distinct keys in ascending order; the null key of a single column is the first.

    Attributes:
        columns: The columns of the key.
        table: A column of Arrow for each, by its name, in the type of `arrow_type`.
    """

    columns: tuple[KeyColumn, ...]
    table: pa.Table

    @classmethod
    def of(cls, keys: Any, columns: Sequence[KeyColumn]) -> Keys:  # noqa: ANN401
        """Return keys from Python, numpy, Arrow or pandas.

        Keys of one column are values, those of several are tuples in the order of the columns, or
        dicts. Tables and DataFrames are read by column name; other columns of theirs are ignored.
        Null (None) is a key like any other and matches null; so do missing values of pandas.

        Integers from a range, numpy or Arrow never become Python objects: 10 million take about a
        second.

        Raises:
            InvalidArgumentError: A value is not of the column's type or does not fit, or a column
                is missing.
        """
        columns = tuple(columns)
        return cls.of_arrays(_arrays(keys, columns), columns)

    @classmethod
    def of_arrays(cls, arrays: Sequence[pa.ChunkedArray], columns: Sequence[KeyColumn]) -> Keys:
        """Return the distinct keys of converted columns, given in the order of the key."""
        names = [column.name for column in columns]
        if len(columns) == 1:
            [values] = arrays
            return cls(tuple(columns), pa.table([_distinct_values(values)], names))
        # Arrow would take a name that begins with a dot for a path.
        plain = [f"k{place}" for place in range(len(columns))]
        table = pa.table(list(arrays), plain).group_by(plain).aggregate([]).select(plain)
        rows = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in plain])
        return cls(tuple(columns), table.take(rows).combine_chunks().rename_columns(names))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def nulls(self) -> int:
        """The number of keys with a null in some column."""
        missing = np.zeros(len(self), dtype=np.bool_)
        for column in self.table.columns:
            if column.null_count:
                missing |= column.is_null().to_numpy()
        return int(np.count_nonzero(missing))

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The non-null values of the only column as numbers: days, microseconds, or as they are."""
        return _numbers(self.table.column(0))

    def slice(self, start: int, length: int | None = None) -> Keys:
        """Return some of the keys, without copying them."""
        return Keys(self.columns, self.table.slice(start, length))


def _arrays(keys: Any, columns: tuple[KeyColumn, ...]) -> list[pa.ChunkedArray]:  # noqa: ANN401
    """Return a column of Arrow for each key column, in its type."""
    if isinstance(keys, range) and len(columns) == 1:
        return [from_arrow(pa.chunked_array([_of_range(keys, columns[0])]), columns[0])]
    table = as_table(keys)
    if table is not None:
        return [from_arrow(_of_table(table, each), each) for each in columns]
    if isinstance(keys, np.ndarray) and keys.ndim == 2:
        _require_width(keys.shape[1], columns)
        return [_of_numpy(keys[:, place], each) for place, each in enumerate(columns)]
    one = as_array(keys)
    if one is not None:
        _require_width(1, columns)
        if isinstance(one, np.ndarray):
            return [_of_numpy(one, columns[0])]
        return [from_arrow(one, columns[0])]
    return [pa.chunked_array([each]) for each in _of_python(listed_keys(keys), columns)]


def _of_range(keys: range, column: KeyColumn) -> pa.Array:
    if not keys:
        return pa.array([], pa.int64())
    for end in (keys[0], keys[-1]):
        from_python([end], column)  # refuses what is out of range
    if len(keys) > _MOST:
        raise InvalidArgumentError(
            f"{len(keys):,} keys are too many for the driver",
            hint="delete by a condition instead, or pass a DataFrame of Spark",
        )
    return pa.array(np.arange(keys.start, keys.stop, keys.step, dtype=np.int64))


def _of_table(table: pa.Table, column: KeyColumn) -> pa.ChunkedArray:
    """Return a column by its exact name, else ignoring case."""
    for same in (str, str.lower):
        names = [same(each) for each in table.column_names]
        places = [place for place, name in enumerate(names) if name == same(column.name)]
        if len(places) == 1:
            return table.column(places[0])
        if places:
            raise InvalidArgumentError(f"the keys have more than one column {column.name}")
    raise InvalidArgumentError(
        f"the keys have no column {column.name}",
        hint=f"their columns are {', '.join(table.column_names)}",
    )


def _of_numpy(values: NDArray[Any], column: KeyColumn) -> pa.ChunkedArray:
    if values.ndim != 1:
        raise InvalidArgumentError(
            f"an array of {values.ndim} dimensions is not a list of keys", hint=_HINT
        )
    if values.dtype.kind == "O":
        return pa.chunked_array([from_python(values.tolist(), column)])
    try:
        if isinstance(values, np.ma.MaskedArray):
            array = pa.array(values.data, mask=np.ma.getmaskarray(values))
        else:
            array = pa.array(values)
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"numpy's {values.dtype} is no type of keys of column {column.name},"
            f" which is {column.type}"
        ) from error
    return from_arrow(pa.chunked_array([array]), column)


def _of_python(rows: Sequence[Any], columns: tuple[KeyColumn, ...]) -> list[pa.Array]:
    """Return the columns of values, tuples or dicts."""
    kinds = set(map(type, rows))
    if len(columns) == 1 and not any(issubclass(kind, tuple | list | dict) for kind in kinds):
        return [from_python(rows, columns[0])]
    names = [column.name for column in columns]
    split = [key_parts(row, names) for row in rows]
    return [
        from_python([parts[place] for parts in split], column)
        for place, column in enumerate(columns)
    ]


def _require_width(found: int, columns: tuple[KeyColumn, ...]) -> None:
    if found != len(columns):
        names = ", ".join(column.name for column in columns)
        raise InvalidArgumentError(
            f"the keys have {found} column{'' if found == 1 else 's'}, expected {names}",
            hint="pass a table of Arrow, a DataFrame, or a list of tuples",
        )


def _distinct_values(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if _is_counted(values.type):
        numbers = _numbers(values)
        if not (numbers[1:] > numbers[:-1]).all():
            # Not by numpy's `unique`, which hashes: 13 s for 10 million keys, this takes 1 s.
            numbers = np.sort(numbers)
            numbers = numbers[np.concatenate([[True], numbers[1:] != numbers[:-1]])]
        distinct = _of_numbers(numbers, values.type)
        chunks = [pa.nulls(1, values.type)] if values.null_count else []
        return pa.chunked_array([*chunks, distinct], values.type).combine_chunks()
    whole = pc.unique(values)
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.combine_chunks()
    return whole.take(pc.array_sort_indices(whole, null_placement="at_start"))


def _is_counted(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def _numbers(values: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the non-null values as 64-bit numbers; without a copy where they are."""
    whole = values.drop_null().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # no chunks at all
        return np.empty(0, dtype=np.int64)
    narrow = whole.view(pa.int32() if whole.type.bit_width == 32 else pa.int64())
    numbers: NDArray[np.int64] = narrow.to_numpy().astype(np.int64, copy=False)
    return numbers


def _of_numbers(numbers: NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    if kind.bit_width == 32:
        return pa.array(numbers.astype(np.int32)).view(kind)
    return pa.array(numbers).view(kind)
