"""The Arrow types that the columns of a Delta table are read in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from delvec.delta.schema.types import ArrayType, MapType, StructType

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
    return pa.field(each.name, arrow_type(each.type), each.nullable)


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type of a column.

    >>> from delvec.delta.schema.types import PrimitiveType
    >>> arrow_type(MapType(PrimitiveType("string"), PrimitiveType("timestamp")))
    MapType(map<string, timestamp[us, tz=UTC]>)
    """
    if isinstance(data_type, StructType):
        return pa.struct([arrow_field(each) for each in data_type.fields])
    if isinstance(data_type, ArrayType):
        element = arrow_type(data_type.element)
        return pa.list_(pa.field("element", element, data_type.contains_null))
    if isinstance(data_type, MapType):
        return pa.map_(
            pa.field("key", arrow_type(data_type.key), nullable=False),
            pa.field("value", arrow_type(data_type.value), data_type.value_contains_null),
        )
    if data_type.decimal:
        return pa.decimal128(*data_type.decimal)
    return _PRIMITIVES[data_type.name]
