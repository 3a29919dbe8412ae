"""The types of a Delta table's columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from html import escape
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from delvec.documents import whole_number
from delvec.errors import InvalidArgumentError
from delvec.spellings import called_property

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CHAR_TYPE",
    "FIELD_ID",
    "PHYSICAL_NAME",
    "WIDEST_CHAR",
    "ArrayType",
    "DataType",
    "Field",
    "MapType",
    "MappingMode",
    "PrimitiveType",
    "StructType",
]

MappingMode: TypeAlias = Literal["none", "name", "id"]

PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
FIELD_ID: Final = "delta.columnMapping.id"
_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]{1,9})\s*,\s*(-?[0-9]{1,9})\s*\)")
CHAR_TYPE: Final = "__CHAR_VARCHAR_TYPE_STRING"
WIDEST_CHAR: Final = 65_536
_CHAR: Final = re.compile(r"(?<!var)char\(([0-9]+)\)", re.IGNORECASE)


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
        """Return a field as Spark does: an exact match first, else one that differs in case only.

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
            f"there is no column {name!r}{f', only {known}' if known else ': there are none'}",
            hint=f"did you mean {' or '.join(near)}?" if near else None,
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
