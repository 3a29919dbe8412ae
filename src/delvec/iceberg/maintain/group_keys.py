"""The keys of equality deletes that are merged, from ordinary files and vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from delvec.errors import FormatError, UnsupportedFeatureError
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.file_scan import read_key_files
from delvec.iceberg.client.files import EqualityDeleteFile
from delvec.iceberg.deletes import key_columns
from delvec.iceberg.deletes.key_vectors import read_key_vector
from delvec.iceberg.maintain.delete_groups import DeleteGroup, packed
from delvec.identifiers import quote
from delvec.report.hints import call, format_hint
from delvec.spark.engine import open_storage
from delvec.spark.input.key_values import KeyColumn, convert, from_numbers, is_key_type
from delvec.spark.input.keys import Keys
from delvec.storage.listed_files import local_path
from delvec.storage.parallel import gather

_MOST_KEYS: Final = 2_000_000  # of the groups that one job reads, and the driver holds
_MOST_BYTES: Final = 16 << 20  # of their files
_GROUP: Final = "__delvec_group"
_PATH: Final = "__delvec_path"


def why_unwritable(table: LoadedTable, ids: Sequence[int]) -> str | None:
    """Return why no file with these key columns can be written; None if one can."""
    try:
        columns = group_columns(table, ids)
    except (UnsupportedFeatureError, FormatError) as error:
        return error.describe()
    for each in columns:
        if each.type.startswith("fixed"):
            return f"column {each.name} is {each.type}: readers need a file for each such key"
    return None


def group_columns(table: LoadedTable, ids: Sequence[int]) -> tuple[KeyColumn, ...]:
    """Return key columns by field id, as the table has them or had them when they were dropped."""
    schema = _schema(table, ids)
    paths, types = key_columns.key_paths(schema), key_columns.key_types(schema)
    required = {field["id"] for field in schema["fields"] if field["required"]}
    found = []
    for field_id in ids:
        [name, *inner] = paths[field_id]
        kind = types[field_id]
        if inner:
            raise UnsupportedFeatureError(
                f"the key column {'.'.join(paths[field_id])} is a field of a struct",
                feature="keys inside of structs",
            )
        if not is_key_type(kind):
            raise UnsupportedFeatureError(
                f"the key column {name} is {kind}", feature=f"keys of type {kind}"
            )
        found.append(KeyColumn(field_id, name, kind, field_id in required))
    return tuple(found)


def group_keys(
    table: LoadedTable, snapshot_id: int, groups: Sequence[DeleteGroup]
) -> Iterator[tuple[DeleteGroup, Keys | DataFrame]]:
    """Yield each group with its keys.

    Small groups are read together, by one job for 2 million keys, which the driver holds. The keys
    of a large group are a DataFrame; those of its vectors go through the driver, 8 bytes each.
    """
    by_ids: dict[tuple[int, ...], list[DeleteGroup]] = {}
    for group in groups:
        by_ids.setdefault(group.kind.ids, []).append(group)
    for ids, alike in by_ids.items():
        columns = group_columns(table, ids)
        for some in packed(alike, _MOST_BYTES, _MOST_KEYS):
            is_large = some[0].record_count > _MOST_KEYS or some[0].size > _MOST_BYTES
            if is_large:  # which is alone
                yield some[0], _as_frame(table, snapshot_id, some[0], columns)
            else:
                yield from _collected(table, snapshot_id, some, columns)


def _collected(
    table: LoadedTable,
    snapshot_id: int,
    groups: Sequence[DeleteGroup],
    columns: Sequence[KeyColumn],
) -> Iterator[tuple[DeleteGroup, Keys]]:
    ordinary = [
        (each, place)
        for place, group in enumerate(groups)
        for each in group.files
        if not each.is_vector
    ]
    parts: list[list[list[pa.Array]]] = [[[] for _ in columns] for _ in groups]
    if ordinary:
        parts = _read(table, snapshot_id, ordinary, columns, len(groups))
    for group, arrays in zip(groups, parts, strict=True):
        vectors = [each for each in group.files if each.is_vector]
        if vectors:
            arrays[0].append(_vector_keys(table, vectors, columns[0].type))
        whole = [
            pa.chunked_array(chunks, column.arrow)
            for chunks, column in zip(arrays, columns, strict=True)
        ]
        yield group, Keys.of_arrays(whole, columns)


def _read(
    table: LoadedTable,
    snapshot_id: int,
    files: Sequence[tuple[EqualityDeleteFile, int]],
    columns: Sequence[KeyColumn],
    count: int,
) -> list[list[list[pa.Array]]]:
    """Return the chunks of each key column, of the ordinary files of each of so many groups."""
    rows = _rows(table, snapshot_id, [each for each, _ in files], columns)
    names = [f"k{place}" for place in range(len(columns))]
    keys = [
        F.col(quote(column.name)).alias(name) for column, name in zip(columns, names, strict=True)
    ]
    paths, places = [each.path for each, _ in files], [place for _, place in files]
    known = pa.table({_PATH: pa.array(paths, pa.string()), _GROUP: pa.array(places, pa.int32())})
    with translate_errors(str(table.name)):
        marks = F.broadcast(table.spark.createDataFrame(known))
        # Selected first: Spark 4.0 joins by no metadata column that is not.
        named = rows.select(*keys, "_file")
        marked = named.join(marks, F.col("_file") == F.col(_PATH), "left")
        found = marked.select(*names, _GROUP).toArrow()
    expected = sum(each.record_count for each, _ in files)
    if found.num_rows != expected or found.column(_GROUP).null_count:
        raise FormatError(
            f"{len(files)} equality-delete files of {table.name} do not have the rows that their"
            " manifests say",
            expected=expected,
            found=found.num_rows,
            hint=format_hint("{} says which", call("check")),
        )
    ordered = found.sort_by(_GROUP)
    numbers = ordered.column(_GROUP).to_numpy()
    ends = np.searchsorted(numbers, np.arange(count + 1))
    whole = [
        convert(ordered.column(name), column) for name, column in zip(names, columns, strict=True)
    ]
    return [
        [values.slice(start, end - start).chunks for values in whole]
        for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]


def _as_frame(
    table: LoadedTable, snapshot_id: int, group: DeleteGroup, columns: Sequence[KeyColumn]
) -> DataFrame:
    """Return the keys of a group as a DataFrame with the key columns; lazy."""
    ordinary = [each for each in group.files if not each.is_vector]
    vectors = [each for each in group.files if each.is_vector]
    names = [quote(column.name) for column in columns]
    parts = []
    if ordinary:
        parts.append(_rows(table, snapshot_id, ordinary, columns).select(*names))
    if vectors:
        keys = _vector_keys(table, vectors, columns[0].type)
        schema = StructType([StructField(columns[0].name, columns[0].spark)])
        parts.append(table.spark.createDataFrame(pa.table({columns[0].name: keys}), schema))
    return reduce(DataFrame.unionAll, parts)


def _rows(
    table: LoadedTable,
    snapshot_id: int,
    files: Sequence[EqualityDeleteFile],
    columns: Sequence[KeyColumn],
) -> DataFrame:
    ids = [column.id for column in columns]
    schema = key_columns.key_schema(_schema(table, ids), ids)
    return read_key_files(table, snapshot_id, schema, files)


def _schema(table: LoadedTable, ids: Sequence[int]) -> Mapping[str, Any]:
    metadata, name = table.metadata, str(table.name)
    return key_columns.add_dropped_key_columns(metadata, metadata.schema, ids, name)


def _vector_keys(table: LoadedTable, files: Sequence[EqualityDeleteFile], kind: str) -> pa.Array:
    """Return the keys of vectors as values of their column."""
    storage = open_storage(table.spark, local_path(table.metadata.location))
    keys = reduce(lambda one, other: one | other, gather(partial(read_key_vector, storage), files))
    return from_numbers(keys.to_numpy(), kind)
