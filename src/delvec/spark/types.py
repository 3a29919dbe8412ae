"""The schema of a Delta table in PySpark's types: as the files have it, and as users see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as spark

from delvec.delta.schema.types import CHAR_TYPE, ArrayType, MapType, PrimitiveType, StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delvec.delta.schema.types import DataType, Field

__all__ = ["file_schema", "leaves", "logical_path", "spark_type", "table_schema"]

_FIELD_ID: Final = "parquet.field.id"


def spark_type(kind: DataType) -> spark.DataType:
    """Give a type with the names that users see; everything may be null."""
    return _typed(kind, lambda struct: table_schema(struct.fields))


def table_schema(fields: Sequence[Field]) -> spark.StructType:
    """Give columns as users see them, with their comments."""
    return spark.StructType(
        [
            spark.StructField(field.name, spark_type(field.type), True, _shown(field))
            for field in fields
        ]
    )


def file_schema(fields: Sequence[Field], *, by_id: bool = False) -> spark.StructType:
    """Give columns as the files have them: physical names, and ids where these decide.

    Ids that do not decide would make Spark refuse files without any, as tables have that were made
    before their columns were mapped.
    """
    return spark.StructType([_file_field(field, by_id=by_id) for field in fields])


def logical_path(schema: StructType, physical: tuple[str, ...]) -> tuple[str, ...] | None:
    """Translate a path of physical names; None if there is no such column."""
    names: list[str] = []
    kind: DataType = schema
    for name in physical:
        fields = kind.fields if isinstance(kind, StructType) else ()
        field = next((field for field in fields if field.physical_name == name), None)
        if field is None:
            return None
        names.append(field.name)
        kind = field.type
    return tuple(names)


def leaves(kind: DataType) -> int:
    """Count fields as Spark does before it decides to read by rows."""
    if isinstance(kind, StructType):
        return sum(leaves(field.type) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return leaves(kind.element)
    if isinstance(kind, MapType):
        return leaves(kind.key) + leaves(kind.value)
    return 1


def _typed(kind: DataType, of_struct: Callable[[StructType], spark.DataType]) -> spark.DataType:
    if isinstance(kind, ArrayType):
        return spark.ArrayType(_typed(kind.element, of_struct))
    if isinstance(kind, MapType):
        return spark.MapType(_typed(kind.key, of_struct), _typed(kind.value, of_struct))
    return of_struct(kind) if isinstance(kind, StructType) else _primitive(kind)


def _primitive(kind: PrimitiveType) -> spark.DataType:
    found: spark.DataType = spark._parse_datatype_json_value(kind.name)  # noqa: SLF001
    return found


def _file_field(field: Field, *, by_id: bool) -> spark.StructField:
    # Mapping by name may leave ids away.
    has_id = by_id and field.field_id is not None
    metadata = _shown(field) | ({_FIELD_ID: field.field_id} if has_id else {})
    return spark.StructField(
        field.physical_name,
        _typed(field.type, lambda struct: file_schema(struct.fields, by_id=by_id)),
        True,
        metadata,
    )


def _shown(field: Field) -> dict[str, Any]:
    """Keep what users wrote, and by what Spark fills texts of fixed width up with blanks."""
    return {key: field.metadata[key] for key in ("comment", CHAR_TYPE) if key in field.metadata}
