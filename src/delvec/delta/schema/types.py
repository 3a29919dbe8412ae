"""The schema of a Delta table: Spark's JSON form, with the names and ids of column mapping.

Specification: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#schema-serialization-format
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from delvec.errors import FormatError, InvalidArgumentError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

__all__ = [
    "CHAR_TYPE",
    "ArrayType",
    "DataType",
    "Field",
    "MapType",
    "MappingMode",
    "PrimitiveType",
    "StructType",
    "arrow_field",
    "arrow_schema",
    "arrow_type",
    "parse_schema",
]

MappingMode: TypeAlias = Literal["none", "name", "id"]

_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
_FIELD_ID: Final = "delta.columnMapping.id"
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_MAX_PRECISION: Final = 38
CHAR_TYPE: Final = "__CHAR_VARCHAR_TYPE_STRING"
_CHAR: Final = re.compile(r"(?<!var)char\((\d+)\)", re.IGNORECASE)
_SIMPLE: Final = frozenset(
    {
        "string",
        "long",
        "integer",
        "short",
        "byte",
        "float",
        "double",
        "boolean",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
        "variant",
        "void",
    }
)


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parts: `string`, `long`, `decimal(10,2)`, `variant`, ..."""

    name: str

    @property
    def decimal(self) -> tuple[int, int] | None:
        """Precision and scale of a decimal, None for every other type.

        >>> PrimitiveType("decimal(10,2)").decimal
        (10, 2)
        """
        match = _DECIMAL.fullmatch(self.name)
        return (int(match[1]), int(match[2])) if match else None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of elements."""

    element: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """Entries of a key, which is never null, and a value."""

    key: DataType
    value: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field of a struct.

    Attributes:
        name: What queries call it.
        physical_name: What data files, statistics and partition values call it.
        field_id: Its id in Parquet files under column mapping.
        metadata: All that the log keeps with it, the keys of column mapping too.
    """

    name: str
    type: DataType
    nullable: bool = True
    physical_name: str = ""
    field_id: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not self.physical_name:
            object.__setattr__(self, "physical_name", self.name)

    @property
    def char_type(self) -> str | None:
        """How Spark declared a text of fixed width, such as `char(5)` or `array<char(3)>`.

        Files hold such texts as they were given; readers fill them up with blanks.
        """
        text = str(self.metadata.get(CHAR_TYPE, ""))
        return text if _CHAR.search(text) else None

    @property
    def char_width(self) -> int | None:
        """The width of the texts of a `char(n)` column."""
        found = _CHAR.fullmatch(self.char_type or "")
        return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class StructType:
    """Fields in order; the schema of a table is one.

    >>> schema = StructType((Field("id", PrimitiveType("long")),))
    >>> schema.field("ID").name
    'id'
    >>> schema.to_json()["fields"]
    [{'name': 'id', 'type': 'long', 'nullable': True, 'metadata': {}}]
    """

    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(each.name for each in self.fields)

    def field(self, name: str) -> Field:
        """Find a field as Spark does: an exact match first, else one that differs in case only.

        Raises:
            InvalidArgumentError: There is none, or more than one differs in case only.
        """
        found = [each for each in self.fields if each.name == name]
        found = found or [each for each in self.fields if each.name.lower() == name.lower()]
        if len(found) == 1:
            return found[0]
        if found:
            raise InvalidArgumentError(
                f"column {name!r} is ambiguous: {', '.join(each.name for each in found)}"
            )
        known = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
        similar = get_close_matches(name.lower(), [each.lower() for each in self.names], 3)
        near = [each for each in self.names if each.lower() in similar]
        raise InvalidArgumentError(
            f"there is no column {name!r}, only {known or 'none at all'}",
            hint=f"did you mean {' or '.join(near)}?" if near else None,
        )

    def to_json(self) -> dict[str, Any]:
        """Give Spark's JSON form, as `pyspark.sql.types.StructType.fromJson` takes it."""
        return {"type": "struct", "fields": [_field_to_json(each) for each in self.fields]}

    def __str__(self) -> str:
        return f"struct<{','.join(f'{each.name}:{each.type}' for each in self.fields)}>"


DataType: TypeAlias = PrimitiveType | ArrayType | MapType | StructType


