"""The types of a Delta table's columns, read from Spark's JSON form, and their Arrow types.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#schema-serialization-format
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from delvec.calls import called_property
from delvec.documents import parse_json, whole_number
from delvec.errors import FormatError, InvalidArgumentError, UnsupportedFeatureError
from delvec.report.format import did_you_mean

MappingMode: TypeAlias = Literal["none", "name", "id"]
PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
FIELD_ID: Final = "delta.columnMapping.id"
_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]{1,9})\s*,\s*(-?[0-9]{1,9})\s*\)")
CHAR_TYPE: Final = "__CHAR_VARCHAR_TYPE_STRING"
WIDEST_CHAR: Final = 65_536
_CHAR: Final = re.compile(r"(?<!var)char\(([0-9]+)\)", re.IGNORECASE)
_MAX_PRECISION: Final = 38
_DEEPEST: Final = 80  # Arrow reads Parquet of up to 100 levels, of which the log needs some
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
_ALIASES: Final = {"null": "void", "decimal": "decimal(10,0)"}


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A primitive type: `string`, `long`, `decimal(10,2)`, `variant`, ..."""

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
        name: Its logical name, which queries use.
        physical_name: Its name in data files, statistics and partition values.
        field_id: Its id in Parquet files under column mapping.
        metadata: All metadata of the log, the keys of column mapping included.
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
        """The `char(n)` type that Spark declared, such as `char(5)` or `array<char(3)>`.

        Files hold such strings as they were written; readers pad them with blanks.
        """
        text = str(self.metadata.get(CHAR_TYPE, ""))
        return text if _CHAR.search(text) else None

    @property
    def char_width(self) -> int | None:
        """The width of the strings of a `char(n)` column."""
        found = _CHAR.fullmatch(self.char_type or "")
        return whole_number(found[1]) if found else None


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

    if not TYPE_CHECKING:  # for t.schema(), as deltalake has it; to a type checker it is none

        def __call__(self) -> None:
            """Explain that there is nothing to call."""
            raise called_property("schema")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(each.name for each in self.fields)

    def field(self, name: str) -> Field:
        """Return a field as Spark does: an exact match first, else one that differs in case."""
        found = [each for each in self.fields if each.name == name]
        found = found or [each for each in self.fields if each.name.lower() == name.lower()]
        if len(found) == 1:
            return found[0]
        if found:
            raise InvalidArgumentError(
                f"column {name!r} is ambiguous: {', '.join(each.name for each in found)}"
            )
        known = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
        raise InvalidArgumentError(
            f"there is no column {name!r}{f', only {known}' if known else ': there are none'}",
            hint=did_you_mean(name, self.names),
        )

    def to_json(self) -> dict[str, Any]:
        """Return Spark's JSON form, as `pyspark.sql.types.StructType.fromJson` takes it."""
        return {"type": "struct", "fields": [_field_to_json(each) for each in self.fields]}

    def __str__(self) -> str:
        return f"struct<{','.join(f'{each.name}:{each.type}' for each in self.fields)}>"

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{head}</th>" for head in ("column", "type", "nullable", "comment"))
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in _cells(each))}</tr>"
            for each in self.fields
        )
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


DataType: TypeAlias = PrimitiveType | ArrayType | MapType | StructType


def parse_schema(text: str, mapping_mode: MappingMode = "none") -> StructType:
    """Read the `schemaString` of a table.

    >>> text = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true}]}'
    >>> print(parse_schema(text))
    struct<id:long>
    """
    if mapping_mode not in ("none", "name", "id"):
        raise UnsupportedFeatureError(
            f"unknown column mapping mode {mapping_mode!r}", feature="columnMapping"
        )
    parsed = _parse_type(parse_json(text, "the schema"), mapping_mode, "schema")
    if _depth(parsed) > _DEEPEST:
        raise FormatError("the schema is nested too deeply", expected=f"at most {_DEEPEST} levels")
    if not isinstance(parsed, StructType):
        raise FormatError("the schema is not a struct", found=repr(text)[:80])
    return parsed


