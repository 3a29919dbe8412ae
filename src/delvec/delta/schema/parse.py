"""A schema read from Spark's JSON form, with the names and ids of column mapping.

Specification: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#schema-serialization-format
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from delvec.delta.schema.types import (
    FIELD_ID,
    PHYSICAL_NAME,
    ArrayType,
    Field,
    MapType,
    PrimitiveType,
    StructType,
)
from delvec.documents import parse_json
from delvec.errors import FormatError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delvec.delta.schema.types import DataType, MappingMode

__all__ = ["parse_schema"]

_MAX_PRECISION: Final = 38
_DEEPEST: Final = 80  # Arrow reads Parquet of up to 100 levels, of which the log needs some
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


def parse_schema(text: str, mapping_mode: MappingMode = "none") -> StructType:
    """Read the `schemaString` of a table.

    >>> text = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true}]}'
    >>> print(parse_schema(text))
    struct<id:long>

    Raises:
        FormatError: The string is not a schema, or column mapping is on and a column has no name
            or id in the files.
        UnsupportedFeatureError: A column has a type that delvec does not know.
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


def _depth(data_type: DataType) -> int:
    inner: list[DataType] = []
    if isinstance(data_type, StructType):
        inner = [each.type for each in data_type.fields]
    elif isinstance(data_type, ArrayType):
        inner = [data_type.element]
    elif isinstance(data_type, MapType):
        inner = [data_type.key, data_type.value]
    return 1 + max(map(_depth, inner), default=0)


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
    if kind == "udt":  # a user-defined class around a type; files hold the latter
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
    if decimal := PrimitiveType(text).decimal:
        precision, scale = decimal
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
