"""The Arrow types that the columns of a Delta table are read in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from delvec.delta.schema.types import ArrayType, MapType, StructType
from delvec.delta.schema.walk import children
from delvec.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from delvec.delta.schema.types import DataType, Field

__all__ = ["arrow_field", "arrow_schema", "arrow_type"]

_PRIMITIVES: Final = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "variant": pa.struct([pa.field("value", pa.binary()), pa.field("metadata", pa.binary())]),
    "void": pa.null(),
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that rows of the table are read in, under their logical names."""
    return pa.schema([arrow_field(each) for each in schema.fields])


def arrow_field(each: Field) -> pa.Field:
    """Return the Arrow field of a column, under its logical name."""
    kind = arrow_type(each.type)
    # Spark's `array()` is of the type void and not nullable: Arrow has no such field.
    return pa.field(each.name, kind, each.nullable or pa.types.is_null(kind))


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type of a column.

    >>> from delvec.delta.schema.types import PrimitiveType
    >>> arrow_type(MapType(PrimitiveType("string"), PrimitiveType("timestamp")))
    MapType(map<string, timestamp[us, tz=UTC]>)

    Raises:
        UnsupportedFeatureError: Arrow has no such type.
    """
    if isinstance(data_type, StructType):
        return pa.struct([arrow_field(each) for each in data_type.fields])
    if isinstance(data_type, ArrayType):
        return pa.list_(*map(arrow_field, children(data_type)))
    if isinstance(data_type, MapType):
        key, value = map(arrow_field, children(data_type))
        if key.nullable:
            raise UnsupportedFeatureError(
                f"{data_type} cannot be read: Arrow has no maps with keys of the type void",
                feature="void",
                hint="read the other columns, or drop this one",
            )
        return pa.map_(key, value)
    if data_type.decimal:
        return pa.decimal128(*data_type.decimal)
    return _PRIMITIVES[data_type.name]
