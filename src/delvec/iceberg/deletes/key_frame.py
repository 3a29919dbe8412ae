"""Keys of a Spark DataFrame: collected by the driver if they are few, else written by executors."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, functions
from pyspark.sql import types as spark_types

from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.iceberg.client.chosen_files import write_key_files
from delvec.iceberg.deletes.key_columns import arrow_type
from delvec.iceberg.deletes.key_values import from_arrow
from delvec.iceberg.deletes.keys import Keys
from delvec.spark.conf import bytes_setting
from delvec.spark.failures import explained, misfit
from delvec.spark.given_keys import exact_cast, key_column
from delvec.spark.staging import staged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.deletes.key_columns import KeyColumn

__all__ = ["KEY_MEMORY", "KeyFrame", "opened_keys", "write_frame"]

KEY_MEMORY: Final = "spark.delvec.iceberg.keyMemory"
"""The memory up to which the driver collects the keys of a DataFrame."""

_DEFAULT: Final = "256m"
_FILE_SIZE: Final = 128 << 20  # of Arrow columns; a fraction of it as Parquet
_TYPES: Final[dict[str, spark_types.DataType]] = {
    "boolean": spark_types.BooleanType(),
    "int": spark_types.IntegerType(),
    "long": spark_types.LongType(),
    "date": spark_types.DateType(),
    "timestamp": spark_types.TimestampNTZType(),
    "timestamptz": spark_types.TimestampType(),
    "string": spark_types.StringType(),
    "uuid": spark_types.StringType(),
    "binary": spark_types.BinaryType(),
}


@dataclass(frozen=True, eq=False)
class KeyFrame:
    """Distinct keys that the executors hold.

    Attributes:
        columns: The columns of the key.
        rows: A column `k0`, `k1`, ... for each.
        count: The number of keys.
        nulls: How many of them have a null in some column.
        size: Their bytes as Arrow columns.
    """

    columns: tuple[KeyColumn, ...]
    rows: DataFrame
    count: int
    nulls: int
    size: int

    def __len__(self) -> int:
        return self.count


@contextmanager
def opened_keys(
    keys: Any,  # noqa: ANN401
    columns: Sequence[KeyColumn],
    table: str,
) -> Iterator[Keys | KeyFrame]:
    """Convert keys of any kind, see `Keys.of`; those of a DataFrame are held until the block ends.

    A DataFrame is computed once. Its key columns are selected by name, ignoring others, and cast as
    Spark casts what is stored in a table; a value that would change by that fails the job, and
    what would be cast to a string or by a time zone is refused. The driver collects the distinct
    keys if they take no more memory than the setting `spark.delvec.iceberg.keyMemory` says (256m by
    default).

    Raises:
        InvalidArgumentError: A column is missing or of another type, or a value does not fit.
        UnsupportedFeatureError: Spark has no type for a key column.
    """
    columns = tuple(columns)
    if not isinstance(keys, DataFrame):
        yield keys if isinstance(keys, Keys) else Keys.of(keys, columns)
        return
    with explained(table):
        wanted = keys.select(
            *(_cast(keys, each).alias(f"k{place}") for place, each in enumerate(columns))
        )
        limit = bytes_setting(keys.sparkSession, KEY_MEMORY, _DEFAULT)
        with staged(wanted.distinct()) as rows:
            count, nulls, size = _measured(rows, columns)
            if size > limit:
                yield KeyFrame(columns, rows, count, nulls, size)
                return
            collected = rows.toArrow()
        arrays = [from_arrow(collected.column(place), each) for place, each in enumerate(columns)]
        yield Keys.of_arrays(arrays, columns)


def write_frame(frame: KeyFrame, table: LoadedTable) -> pa.Array:
    """Write keys as Parquet files by executors, sorted; return the JSON of each, as a data file.

    Null keys of a required column are omitted, as by `encode_files`.

    Raises:
        UnsupportedFeatureError: A key column is of type `fixed`, of which a file can hold one key.
    """
    rows, names = frame.rows, frame.rows.columns
    for name, column in zip(names, frame.columns, strict=True):
        if column.type.startswith("fixed"):
            raise UnsupportedFeatureError(
                f"{frame.count:,} keys with column {column.name}, which is {column.type}, would"
                " need a file each: Iceberg's readers take the last one of a file for all of them",
                feature="many keys of type fixed",
                hint="delete by a condition instead",
            )
        if column.required:
            rows = rows.where(functions.col(name).isNotNull())
    schema = {"type": "struct", "schema-id": 0, "fields": [_field(each) for each in frame.columns]}
    wanted = (
        functions.col(name).alias(column.name)
        for name, column in zip(names, frame.columns, strict=True)
    )
    # Not as many files as there are cores: each is opened by all readers.
    ranges = rows.repartitionByRange(-(-frame.size // _FILE_SIZE), *names)
    return write_key_files(table, schema, ranges.sortWithinPartitions(*names).select(*wanted))


def _field(column: KeyColumn) -> dict[str, Any]:
    return {"id": column.id, "name": column.name, "required": False, "type": column.type}


def _cast(df: DataFrame, column: KeyColumn) -> Column:
    """Return the key column of a DataFrame in its type; a value that does not fit fails the job."""
    wanted = _spark_type(column)
    found, have = key_column(df, column.name)
    if have.simpleString() == wanted.simpleString():
        return _checked(found, column)
    if column.type == "uuid":
        raise InvalidArgumentError(
            f"column {column.name} is uuid, and the keys are {have.simpleString()}",
            hint="cast them to string first",
        )
    return exact_cast(df, column.name, wanted, column.type)


def _checked(found: Column, column: KeyColumn) -> Column:
    kind = arrow_type(column.type)
    if column.type == "uuid" or not pa.types.is_fixed_size_binary(kind):
        return found
    message = f"a key is not a value of column {column.name}, which is {column.type}"
    failure = misfit(column.name, message, found).cast(_spark_type(column))
    is_wrong = functions.octet_length(found) != kind.byte_width
    return functions.when(is_wrong, failure).otherwise(found)


def _spark_type(column: KeyColumn) -> spark_types.DataType:
    if column.type in _TYPES:
        return _TYPES[column.type]
    kind = arrow_type(column.type)
    if pa.types.is_decimal(kind):
        return spark_types.DecimalType(kind.precision, kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return spark_types.BinaryType()
    raise UnsupportedFeatureError(
        f"Spark has no type for column {column.name}, which is {column.type}",
        feature=f"keys of type {column.type} in a DataFrame",
        hint="pass the keys in a list or an Arrow array",
    )


def _measured(rows: DataFrame, columns: Sequence[KeyColumn]) -> tuple[int, int, int]:
    """Return the number of keys, that of keys with nulls, and their bytes as Arrow columns."""
    width, lengths = 0, functions.lit(0)
    for place, column in enumerate(columns):
        kind = arrow_type(column.type)
        if column.type in ("string", "uuid", "binary"):
            width += 8  # an offset
            length = functions.octet_length(functions.col(f"k{place}"))
            lengths += functions.coalesce(length, functions.lit(0))
        else:
            width += max(kind.bit_width // 8, 1)
    is_null = reduce(or_, (functions.col(name).isNull() for name in rows.columns))
    found = rows.agg(
        functions.count("*"),
        functions.coalesce(functions.sum(is_null.cast("long")), functions.lit(0)),
        functions.coalesce(functions.sum(lengths.cast("long")), functions.lit(0)),
    ).first()
    count, nulls, octets = (0, 0, 0) if found is None else found
    return count, nulls, count * width + octets
