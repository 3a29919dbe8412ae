"""The columns of a Parquet file as Spark reads them, and the columns that several files have.

Files of Spark hold their schema themselves. For others, the types are those of Spark's converter:
unsigned integers get the next larger type, INT96 is a timestamp. What Delta or Spark have no type
for is refused by name. All columns are nullable.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import types

from delvec.delta.schema.parse import parse_schema
from delvec.delta.schema.types import ArrayType, Field, MapType, PrimitiveType, StructType
from delvec.delta.schema.walk import map_fields, nullable
from delvec.errors import FormatError, InvalidArgumentError, UnsupportedFeatureError
from delvec.parquet.readable import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

    from delvec.delta.schema.types import DataType

__all__ = ["file_schema", "merged"]

_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_PHYSICAL: Final = {
    "BOOLEAN": "boolean",
    "INT32": "integer",
    "INT64": "long",
    "INT96": "timestamp",
    "FLOAT": "float",
    "DOUBLE": "double",
    "BYTE_ARRAY": "binary",
    "FIXED_LEN_BYTE_ARRAY": "binary",
}
_LOGICAL: Final = {"String": "string", "Enum": "string", "JSON": "string", "BSON": "binary"}
_INTEGERS: Final = {
    (8, True): "byte",
    (16, True): "short",
    (32, True): "integer",
    (64, True): "long",
    (8, False): "short",
    (16, False): "integer",
    (32, False): "long",
    (64, False): "decimal(20,0)",
}
_REFUSED: Final = {
    "Time": ("a time of day", "cast it to a string, or to a number of microseconds"),
    "UUID": ("a UUID", "cast it to a string"),
    "Float16": ("a number of 16 bits", "cast it to float"),
    "Interval": ("an interval", "cast it to a number of microseconds"),
    "Null": ("of no type: all of it is null", "cast it to the type that its values would have"),
}
_NANOSECONDS: Final = (
    "a timestamp in nanoseconds",
    "write the files again with microseconds: coerce_timestamps='us' of pyarrow and pandas",
)
_MOST_DIGITS: Final = 38
# Parquet stores them in the same way, so that one file can be read as any of them.
_WIDTHS: Final = {"byte": 0, "short": 1, "integer": 2}


def file_schema(footer: pq.FileMetaData, path: str) -> StructType:
    """Return the columns of a file by its footer.

    Args:
        footer: Its footer.
        path: The file, for errors.

    Raises:
        UnsupportedFeatureError: A column has a type that Delta does not have.
        FormatError: The schema cannot be read.
    """
    written = (footer.metadata or {}).get(_SPARK_SCHEMA)
    if written is not None:
        try:
            parsed = parse_schema(written.decode())
        except UnsupportedFeatureError as error:
            error.message = f"{error.message} (in {path})"
            error.needed_by = path
            raise
        except ValueError as error:
            raise FormatError("the schema that Spark left is unreadable", path=path) from error
        return map_fields(nullable(parsed), _plain)
    with readable(path, "the schema is unreadable"):
        stored = footer.schema.to_arrow_schema()
    leaves = (footer.schema.column(index) for index in range(len(footer.schema)))
    fields = [Field(each.name, _type(each.type, leaves, each.name, path)) for each in stored]
    return StructType(tuple(fields))


def _plain(field: Field) -> Field:
    """Return a field without what its metadata says of another table."""
    kept = {key: value for key, value in field.metadata.items() if key == "comment"}
    return replace(field, metadata=kept)


def _type(stored: pa.DataType, leaves: Iterator[Any], where: str, path: str) -> DataType:
    if isinstance(stored, pa.BaseExtensionType):
        stored = stored.storage_type
    if types.is_struct(stored):
        inner = (stored.field(index) for index in range(stored.num_fields))
        return StructType(
            tuple(
                Field(each.name, _type(each.type, leaves, f"{where}.{each.name}", path))
                for each in inner
            )
        )
    if types.is_map(stored):
        key = _type(stored.key_type, leaves, f"{where}.key", path)
        return MapType(key, _type(stored.item_type, leaves, f"{where}.value", path))
    if types.is_nested(stored):
        return ArrayType(_type(stored.value_type, leaves, f"{where}.element", path))
    return PrimitiveType(_primitive(next(leaves), where, path))


def _primitive(column: Any, where: str, path: str) -> str:  # noqa: ANN401
    logical = json.loads(column.logical_type.to_json())
    kind = logical["Type"]
    if kind in ("None", "Undefined"):
        return _PHYSICAL[column.physical_type]
    if kind == "Int":
        return _INTEGERS[logical["bitWidth"], logical["isSigned"]]
    if kind == "Date":
        return "date"
    if kind == "Decimal" and logical["precision"] <= _MOST_DIGITS:
        return f"decimal({logical['precision']},{logical['scale']})"
    if kind == "Timestamp" and logical["timeUnit"] != "nanoseconds":
        return "timestamp" if logical["isAdjustedToUTC"] else "timestamp_ntz"
    if kind in _LOGICAL:
        return _LOGICAL[kind]
    shown, hint = _REFUSED.get(kind, (f"of the type {kind}", "cast it to another type"))
    if kind == "Timestamp":
        shown, hint = _NANOSECONDS
    elif kind == "Decimal":
        shown = f"a decimal of {logical['precision']} digits"
    raise UnsupportedFeatureError(
        f"column {where} of {path} is {shown}, which Delta tables do not have",
        feature=kind,
        needed_by=path,
        hint=hint,
    )


def merged(schema: StructType, more: StructType, path: str) -> StructType:
    """Return the columns of both schemas: of the first in its order, then the others.

    Args:
        schema: The columns of all files so far.
        more: The columns of another file.
        path: That file, for errors.

    Raises:
        InvalidArgumentError: A column has another type there.
    """
    return _merged_struct(schema, more, (), path)


def _merged_struct(
    kind: StructType, other: StructType, where: tuple[str, ...], path: str
) -> StructType:
    by_name = {field.name.lower(): field for field in other.fields}
    fields = [
        replace(field, type=_merged(field.type, twin.type, (*where, field.name), path))
        if (twin := by_name.pop(field.name.lower(), None))
        else field
        for field in kind.fields
    ]
    return StructType((*fields, *by_name.values()))


def _merged(kind: DataType, other: DataType, where: tuple[str, ...], path: str) -> DataType:
    if isinstance(kind, StructType) and isinstance(other, StructType):
        return _merged_struct(kind, other, where, path)
    if isinstance(kind, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_merged(kind.element, other.element, (*where, "element"), path))
    if isinstance(kind, MapType) and isinstance(other, MapType):
        key = _merged(kind.key, other.key, (*where, "key"), path)
        return MapType(key, _merged(kind.value, other.value, (*where, "value"), path))
    if kind == other:
        return kind
    both = (str(kind), str(other))
    if all(name in _WIDTHS for name in both):
        return PrimitiveType(max(both, key=lambda name: _WIDTHS[name]))
    raise InvalidArgumentError(
        f"column {'.'.join(where)} is {other} in {path}, and {kind} in files before it",
        hint="write these files again with one type, or move them elsewhere",
    )
