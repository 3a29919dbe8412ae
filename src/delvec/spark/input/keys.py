"""Keys to delete, from whatever a caller has them in.

`shape_keys` makes columns of them. For Iceberg they are converted, distinct and sorted, by the
driver, or by executors if a DataFrame has many. For Delta they are rows of a DataFrame, of which a
job casts them. A key is converted exactly or refused: one that was rounded or cut would stand for
another row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql import types as spark_types

from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote
from delvec.spark import jvm
from delvec.spark.engine import bytes_setting
from delvec.spark.failures import fail_on_misfit, quiet, translate_errors
from delvec.spark.input.arrow import as_array, to_arrow_table
from delvec.spark.input.key_values import (
    FLOATS,
    AnyColumn,
    KeyColumn,
    SparkColumn,
    convert,
    infer,
    require_exact_floats,
)
from delvec.spark.input.rows import is_table, read_rows, rows_of_arrow
from delvec.spark.jobs import stage_rows

_HINT: Final = (
    "pass a list, a range, a numpy array, a column or table of Arrow, pandas or polars, or a"
    " Spark DataFrame"
)
_MOST: Final = 1 << 31  # of a range
_FEW: Final = 1 << 16
_STRINGS: Final = ("string", "char", "varchar", "void")
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_FLOATS: Final = (spark_types.FloatType, spark_types.DoubleType)
KEY_MEMORY: Final = "spark.delvec.iceberg.keyMemory"
"""The memory up to which the driver collects the keys of a DataFrame."""


def shape_keys(keys: Any, columns: Sequence[AnyColumn]) -> pa.Table:  # noqa: ANN401
    """Return keys that are in no Spark DataFrame as a table with the key columns, by name.

    Keys of one column are values, those of several are tuples in the order of the columns, or
    dicts. Tables are read by column name; other columns of theirs are ignored. Null (None) is a
    key like any other; so are missing values of pandas. Python values get a type here, by the
    column; columns of Arrow and numpy keep theirs. Integers of these never become Python objects:
    10 million take about a second.
    """
    names = [column.name for column in columns]
    table = to_arrow_table(keys)
    if table is not None:
        return pa.table([_named(table, name) for name in names], names)
    parts = _parts(keys, names)
    if len(parts) != len(names):
        raise InvalidArgumentError(
            f"the keys have {len(parts)} column{'' if len(parts) == 1 else 's'},"
            f" expected {', '.join(names)}",
            hint="pass a table of Arrow, a DataFrame, or a list of tuples",
        )
    arrays = [_to_arrow(part, column) for part, column in zip(parts, columns, strict=True)]
    return pa.table(arrays, names)


def _named(table: pa.Table, wanted: str) -> pa.ChunkedArray:
    for same in (str, str.lower):
        names = [same(each) for each in table.column_names]
        places = [place for place, name in enumerate(names) if name == same(wanted)]
        if len(places) == 1:
            return table.column(places[0])
        if places:
            raise InvalidArgumentError(f"the keys have more than one column {wanted}")
    raise InvalidArgumentError(
        f"the keys have no column {wanted}",
        hint=f"their columns are {', '.join(table.column_names)}",
    )


def _parts(keys: Any, names: Sequence[str]) -> Sequence[Any]:  # noqa: ANN401
    """Return the columns of keys that have no names: lists, or arrays of numpy or Arrow."""
    if isinstance(keys, range) and keys[_FEW:]:
        # Not by `arange` with a step, which counts by floats.
        keys = np.arange(_range_size(keys)) * keys.step + keys[0]
    if isinstance(keys, np.ndarray) and keys.ndim != 1:
        if keys.ndim != 2:
            raise InvalidArgumentError(
                f"an array of {keys.ndim} dimensions is not a list of keys", hint=_HINT
            )
        return list(keys.T)
    one = as_array(keys)
    if one is not None:
        return [one]
    single = isinstance(keys, str | bytes | bytearray | memoryview | Mapping)
    if single or not isinstance(keys, Iterable):
        raise InvalidArgumentError(
            f"keys come in a collection, got {type(keys).__name__}", hint=_HINT
        )
    rows = list(keys)
    kinds = set(map(type, rows))
    if len(names) == 1 and not any(issubclass(kind, tuple | list | dict) for kind in kinds):
        return [rows]
    split = [_split(row, names) for row in rows]
    return [[values[place] for values in split] for place in range(len(names))]


def _split(row: Any, names: Sequence[str]) -> Sequence[Any]:  # noqa: ANN401
    """Return the values of one key, a tuple or a dict, in the order of the key columns."""
    if hasattr(row, "__fields__"):  # a Row of Spark with names
        row = row.asDict()
    if isinstance(row, dict):
        if set(row) != set(names):
            raise InvalidArgumentError(
                f"a key has the columns {', '.join(map(str, row))}, expected {', '.join(names)}"
            )
        return [row[name] for name in names]
    if not isinstance(row, tuple | list) or len(row) != len(names):
        raise InvalidArgumentError(
            f"{row!r} is not a key of the columns {', '.join(names)}",
            hint="write a key of several columns as a tuple in their order, or as a dict",
        )
    return row


def _to_arrow(values: Any, column: AnyColumn) -> pa.ChunkedArray:  # noqa: ANN401
    if isinstance(values, pa.ChunkedArray):
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind in "OSU":
        values = values.tolist()  # Arrow would cut strings at a NUL
    if not isinstance(values, np.ndarray):
        return infer(values, column) if isinstance(column, SparkColumn) else convert(values, column)
    try:
        return pa.chunked_array([pa.array(values)])
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"numpy's {values.dtype} is not a type of keys of column {column.name},"
            f" which is {column.type}"
        ) from error


def _range_size(keys: range) -> int:
    """Return the number of keys in a long range; refuse one of too many, or beyond 64 bits."""
    count = (keys[-1] - keys[0]) // keys.step + 1  # len() has a limit
    if count > _MOST:
        raise InvalidArgumentError(
            f"{count:,} keys are too many for the driver",
            hint="delete by a condition instead, or pass a Spark DataFrame",
        )
    if not -(2**63) <= min(keys[0], keys[-1]) <= max(keys[0], keys[-1]) < 2**63:
        raise InvalidArgumentError(
            f"{keys} has numbers that no column of integers holds",
            hint="end the range within -2^63 and 2^63 - 1",
        )
    return count


def to_frame(
    spark: SparkSession,
    keys: Any,  # noqa: ANN401
    columns: Sequence[SparkColumn],
    call: str,
) -> DataFrame:
    """Return keys as a DataFrame of the key columns, which a job casts exactly; see `shape_keys`.

    A long range stays one. Strings of `char(n)` columns are padded. `call` is the method that takes
    the keys, for errors.
    """
    if isinstance(keys, DataFrame) or is_table(keys):
        found = read_rows(spark, keys, call)
    elif isinstance(keys, range) and keys[_FEW:] and len(columns) == 1:
        _range_size(keys)  # refuses it
        last = spark.range(1).select(functions.lit(keys[-1]).cast("long"))
        found = spark.range(keys[0], keys[-1], keys.step).union(last).toDF(columns[0].name)
    else:
        table = shape_keys(keys, columns)
        for values, column in zip(table.columns, columns, strict=True):
            if pa.types.is_float16(values.type):  # Spark has floats of 32 bits
                require_exact_floats(values, column)
        found = rows_of_arrow(spark, table, exact=True)
    return found.select(
        *(padded(cast_exactly(found, each), each.width).alias(each.name) for each in columns)
    )


def padded(column: Column, width: int | None) -> Column:
    """Return strings of a `char(n)` column with blanks up to its width, as SQL compares them."""
    if width is None:
        return column
    bare = functions.rtrim(column)
    filled = functions.rpad(bare, width, " ")  # cuts what is longer
    return functions.when(functions.length(bare) < width, filled).otherwise(bare)


def cast_exactly(df: DataFrame, column: AnyColumn) -> Column:
    """Return a key column of a DataFrame in its type; a value that does not fit fails the job."""
    name, wanted = column.name, column.spark
    try:
        with quiet():
            found, have = functions.col(quote(name)), df.select(quote(name)).schema[0].dataType
    except AnalysisException as error:
        raise InvalidArgumentError(
            f"the keys have no column {name}, or more than one",
            hint=f"their columns are {', '.join(df.columns)}",
        ) from error
    value = found
    if have.simpleString() == wanted.simpleString():
        if not column.type.startswith("fixed"):
            return found
        changed = functions.octet_length(found) != column.arrow.byte_width
    else:
        is_other = _is_other(have.simpleString(), wanted.simpleString())
        is_float = isinstance(have, _FLOATS) and not isinstance(wanted, _FLOATS)
        can_store = partial(jvm.allows_cast, df.sparkSession, "canANSIStoreAssign")
        if is_other or is_float or not can_store(have, wanted):
            raise InvalidArgumentError(
                f"column {name} is {column.type}, and the keys are {have.simpleString()}",
                hint=f"cast them to {wanted.simpleString()} first{FLOATS if is_float else ''}",
            )
        value = found.try_cast(wanted)
        if isinstance(have, spark_types.NullType):
            return value
        changed = value.isNull() | ~value.cast(have).eqNullSafe(found)
    message = f"a key is not a value of column {name}, which is {column.type}"
    failure = fail_on_misfit(name, message, found).cast(wanted)
    return functions.when(found.isNotNull() & changed, failure).otherwise(value)


def _is_other(have: str, wanted: str) -> bool:
    """Return whether Spark would cast keys to strings, or by a time zone.

    5 would stand for "5", and not for "05"; a local time for an instant of the session's zone.
    """
    is_text = wanted.startswith("string") and not have.startswith(_STRINGS)
    return is_text or (bool({wanted, have} & _TIMES) and have not in (wanted, "void"))


@dataclass(frozen=True, eq=False)
class Keys:
    """Distinct keys in ascending order; the null key of a single column is the first.

    The table has a column for each column of the key, by its name, in its `KeyColumn.arrow`.
    """

    columns: tuple[KeyColumn, ...]
    table: pa.Table

    @classmethod
    def of(cls, keys: Any, columns: Sequence[KeyColumn]) -> Keys:  # noqa: ANN401
        """Return keys that are in no Spark DataFrame; see `shape_keys`."""
        return cls.of_arrays(shape_keys(keys, columns).columns, columns)

    @classmethod
    def of_arrays(cls, arrays: Sequence[pa.ChunkedArray], columns: Sequence[KeyColumn]) -> Keys:
        """Return the distinct keys of columns, given in the order of the key."""
        names = [column.name for column in columns]
        arrays = [convert(*each) for each in zip(arrays, columns, strict=True)]
        if len(columns) == 1:
            [values] = arrays
            return cls(tuple(columns), pa.table([_distinct_values(values)], names))
        # Arrow would take a name that begins with a dot for a path.
        plain = [f"k{place}" for place in range(len(columns))]
        table = pa.table(arrays, plain).group_by(plain).aggregate([]).select(plain)
        rows = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in plain])
        return cls(tuple(columns), table.take(rows).combine_chunks().rename_columns(names))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def nulls(self) -> int:
        """The number of keys with a null in some column."""
        missing = reduce(pc.or_, map(pc.is_null, self.table.columns))
        return int(pc.sum(missing).as_py() or 0)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The non-null values of the only column as numbers: days, microseconds, or as they are."""
        return _numbers(self.table.column(0))

    def slice(self, start: int, length: int | None = None) -> Keys:
        """Return some of the keys, without copying them."""
        return Keys(self.columns, self.table.slice(start, length))


