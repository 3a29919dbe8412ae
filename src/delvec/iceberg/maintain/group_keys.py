"""The keys of equality deletes that are merged, from ordinary files and vectors."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from delvec.errors import FormatError, UnsupportedFeatureError
from delvec.iceberg.client.chosen_files import FilesOfKeys, read_key_files
from delvec.iceberg.client.failures import explained
from delvec.iceberg.deletes.key_columns import KeyColumn, arrow_type
from delvec.iceberg.deletes.key_filter import KEY_TYPES
from delvec.iceberg.deletes.key_values import from_arrow
from delvec.iceberg.deletes.key_vectors import read_key_vector
from delvec.iceberg.deletes.keys import Keys
from delvec.iceberg.deletes.read_schema import key_paths, key_schema, key_types, with_dropped_keys
from delvec.identifiers import quote
from delvec.report.wordings import call, worded
from delvec.spark.storage import open_storage
from delvec.storage.listed_files import local_path
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.delete_files import EqualityDeleteFile
    from delvec.iceberg.maintain.delete_groups import DeleteGroup

__all__ = ["group_columns", "group_keys", "why_unwritable"]

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
    """Return key columns by field id, as the table has them or had them when they were dropped.

    Raises:
        UnsupportedFeatureError: One is a field of a struct, or of a type that delvec does not
            write.
        FormatError: No schema of the table has one.
    """
    schema = with_dropped_keys(table.metadata, table.metadata.schema, ids, str(table.name))
    paths, types = key_paths(schema), key_types(schema)
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
        try:
            arrow_type(kind)
        except KeyError:
            raise UnsupportedFeatureError(
                f"the key column {name} is {kind}", feature=f"keys of type {kind}"
            ) from None
        found.append(KeyColumn(field_id, name, kind, field_id in required))
    return tuple(found)


def group_keys(
    table: LoadedTable, snapshot_id: int, groups: Sequence[DeleteGroup]
) -> Iterator[tuple[DeleteGroup, Keys | DataFrame]]:
    """Yield each group with its keys.

    Small groups are read together, by one job for 2 million keys, which the driver holds. The keys
    of a large group are a DataFrame; those of its vectors go through the driver, 8 bytes each.

    Args:
        table: The table.
        snapshot_id: The snapshot that has the groups.
        groups: Groups whose key columns can be written, see `why_unwritable`.

    Raises:
        FormatError: A file is damaged, or is not what the manifest says.
    """
    by_ids: dict[tuple[int, ...], list[DeleteGroup]] = {}
    for group in groups:
        by_ids.setdefault(group.kind.ids, []).append(group)
    for ids, alike in by_ids.items():
        columns = group_columns(table, ids)
        for some in _batches(alike):
            if len(some) == 1 and _is_large(some[0].keys, some[0].size):
                yield some[0], _as_frame(table, snapshot_id, some[0], columns)
            else:
                yield from _collected(table, snapshot_id, some, columns)


def _is_large(keys: int, size: int) -> bool:
    return keys > _MOST_KEYS or size > _MOST_BYTES


def _batches(groups: Sequence[DeleteGroup]) -> Iterator[list[DeleteGroup]]:
    """Split groups into batches that are read together."""
    batch: list[DeleteGroup] = []
    keys = size = 0
    for group in groups:
        keys, size = keys + group.keys, size + group.size
        if batch and _is_large(keys, size):
            yield batch
            batch, keys, size = [], group.keys, group.size
        batch.append(group)
    if batch:
        yield batch


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
    if ordinary:
        parts = _read(table, snapshot_id, ordinary, columns, len(groups))
    else:
        parts = [[[] for _ in columns] for _ in groups]
    for group, arrays in zip(groups, parts, strict=True):
        vectors = [each for each in group.files if each.is_vector]
        if vectors:
            arrays[0].append(_vector_keys(table, vectors, columns[0].type))
        whole = [
            pa.chunked_array(chunks, arrow_type(column.type))
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
    known = pa.table(
        {
            _PATH: pa.array([each.path for each, _ in files], pa.string()),
            _GROUP: pa.array([place for _, place in files], pa.int32()),
        }
    )
    with explained(str(table.name)):
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
            hint=worded("{} says which", call("check")),
        )
    ordered = found.sort_by(_GROUP)
    numbers = ordered.column(_GROUP).to_numpy()
    ends = np.searchsorted(numbers, np.arange(count + 1))
    whole = [
        from_arrow(ordered.column(name), column)
        for name, column in zip(names, columns, strict=True)
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
        schema = StructType([StructField(columns[0].name, KEY_TYPES[columns[0].type])])
        parts.append(table.spark.createDataFrame(pa.table({columns[0].name: keys}), schema))
    return reduce(DataFrame.unionAll, parts)


def _rows(
    table: LoadedTable,
    snapshot_id: int,
    files: Sequence[EqualityDeleteFile],
    columns: Sequence[KeyColumn],
) -> DataFrame:
    ids = [column.id for column in columns]
    schema = with_dropped_keys(table.metadata, table.metadata.schema, ids, str(table.name))
    described = tuple((each.path, each.file_format, each.size, each.record_count) for each in files)
    return read_key_files(table, snapshot_id, key_schema(schema, ids), FilesOfKeys(described))


def _vector_keys(table: LoadedTable, files: Sequence[EqualityDeleteFile], kind: str) -> pa.Array:
    """Return the keys of vectors as values of their column."""
    storage = open_storage(table.spark, local_path(table.metadata.location))
    keys = reduce(lambda one, other: one | other, gather(partial(read_key_vector, storage), files))
    wanted = arrow_type(kind)
    number = pa.int32() if wanted.bit_width == pa.int32().bit_width else pa.int64()
    return pa.array(keys.to_numpy()).cast(number).cast(wanted)
