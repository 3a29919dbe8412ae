"""Keys of rows, from whatever a caller has them in, as a DataFrame of the key columns' types.

A key is converted exactly or refused: one that was rounded or cut would stand for another row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, functions
from pyspark.sql import types as spark_types

from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote
from delvec.spark import jvm
from delvec.spark.failures import misfit, quiet
from delvec.spark.given_data import as_array, as_table, changed_by_arrow, exact_limit
from delvec.spark.given_rows import given_rows, is_table, rows_of_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, SparkSession

__all__ = ["exact_cast", "given_keys", "key_column", "key_parts", "listed_keys", "padded"]

_HINT: Final = (
    "pass a list, a range, a numpy array, a column or table of Arrow, pandas or polars, or a"
    " DataFrame of Spark"
)
_MOST: Final = 1 << 31  # of a range, as for Iceberg
_FEW: Final = 1 << 16
_STRINGS: Final = ("string", "char", "varchar", "void")
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_FLOATS: Final = (spark_types.FloatType, spark_types.DoubleType)


def given_keys(spark: SparkSession, keys: Any, names: Sequence[str], call: str) -> DataFrame:  # noqa: ANN401
    """Return keys as a DataFrame that has columns of these names, of the types that they come in.

    Args:
        spark: The session of the table.
        keys: A DataFrame, Arrow or pandas table, whose other columns are ignored later; or, for one
            column, a list, range, set, numpy array or single column; for several, a list of tuples
            in the order of the names, or of dicts.
        names: The key columns.
        call: The method that takes them, for errors.
    """
    if isinstance(keys, DataFrame) or is_table(keys):
        return given_rows(spark, keys, call)
    if isinstance(keys, range) and keys[_FEW:]:
        return _of_range(spark, keys, names)
    table = as_table(keys)
    table = _table_of(keys, list(names)) if table is None else _only(table, names)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_float16(column.type):
            _require_exact_floats(column.drop_null().to_numpy(), name)
    return rows_of_arrow(spark, table, exact=True)


def _of_range(spark: SparkSession, keys: range, names: Sequence[str]) -> DataFrame:
    _require_one_of(names)
    count = (keys[-1] - keys[0]) // keys.step + 1  # len() has a limit
    if count > _MOST:
        raise InvalidArgumentError(
            f"{count:,} keys are too many", hint="delete by a condition instead"
        )
    end = keys[-1] + (1 if keys.step > 0 else -1)
    if any(not -(2**63) <= each < 2**63 for each in (keys[0], end)):
        raise InvalidArgumentError(
            f"{keys} has numbers that no column of integers holds",
            hint="end the range within -2^63 and 2^63 - 1",
        )
    return spark.range(keys[0], end, keys.step).toDF(names[0])


def _only(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the key columns of a table; all columns if it lacks some, for the error."""
    wanted = {name.lower() for name in names}
    places = [place for place, name in enumerate(table.column_names) if name.lower() in wanted]
    found = {table.column_names[place].lower() for place in places}
    return table.select(places) if found == wanted else table


def _require_one_of(names: Sequence[str], dimensions: int = 1) -> None:
    if len(names) != 1 or dimensions != 1:
        raise InvalidArgumentError(
            f"one column is not a key of {', '.join(names)}",
            hint="pass a list of tuples, or a table with these columns",
        )


def _table_of(keys: Any, names: list[str]) -> pa.Table:  # noqa: ANN401
    one = as_array(keys)
    if one is not None:
        _require_one_of(names, getattr(one, "ndim", 1))
        return pa.table([_column(one, names[0])], names)
    rows = listed_keys(keys)
    if len(names) == 1 and not any(isinstance(row, tuple | list | dict) for row in rows):
        return pa.table([_column(list(rows), names[0])], names)
    parts = [key_parts(row, names) for row in rows]
    columns = [_column([part[place] for part in parts], name) for place, name in enumerate(names)]
    return pa.table(columns, names)


def _column(values: Any, name: str) -> pa.ChunkedArray:  # noqa: ANN401
    if isinstance(values, pa.ChunkedArray):
        return values
    if isinstance(values, list) or values.dtype.kind == "O":
        _require_kept(list(values), name)
    try:
        return pa.chunked_array([pa.array(values)])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(
            f"the keys of column {name} are not of one type: {error}", hint=_HINT
        ) from error


def _require_kept(values: list[Any], name: str) -> None:
    changed = changed_by_arrow(values)
    if changed is not None:
        raise InvalidArgumentError(
            f"the keys of column {name} have {changed}",
            hint="convert them to the type of the column first, without losing anything",
        )
    for kind in {np.float16, np.float32} & set(map(type, values)):
        # Doubles in Arrow if they are among others: what they were is lost then.
        same = [each for each in values if type(each) is kind]
        if len(same) < len(values):
            _require_exact_floats(np.array(same, kind), name)


