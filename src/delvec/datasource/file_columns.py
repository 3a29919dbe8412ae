"""Rows from Spark as the columns of a table's files: physical names and ids, exact types."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from delvec.delta.parquet.conform import Conformer
from delvec.delta.schema.arrow import arrow_type
from delvec.delta.schema.partition_values import HIVE_NULL
from delvec.delta.schema.types import ArrayType, MapType, PrimitiveType, StructType
from delvec.delta.schema.walk import map_fields, nullable
from delvec.errors import ConstraintError

if TYPE_CHECKING:
    from datetime import date, datetime
    from decimal import Decimal

    from delvec.datasource.target import Target
    from delvec.delta.schema.types import DataType, Field

__all__ = ["file_fields", "partition_texts", "table_columns", "to_physical"]

_ROWS: Final = Conformer("the rows to write")


def table_columns(batch: pa.RecordBatch, target: Target) -> list[pa.Array]:
    """Return the columns of the table, in its order and types, under logical names.

    Raises:
        ConstraintError: A column that takes no NULL has one.
    """
    columns = []
    # Nested fields are found by the names that the rows have, which are the logical ones.
    for field, place in zip(_logical(target).fields, target.sources, strict=True):
        if place is None:
            columns.append(pa.nulls(batch.num_rows, arrow_type(field.type)))
        else:
            columns.append(_ROWS.conform(batch.column(place), field.type, field.name))
    for field, column in zip(target.state.schema.fields, columns, strict=True):
        if not field.nullable and column.null_count:
            raise _null_found(target, field)
    return columns


def _logical(target: Target) -> StructType:
    return map_fields(nullable(target.state.schema), lambda f: replace(f, physical_name=f.name))


def _null_found(target: Target, field: Field) -> ConstraintError:
    return ConstraintError(
        f"column {field.name} takes no NULL, and a row to write has one",
        constraint=f"NOT NULL {field.name}",
        table=target.storage.root,
        hint="nothing was written; give the column a value in every row",
    )


def file_fields(target: Target) -> list[pa.Field]:
    """Return the columns that files hold, with physical names, and ids under column mapping."""
    metadata = target.state.metadata
    partitions = {field.name for field in metadata.partition_fields}
    stored = [field for field in metadata.schema.fields if field.name not in partitions]
    return [_physical_field(field, with_ids=metadata.mapping_mode != "none") for field in stored]


def _physical_field(field: Field, *, with_ids: bool) -> pa.Field:
    ids = None
    if with_ids and field.field_id is not None:
        ids = {b"PARQUET:field_id": str(field.field_id).encode()}
    return pa.field(field.physical_name, _physical(field.type, with_ids=with_ids), metadata=ids)


def _physical(kind: DataType, *, with_ids: bool) -> pa.DataType:
    if isinstance(kind, StructType):
        return pa.struct([_physical_field(field, with_ids=with_ids) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _physical(kind.element, with_ids=with_ids)))
    if isinstance(kind, MapType):
        key = pa.field("key", _physical(kind.key, with_ids=with_ids), nullable=False)
        return pa.map_(key, pa.field("value", _physical(kind.value, with_ids=with_ids)))
    return arrow_type(kind)


def to_physical(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array under other names of nested fields; nothing is copied but for slices."""
    if array.type == kind or not pa.types.is_nested(kind):
        return array
    if array.offset:
        array = pa.concat_arrays([array])  # children of a slice are not sliced
    if pa.types.is_struct(kind):
        inner = [to_physical(array.field(i), kind.field(i).type) for i in range(kind.num_fields)]
        count = 1
    elif pa.types.is_map(kind):
        pairs = pa.struct([kind.key_field, kind.item_field])
        inner, count = [to_physical(array.values, pairs)], 2
    else:
        inner, count = [to_physical(array.values, kind.value_type)], 2
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[:count], null_count=array.null_count, children=inner
    )


def partition_texts(column: pa.Array, field: Field, target: Target) -> pa.DictionaryArray:
    """Return a partition column as the strings that the log keeps, each distinct one once.

    Raises:
        ConstraintError: A string that is stored as null, in a column that takes none.
    """
    encoded = column.dictionary_encode()
    texts = [_text(value, field.type) for value in encoded.dictionary.to_pylist()]
    if None in texts and not field.nullable:
        raise _null_found(target, field)
    # Strings that mean null share a partition with null.
    return pa.array(texts, pa.string()).take(encoded.indices).dictionary_encode()


def _text(value: str | int | bool | date | datetime | Decimal, kind: DataType) -> str | None:  # noqa: FBT001
    """Return a value as Spark writes it; an empty string and Hive's name for null are null."""
    name = kind.name if isinstance(kind, PrimitiveType) else str(kind)
    if name == "string":
        return str(value) if value not in ("", HIVE_NULL) else None
    if name == "boolean":
        return str(value).lower()
    if name == "timestamp":
        return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z".rjust(27, "0")
    if name == "timestamp_ntz":
        text = f"{value:%Y-%m-%d %H:%M:%S.%f}".rjust(26, "0")
        return text.rstrip("0").rstrip(".") if text.endswith("0") else text
    return format(value, "f") if name.startswith("decimal") else str(value)
