"""Rows to be written, from whatever a caller has them in, as a Spark DataFrame.

Arrow has types that Spark lacks. They become the next larger type that holds all of their values,
or are refused. A timestamp without a time zone stays one (`timestamp_ntz`): `createDataFrame` would
take it for a time of the session's zone, and fail in the hour that daylight saving skips.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from delvec.calls import describe_value
from delvec.errors import InvalidArgumentError
from delvec.spark import jvm
from delvec.spark.failures import quiet
from delvec.spark.input.arrow import stored, stored_type, to_arrow_table

_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),  # with an error for numbers that do not fit
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
_LISTS: Final = (
    pa.ListType | pa.LargeListType | pa.FixedSizeListType | pa.ListViewType | pa.LargeListViewType
)
_DIGITS: Final = 38  # of Spark's decimals


def read_rows(spark: SparkSession, rows: Any, call: str) -> DataFrame:  # noqa: ANN401
    """Return rows as a batch DataFrame of a classic session that is running."""
    if isinstance(rows, DataFrame):
        jvm.require_running(rows.sparkSession, f"{call}()")
        if rows.isStreaming:
            raise InvalidArgumentError(
                f"{call}() writes the rows of a batch, and this DataFrame is a stream",
                hint="write each batch: df.writeStream.foreachBatch(lambda batch, number:"
                f" table.{call}(batch, ..., txn_app_id='my-stream', txn_version=number)).start()",
            )
        return rows
    jvm.require_running(spark, f"{call}()")
    if is_table(rows):
        raise InvalidArgumentError(
            f"{call}() takes rows, not {describe_value(rows)}", hint=f"call {call}(table.to_df())"
        )
    table = to_arrow_table(rows)
    if table is None:
        raise InvalidArgumentError(
            f"{call}() takes a Spark, pandas or polars DataFrame, or Arrow, not"
            f" {describe_value(rows)}",
            hint=f"call {call}(spark.createDataFrame(rows)), which takes lists as well",
        )
    return rows_of_arrow(spark, table)


def is_table(data: object) -> bool:
    """Return whether data is a table of delvec itself, whose rows Spark reads by `to_df()`."""
    return type(data).__module__.startswith("delvec.")


def rows_of_arrow(spark: SparkSession, table: pa.Table, *, exact: bool = False) -> DataFrame:
    fields, schema = _fields(table.schema), schema_of_arrow(table.schema)
    columns = [
        _converted(column, field, exact=exact)
        for column, field in zip(table.columns, fields, strict=True)
    ]
    ready = pa.table(columns, pa.schema(fields))
    with quiet():
        if not ready.num_rows:
            return spark.createDataFrame([], schema)
        return spark.createDataFrame(ready, schema)


def schema_of_arrow(schema: pa.Schema) -> StructType:
    try:
        return from_arrow_schema(pa.schema(_fields(schema)), prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise InvalidArgumentError(f"Spark has no such type: {error}") from error


def _fields(schema: pa.Schema) -> list[pa.Field]:
    return [field.with_type(_spark_ready(field.type, field.name)) for field in schema]


def _spark_ready(kind: pa.DataType, name: str) -> pa.DataType:
    """Return the type of Arrow that Spark reads values of a type in."""
    is_a = pa.types

    def inside(field: pa.Field) -> pa.Field:
        return field.with_type(_spark_ready(field.type, name))

    if isinstance(kind, pa.BaseExtensionType):
        return _spark_ready(stored_type(kind, name), name)
    if is_a.is_dictionary(kind) or is_a.is_run_end_encoded(kind):
        return _spark_ready(kind.value_type, name)
    if is_a.is_struct(kind):
        return pa.struct([inside(kind.field(place)) for place in range(kind.num_fields)])
    if is_a.is_map(kind):
        return pa.map_(inside(kind.key_field), inside(kind.item_field))
    if isinstance(kind, _LISTS):
        return pa.list_(inside(kind.value_field))
    return _plain_type(kind, name)


def _plain_type(kind: pa.DataType, name: str) -> pa.DataType:
    is_a = pa.types
    if is_a.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if is_a.is_decimal(kind) and kind.precision <= _DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    if is_a.is_decimal(kind) or is_a.is_time(kind) or is_a.is_union(kind):
        raise InvalidArgumentError(
            f"column {name} is {kind} in Arrow, which no column of a table can hold",
            hint="convert it first, for example to a string",
        )
    if is_a.is_fixed_size_binary(kind):
        return pa.binary()
    return _WIDER.get(kind, kind)


def _converted(column: pa.ChunkedArray, field: pa.Field, *, exact: bool) -> pa.ChunkedArray:
    """Return a column in the type that Spark reads; a value that would change is refused."""
    try:
        column = stored(column, field.name)
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns" and not exact:
            column = pc.floor_temporal(column, unit="microsecond")  # as Spark does
        found = column if column.type == field.type else column.cast(field.type)
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"column {field.name}, {column.type} in Arrow, does not fit into {field.type}: {error}",
            hint="convert it first; numbers beyond 2^63 - 1 fit into a decimal",
        ) from error
    if not pa.types.is_nested(found.type):
        return found
    # Copied to arrays that are no slices: `createDataFrame` refuses slices of lists with nulls.
    copies = [chunk.take(pa.array(range(len(chunk)), pa.int64())) for chunk in found.chunks]
    return pa.chunked_array(copies, found.type)