def _require_exact_floats(values: Any, name: str) -> None:  # noqa: ANN401
    limit = exact_limit(values.dtype)
    if (np.abs(values[np.isfinite(values)]) > limit).any():
        raise InvalidArgumentError(
            f"the keys of column {name} are {values.dtype}, which skips integers beyond"
            f" {limit:.0f}",
            hint="pass integers; or astype('float64'), if they are exact",
        )


def listed_keys(keys: Any) -> Sequence[Any]:  # noqa: ANN401
    """Return a collection of keys as a list.

    Raises:
        InvalidArgumentError: It is a single key, or no collection at all.
    """
    single = isinstance(keys, str | bytes | bytearray | memoryview | Mapping)
    if single or not isinstance(keys, Iterable):
        raise InvalidArgumentError(
            f"keys come in a collection, got {type(keys).__name__}", hint=_HINT
        )
    return keys if isinstance(keys, list | tuple) else list(keys)


def key_parts(row: Any, names: Sequence[str]) -> Sequence[Any]:  # noqa: ANN401
    """Return the values of one key, a tuple or a dict, in the order of the key columns.

    Raises:
        InvalidArgumentError: It has other columns, or more or fewer.
    """
    if hasattr(row, "asDict"):  # a Row of Spark
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


def key_column(df: DataFrame, name: str) -> tuple[Column, spark_types.DataType]:
    """Return a column of keys by its name, and its type.

    Raises:
        InvalidArgumentError: There is none, or more than one.
    """
    try:
        with quiet():
            return functions.col(quote(name)), df.select(quote(name)).schema[0].dataType
    except AnalysisException as error:
        raise InvalidArgumentError(
            f"the keys have no column {name}, or more than one",
            hint=f"their columns are {', '.join(df.columns)}",
        ) from error


def exact_cast(
    df: DataFrame, name: str, wanted: spark_types.DataType, shown: str | None = None
) -> Column:
    """Return a column of keys in another type; a value that does not fit exactly fails the job.

    Args:
        df: The keys.
        name: The column.
        wanted: The type of the table's column.
        shown: What errors call this type.

    Raises:
        InvalidArgumentError: There is no such column, or its type is another one altogether.
    """
    found, have = key_column(df, name)
    if have.simpleString() == wanted.simpleString():
        return found
    shown = shown or wanted.simpleString()
    is_other = _is_other(have.simpleString(), wanted.simpleString())
    if is_other or not _can_store(df, have, wanted):
        raise InvalidArgumentError(
            f"column {name} is {shown}, and the keys are {have.simpleString()}",
            hint=f"cast them to {wanted.simpleString()} first",
        )
    value = found.try_cast(wanted)
    if isinstance(have, spark_types.NullType):
        return value
    changed = value.isNull() | ~value.cast(have).eqNullSafe(found)
    if isinstance(have, _FLOATS) and not isinstance(wanted, _FLOATS):
        kind = np.float32 if isinstance(have, spark_types.FloatType) else np.float64
        changed |= functions.abs(found) > exact_limit(kind)
    message = f"a key is not a value of column {name}, which is {shown}"
    failure = misfit(name, message, found).cast(wanted)
    return functions.when(found.isNotNull() & changed, failure).otherwise(value)


def _is_other(have: str, wanted: str) -> bool:
    """Return whether Spark would cast keys to strings, or by a time zone.

    5 would stand for "5", and not for "05"; a local time for an instant of the session's zone.
    """
    is_text = wanted.startswith("string") and not have.startswith(_STRINGS)
    return is_text or (bool({wanted, have} & _TIMES) and have not in (wanted, "void"))


def padded(column: Column, width: int | None) -> Column:
    """Return strings of a `char(n)` column with blanks up to its width, as SQL compares them."""
    if width is None:
        return column
    bare = functions.rtrim(column)
    filled = functions.rpad(bare, width, " ")  # cuts what is longer
    return functions.when(functions.length(bare) < width, filled).otherwise(bare)


def _can_store(df: DataFrame, have: spark_types.DataType, wanted: spark_types.DataType) -> bool:
    view = jvm.view_of(df.sparkSession)
    of_json = view.org.apache.spark.sql.types.DataType.fromJson
    cast = view.org.apache.spark.sql.catalyst.expressions.Cast
    return bool(cast.canANSIStoreAssign(of_json(have.json()), of_json(wanted.json())))