def parse_schema(text: str, mapping_mode: MappingMode = "none") -> StructType:
    """Read the `schemaString` of a table.

    >>> text = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true}]}'
    >>> print(parse_schema(text))
    struct<id:long>

    Raises:
        FormatError: The text is not a schema, or column mapping is on and a column has no name
            or id in the files.
        UnsupportedFeatureError: A column has a type that delvec does not know.
    """
    if mapping_mode not in ("none", "name", "id"):
        raise UnsupportedFeatureError(
            f"unknown column mapping mode {mapping_mode!r}", feature="columnMapping"
        )
    try:
        parsed = _parse_type(json.loads(text), mapping_mode, "schema")
    except (ValueError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError("the schema is not JSON", found=repr(text)[:80]) from error
    if not isinstance(parsed, StructType):
        raise FormatError("the schema is not a struct", found=repr(text)[:80])
    return parsed


def _parse_type(value: object, mode: MappingMode, where: str) -> DataType:
    if isinstance(value, str):
        return _parse_primitive(value, where)
    if not isinstance(value, dict):
        raise FormatError(f"{where} has no type", found=repr(value)[:80])
    kind = value.get("type")
    if kind == "struct":
        return _parse_struct(value.get("fields"), mode, where)
    if kind == "array":
        return ArrayType(
            _parse_type(value.get("elementType"), mode, f"{where}.element"),
            _flag(value, "containsNull", where),
        )
    if kind == "map":
        return MapType(
            _parse_type(value.get("keyType"), mode, f"{where}.key"),
            _parse_type(value.get("valueType"), mode, f"{where}.value"),
            _flag(value, "valueContainsNull", where),
        )
    if kind == "udt":  # a class of the user's around a type; files hold the latter
        return _parse_type(value.get("sqlType"), mode, where)
    raise UnsupportedFeatureError(
        f"{where} has a type that delvec does not know: {str(kind)[:80]}", feature=str(kind)[:80]
    )


def _parse_primitive(text: str, where: str) -> PrimitiveType:
    if text in _SIMPLE:
        return PrimitiveType(text)
    if text == "null":
        return PrimitiveType("void")
    if text == "decimal":
        return PrimitiveType("decimal(10,0)")
    if match := _DECIMAL.fullmatch(text):
        precision, scale = int(match[1]), int(match[2])
        if not (1 <= precision <= _MAX_PRECISION and 0 <= scale <= precision):
            raise FormatError(f"{where} is a decimal that cannot be", found=text)
        return PrimitiveType(f"decimal({precision},{scale})")
    raise UnsupportedFeatureError(
        f"{where} has a type that delvec does not know: {text[:80]}", feature=text[:80]
    )


def _parse_struct(fields: object, mode: MappingMode, where: str) -> StructType:
    if not isinstance(fields, list):
        raise FormatError(f"{where} has no fields", found=repr(fields)[:80])
    parsed = tuple(_parse_field(each, mode, where) for each in fields)
    _refuse_twins("name", [each.name for each in parsed], where)
    _refuse_twins("physical name", [each.physical_name for each in parsed], where)
    _refuse_twins("id", [each.field_id for each in parsed if each.field_id is not None], where)
    return StructType(parsed)


def _refuse_twins(what: str, seen: Sequence[object], where: str) -> None:
    for value, count in Counter(seen).items():
        if count > 1:
            raise FormatError(f"{where} has two fields of one {what}", found=repr(value)[:80])


def _parse_field(value: object, mode: MappingMode, where: str) -> Field:
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(name, str) or not name:
        raise FormatError(f"{where} has a field without a name", found=repr(value)[:80])
    path = f"column {name!r}" if where == "schema" else f"{where}.{name}"
    metadata = value.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise FormatError(f"metadata of {path} is not an object", found=repr(metadata)[:80])
    physical_name, field_id = (
        (name, None) if mode == "none" else _mapped(metadata, mode=mode, where=path)
    )
    return Field(
        name,
        _parse_type(value.get("type"), mode, path),
        _flag(value, "nullable", path),
        physical_name,
        field_id,
        metadata,
    )


def _mapped(
    metadata: Mapping[str, Any], *, mode: MappingMode, where: str
) -> tuple[str, int | None]:
    """Give the name and the id that a field has in data files."""
    physical_name, field_id = metadata.get(_PHYSICAL_NAME), metadata.get(_FIELD_ID)
    if not isinstance(physical_name, str) or not physical_name:
        raise FormatError(f"{where} has no {_PHYSICAL_NAME}", found=repr(metadata)[:80])
    if type(field_id) is int:
        return physical_name, field_id
    if mode == "id" or field_id is not None:
        raise FormatError(f"{where} has no {_FIELD_ID}", found=repr(metadata)[:80])
    return physical_name, None


def _flag(value: Mapping[str, Any], name: str, where: str) -> bool:
    flag = value.get(name, True)
    if not isinstance(flag, bool):
        raise FormatError(f"{name} of {where} is not a boolean", found=repr(flag)[:80])
    return flag


def _field_to_json(each: Field) -> dict[str, Any]:
    return {
        "name": each.name,
        "type": _type_to_json(each.type),
        "nullable": each.nullable,
        "metadata": dict(each.metadata),
    }


def _type_to_json(data_type: DataType) -> str | dict[str, Any]:
    if isinstance(data_type, StructType):
        return data_type.to_json()
    if isinstance(data_type, ArrayType):
        return {
            "type": "array",
            "elementType": _type_to_json(data_type.element),
            "containsNull": data_type.contains_null,
        }
    if isinstance(data_type, MapType):
        return {
            "type": "map",
            "keyType": _type_to_json(data_type.key),
            "valueType": _type_to_json(data_type.value),
            "valueContainsNull": data_type.value_contains_null,
        }
    return data_type.name


def arrow_schema(schema: StructType) -> pa.Schema:
    """Give the Arrow schema that rows of the table are read in, under their logical names."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.schema([arrow_field(each) for each in schema.fields])


def arrow_field(each: Field) -> pa.Field:
    """Give the Arrow field of a column, under its logical name."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.field(each.name, arrow_type(each.type), each.nullable)


def arrow_type(data_type: DataType) -> pa.DataType:
    """Give the Arrow type of a column.

    >>> arrow_type(MapType(PrimitiveType("string"), PrimitiveType("timestamp")))
    MapType(map<string, timestamp[us, tz=UTC]>)
    """
    import pyarrow as pa  # noqa: PLC0415

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
    return _arrow_primitives()[data_type.name]


@lru_cache(maxsize=1)
def _arrow_primitives() -> dict[str, pa.DataType]:
    import pyarrow as pa  # noqa: PLC0415

    return {
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
