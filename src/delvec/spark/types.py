"""Schemas of Delta as schemas of PySpark and back, with logical or physical names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import types as spark

from delvec.delta.schema import types as delta
from delvec.errors import InvalidArgumentError

_FIELD_ID: Final = "parquet.field.id"


def schema_of(schema: Any) -> delta.StructType:  # noqa: ANN401
    """Return the schema of a StructType of Spark, of a DDL string, or of a schema of delvec."""
    if isinstance(schema, delta.StructType):
        return schema
    if isinstance(schema, str):
        schema = _from_ddl(schema)
    if not isinstance(schema, spark.StructType):
        raise InvalidArgumentError(
            f"a schema is a StructType or a string such as 'id long, day date', got {schema!r}"
        )
    plain = [_with_plain_strings(each) for each in schema.fields]
    return delta.parse_schema(spark.StructType(plain).json())


def spark_type(kind: delta.DataType) -> spark.DataType:
    """Return a type with logical names; nullable at every level."""
    return _typed(kind, lambda struct: table_schema(struct.fields))


def table_schema(fields: Sequence[delta.Field]) -> spark.StructType:
    """Return columns with their logical names and comments."""
    return spark.StructType(
        [
            spark.StructField(field.name, spark_type(field.type), True, _shown(field))
            for field in fields
        ]
    )


def file_schema(fields: Sequence[delta.Field], *, by_id: bool = False) -> spark.StructType:
    """Return columns as the files have them: physical names, and field ids if `by_id`.

    In mapping mode `name` ids are omitted: they would make Spark refuse files without any, which a
    table has from before its columns were mapped.
    """
    return spark.StructType([_file_field(field, by_id=by_id) for field in fields])


def leaves(kind: delta.DataType) -> int:
    """Return the number of fields, as Spark counts them before it decides to read by rows."""
    if isinstance(kind, delta.PrimitiveType):
        return 1
    return sum(leaves(each.type) for each in delta.children(kind))


def _typed(
    kind: delta.DataType, of_struct: Callable[[delta.StructType], spark.DataType]
) -> spark.DataType:
    if isinstance(kind, delta.ArrayType):
        return spark.ArrayType(_typed(kind.element, of_struct))
    if isinstance(kind, delta.MapType):
        return spark.MapType(_typed(kind.key, of_struct), _typed(kind.value, of_struct))
    return of_struct(kind) if isinstance(kind, delta.StructType) else _primitive(kind)


def _primitive(kind: delta.PrimitiveType) -> spark.DataType:
    found: spark.DataType = spark._parse_datatype_json_value(kind.name)  # noqa: SLF001
    return found


def _file_field(field: delta.Field, *, by_id: bool) -> spark.StructField:
    # With mapping by name a field may have no id.
    has_id = by_id and field.field_id is not None
    metadata = _shown(field) | ({_FIELD_ID: field.field_id} if has_id else {})
    return spark.StructField(
        field.physical_name,
        _typed(field.type, lambda struct: file_schema(struct.fields, by_id=by_id)),
        True,
        metadata,
    )


def _shown(field: delta.Field) -> dict[str, Any]:
    """Return the metadata for Spark: the comment, and the char type, by which it pads strings."""
    keys = ("comment", delta.CHAR_TYPE)
    return {key: field.metadata[key] for key in keys if key in field.metadata}


def _with_plain_strings(field: spark.StructField) -> spark.StructField:
    """Turn `char(n)` and `varchar(n)` into strings with the type in their metadata, as Spark."""
    plain = _plain(field.dataType)
    if plain == field.dataType:
        return field
    metadata = {**(field.metadata or {}), delta.CHAR_TYPE: field.dataType.simpleString()}
    return spark.StructField(field.name, plain, field.nullable, metadata)


def _plain(kind: spark.DataType) -> spark.DataType:
    if isinstance(kind, spark.CharType | spark.VarcharType):
        return spark.StringType()
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(_plain(kind.elementType), kind.containsNull)
    if isinstance(kind, spark.MapType):
        key, value = _plain(kind.keyType), _plain(kind.valueType)
        return spark.MapType(key, value, kind.valueContainsNull)
    if isinstance(kind, spark.StructType):
        fields = [
            spark.StructField(each.name, _plain(each.dataType), each.nullable, each.metadata)
            for each in kind.fields
        ]
        return spark.StructType(fields)
    return kind


def _from_ddl(ddl: str) -> Any:  # noqa: ANN401
    try:
        return spark.StructType.fromDDL(ddl)
    except PySparkRuntimeError as error:
        raise InvalidArgumentError(
            f"only Spark parses a schema that is a string, and there is no session: {ddl!r}",
            hint="start one, or pass a StructType",
        ) from error
    except PySparkException as error:
        reason = str(error).strip().partition("\n")[0]
        raise InvalidArgumentError(
            f"{ddl!r} is not a schema: {reason}", hint="write it as in 'id long, day date'"
        ) from error
