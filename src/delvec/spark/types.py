"""The schema of a Delta table in PySpark's types: as the files have it, and as users see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as spark

from delvec.delta.schema.types import CHAR_TYPE, ArrayType, MapType, PrimitiveType, StructType
from delvec.delta.schema.walk import children

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delvec.delta.schema.types import DataType, Field

__all__ = ["file_schema", "leaves", "spark_type", "table_schema"]

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


def leaves(kind: DataType) -> int:
    """Count fields as Spark does before it decides to read by rows."""
    if isinstance(kind, PrimitiveType):
        return 1
    return sum(leaves(each.type) for each in children(kind))


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