def children(kind: DataType) -> tuple[Field, ...]:
    """Return the fields directly inside of a type.

    Those of a struct; of an array one called `element`; of a map two called `key` and `value`.

    >>> [each.name for each in children(MapType(PrimitiveType("string"), PrimitiveType("long")))]
    ['key', 'value']
    """
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ArrayType):
        return (Field("element", kind.element, kind.contains_null),)
    if isinstance(kind, MapType):
        key = Field("key", kind.key, nullable=False)
        return key, Field("value", kind.value, kind.value_contains_null)
    return ()


def arrow_field(each: Field) -> pa.Field:
    """Return the Arrow field of a column, under its logical name."""
    kind = arrow_type(each.type)
    # Spark's `array()` is of the type void and not nullable: Arrow has no such field.
    return pa.field(each.name, kind, each.nullable or pa.types.is_null(kind))


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type of a column.

    >>> arrow_type(MapType(PrimitiveType("string"), PrimitiveType("timestamp")))
    MapType(map<string, timestamp[us, tz=UTC]>)
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


def _cells(each: Field) -> tuple[str, ...]:
    comment = str(each.metadata.get("comment", ""))
    return each.name, str(each.type), "yes" if each.nullable else "no", comment


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


def _depth(data_type: DataType) -> int:
    return 1 + max((_depth(each.type) for each in children(data_type)), default=0)


def _parse_type(value: object, mode: MappingMode, where: str) -> DataType:
    if isinstance(value, str):
        return _parse_primitive(value, where)
    if not isinstance(value, dict):
        raise FormatError(f"{where} has no type", found=repr(value)[:80])
    kind = value.get("type")
    if kind == "struct":
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise FormatError(f"{where} has no fields", found=repr(fields)[:80])
        parsed = tuple(_parse_field(each, mode, where) for each in fields)
        _refuse_twins("name", [each.name for each in parsed], where)
        _refuse_twins("physical name", [each.physical_name for each in parsed], where)
        _refuse_twins("id", [each.field_id for each in parsed if each.field_id is not None], where)
        return StructType(parsed)
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
    if kind == "udt":  # a user-defined class around a type; files hold the latter
        return _parse_type(value.get("sqlType"), mode, where)
    raise UnsupportedFeatureError(
        f"{where} has a type that delvec does not know: {str(kind)[:80]}", feature=str(kind)[:80]
    )


def _parse_primitive(text: str, where: str) -> PrimitiveType:
    text = _ALIASES.get(text, text)
    if text in _PRIMITIVES:
        return PrimitiveType(text)
    if decimal := PrimitiveType(text).decimal:
        precision, scale = decimal
        if not (1 <= precision <= _MAX_PRECISION and 0 <= scale <= precision):
            raise FormatError(f"{where} is a decimal that cannot be", found=text)
        return PrimitiveType(f"decimal({precision},{scale})")
    raise UnsupportedFeatureError(
        f"{where} has a type that delvec does not know: {text[:80]}", feature=text[:80]
    )


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
    physical_name, field_id = (name, None) if mode == "none" else _mapped(metadata, mode, path)
    return Field(
        name,
        _parse_type(value.get("type"), mode, path),
        _flag(value, "nullable", path),
        physical_name,
        field_id,
        metadata,
    )


def _mapped(metadata: Mapping[str, Any], mode: MappingMode, where: str) -> tuple[str, int | None]:
    """Return the name and the id that a field has in data files."""
    physical_name, field_id = metadata.get(PHYSICAL_NAME), metadata.get(FIELD_ID)
    if not isinstance(physical_name, str) or not physical_name:
        raise FormatError(f"{where} has no {PHYSICAL_NAME}", found=repr(metadata)[:80])
    if type(field_id) is int:
        return physical_name, field_id
    if mode == "id" or field_id is not None:
        raise FormatError(f"{where} has no {FIELD_ID}", found=repr(metadata)[:80])
    return physical_name, None


def _flag(value: Mapping[str, Any], name: str, where: str) -> bool:
    flag = value.get(name, True)
    if not isinstance(flag, bool):
        raise FormatError(f"{name} of {where} is not a boolean", found=repr(flag)[:80])
    return flag