def _distinct_values(values: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
        whole = pc.unique(values)
        return whole.take(pc.array_sort_indices(whole, null_placement="at_start"))
    numbers = _numbers(values)
    if not (numbers[1:] > numbers[:-1]).all():
        # Not by numpy's `unique`, which hashes: 13 s for 10 million keys, this takes 1 s.
        numbers = np.sort(numbers)
        numbers = numbers[np.concatenate([[True], numbers[1:] != numbers[:-1]])]
    width = np.int32 if kind.bit_width == 32 else np.int64
    distinct = pa.array(numbers.astype(width, copy=False)).view(kind)
    chunks = [pa.nulls(1, kind)] if values.null_count else []
    return pa.chunked_array([*chunks, distinct], kind).combine_chunks()


def _numbers(values: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the non-null values as 64-bit numbers; without a copy where they are."""
    whole = values.drop_null().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # no chunks at all
        return np.empty(0, dtype=np.int64)
    narrow = whole.view(pa.int32() if whole.type.bit_width == 32 else pa.int64())
    numbers: NDArray[np.int64] = narrow.to_numpy().astype(np.int64, copy=False)
    return numbers


@dataclass(frozen=True, eq=False)
class KeyFrame:
    """Distinct keys that the executors hold, in columns `k0`, `k1`, ...

    So many `nulls` have a null in some column; `size` is their bytes as Arrow columns.
    """

    columns: tuple[KeyColumn, ...]
    rows: DataFrame
    count: int
    nulls: int
    size: int

    def __len__(self) -> int:
        return self.count


@contextmanager
def read_keys(keys: Any, columns: Sequence[KeyColumn], table: str) -> Iterator[Keys | KeyFrame]:  # noqa: ANN401
    """Convert keys of any kind; those of a DataFrame are held until the block ends.

    A DataFrame is computed once. Its key columns are selected by name, ignoring others, and cast as
    Spark casts what is stored in a table; a value that would change by that fails the job, and
    what would be cast to a string or by a time zone is refused. The driver collects the distinct
    keys if they take no more memory than the setting `spark.delvec.iceberg.keyMemory` says (256m by
    default).
    """
    columns = tuple(columns)
    if not isinstance(keys, DataFrame):
        yield keys if isinstance(keys, Keys) else Keys.of(keys, columns)
        return
    with translate_errors(table):
        wanted = keys.select(
            *(cast_exactly(keys, each).alias(f"k{place}") for place, each in enumerate(columns))
        )
        limit = bytes_setting(keys.sparkSession, KEY_MEMORY, "256m")
        with stage_rows(wanted.distinct()) as rows:
            count, nulls, size = _measured(rows, columns)
            if size > limit:
                yield KeyFrame(columns, rows, count, nulls, size)
                return
            collected = rows.toArrow()
        yield Keys.of_arrays(collected.columns, columns)


def _measured(rows: DataFrame, columns: Sequence[KeyColumn]) -> tuple[int, int, int]:
    """Return the number of keys, that of keys with nulls, and their bytes as Arrow columns."""
    width, lengths = 0, functions.lit(0)
    for place, column in enumerate(columns):
        if column.type in ("string", "uuid", "binary"):
            width += 8  # an offset
            octets = functions.octet_length(functions.col(f"k{place}"))
            lengths += functions.coalesce(octets, functions.lit(0))
        else:
            width += max(column.arrow.bit_width // 8, 1)
    is_null = reduce(or_, (functions.col(name).isNull() for name in rows.columns))
    figures = functions.count("*"), functions.count_if(is_null), functions.sum(lengths.cast("long"))
    [(count, nulls, length)] = rows.agg(*figures).collect()
    return count, nulls, count * width + (length or 0)
