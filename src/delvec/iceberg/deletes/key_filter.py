"""Rows of data files without those that equality deletes delete.

A row is deleted if there is a delete of its key, in its scope, with a higher sequence number than
that of the row's data file. Both are joined in the JVM:

    data file  path -> sequence number, scope (its partition)
    delete     key  -> highest sequence number, scope (a partition, or none: global)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DataType,
    DateType,
    IntegerType,
    LongType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from delvec.iceberg.client.chosen_files import FilesOfKeys, read_key_files
from delvec.iceberg.deletes.key_columns import arrow_type
from delvec.iceberg.deletes.key_vectors import read_key_vector
from delvec.iceberg.deletes.read_schema import key_paths, key_schema, key_types
from delvec.identifiers import quote, require_no_own_names
from delvec.spark.storage import open_storage
from delvec.storage.listed_files import local_path
from delvec.storage.parallel import gather

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.chosen_files import DataFilesWithKeys
    from delvec.iceberg.client.delete_files import EqualityDeleteFile

__all__ = [
    "KEY_TYPES",
    "ScopedDelete",
    "deleted_keys",
    "is_deleted",
    "key_values",
    "with_file_marks",
    "without_keys",
]

_MOST_BROADCAST: Final = 20_000_000  # keys; 16 to 50 bytes each in the memory of each executor
_FEW_FILES: Final = 64  # of keys; more of them are likely to have the same ones
_GLOBAL: Final = -1
KEY_TYPES: Final[dict[str, DataType]] = {
    "int": IntegerType(),
    "long": LongType(),
    "date": DateType(),
    "timestamp": TimestampNTZType(),
    "timestamptz": TimestampType(),
}
"""The types of keys that vectors hold, as Spark has them."""

_KEY: Final = "__delvec_key"
_PATH: Final = "__delvec_path"
_SEQUENCE: Final = "__delvec_sequence"
_SCOPE: Final = "__delvec_scope"
_FILE_SEQUENCE: Final = "__delvec_file_sequence"
_FILE_SCOPE: Final = "__delvec_file_scope"


@dataclass(frozen=True)
class ScopedDelete:
    """An equality-delete file and the partition that it applies to, -1 for all."""

    file: EqualityDeleteFile
    scope: int


def without_keys(
    table: LoadedTable,
    snapshot_id: int,
    schema: Mapping[str, Any],
    rows: DataFrame,
    files: DataFilesWithKeys,
    deletes: Sequence[ScopedDelete],
) -> DataFrame:
    """Return the rows of data files without those that equality deletes delete; lazy.

    Ordinary equality-delete files are read by executors. Equality delete vectors are read by the
    driver, which holds 8 bytes for each of their keys.

    Args:
        table: The table.
        snapshot_id: The snapshot.
        schema: The columns of `rows`, key columns included, in Iceberg's JSON form.
        rows: The rows, with `_file` and `_pos` among their metadata columns.
        files: The data files that they are in.
        deletes: The equality deletes that apply to these.
    """
    marked = with_file_marks(table, rows.select("*", "_file", "_pos"), files)
    for ids in sorted({each.file.equality_ids for each in deletes}):
        some = [each for each in deletes if each.file.equality_ids == ids]
        marked = _anti_joined(table, snapshot_id, schema, marked, some)
    return marked


def with_file_marks(table: LoadedTable, rows: DataFrame, files: DataFilesWithKeys) -> DataFrame:
    """Return rows, which have `_file`, with the sequence number and the scope of their files."""
    # Of the table, not of the rows: those have key columns that were dropped, under own names.
    names = {
        each["name"] for schema in table.metadata.schemas.values() for each in schema["fields"]
    }
    require_no_own_names(sorted(names), str(table.name))
    return _marked(rows, files.files, (_FILE_SEQUENCE, _FILE_SCOPE))


def _marked(rows: DataFrame, files: pa.Table, names: tuple[str, str]) -> DataFrame:
    """Add the sequence number and the scope of each row's file."""
    sequence, scope = names
    places = files.select(["sequence", "scope"]).group_by(["sequence", "scope"]).aggregate([])
    if places.num_rows == 1:
        [place] = places.to_pylist()
        return rows.withColumns(
            {
                sequence: F.lit(place["sequence"]).cast("bigint"),
                scope: F.lit(place["scope"]).cast("int"),
            }
        )
    known = rows.sparkSession.createDataFrame(files.select(["path", "sequence", "scope"]))
    joined = rows.join(
        F.broadcast(known.toDF(_PATH, sequence, scope)), F.col("_file") == F.col(_PATH), "left"
    )
    # A row whose file is unknown must not pass: its deletes would be ignored.
    missing = F.raise_error(F.lit("delvec: a file is read that was not planned")).cast("bigint")
    return joined.withColumn(sequence, F.coalesce(F.col(sequence), missing))


def _anti_joined(
    table: LoadedTable,
    snapshot_id: int,
    schema: Mapping[str, Any],
    rows: DataFrame,
    deletes: Sequence[ScopedDelete],
) -> DataFrame:
    """Return rows without those that equality deletes of the same key columns delete."""
    keys = deleted_keys(table, snapshot_id, schema, deletes)
    return rows.join(keys, is_deleted(schema, deletes), "left_anti")


def is_deleted(schema: Mapping[str, Any], deletes: Sequence[ScopedDelete]) -> Column:
    """Return the condition that a row of `with_file_marks` is deleted by one of `deleted_keys`."""
    ids = deletes[0].file.equality_ids
    conditions = [F.col(_SEQUENCE) > F.col(_FILE_SEQUENCE)]
    if any(each.scope != _GLOBAL for each in deletes):
        conditions.append((F.col(_SCOPE) == _GLOBAL) | (F.col(_SCOPE) == F.col(_FILE_SCOPE)))
    # Null matches null; a join on plain equality is cheaper.
    has_nulls = any(each.file.null_counts.get(field_id, 1) for each in deletes for field_id in ids)
    for number, data in enumerate(key_values(schema, ids)):
        key = F.col(f"{_KEY}{number}")
        conditions.append(data.eqNullSafe(key) if has_nulls else data == key)
    return reduce(lambda one, other: one & other, conditions)


def deleted_keys(
    table: LoadedTable,
    snapshot_id: int,
    schema: Mapping[str, Any],
    deletes: Sequence[ScopedDelete],
) -> DataFrame:
    """Return deleted keys with the sequence number and the scope of their deletes; lazy.

    A key may be there several times. Few keys are marked to be broadcast by a join.

    Args:
        table: The table.
        snapshot_id: Any snapshot of it.
        schema: Its columns, key columns included, in Iceberg's JSON form.
        deletes: Equality deletes, all of the same key columns.
    """
    ordinary = [each for each in deletes if not each.file.is_vector]
    vectors = [each for each in deletes if each.file.is_vector]
    parts = []
    if ordinary:
        parts.append(_ordinary_keys(table, snapshot_id, schema, ordinary))
    if vectors:
        kind = key_types(schema)[vectors[0].file.equality_ids[0]]
        parts.append(_vector_keys(table, vectors, kind))
    found = reduce(DataFrame.unionAll, parts)
    if len(deletes) > _FEW_FILES:
        keys = [name for name in found.columns if name.startswith(_KEY)]
        found = found.groupBy(*keys, _SCOPE).agg(F.max(_SEQUENCE).alias(_SEQUENCE))
    few = sum(each.file.record_count for each in deletes) <= _MOST_BROADCAST
    return F.broadcast(found) if few else found


def _ordinary_keys(
    table: LoadedTable,
    snapshot_id: int,
    schema: Mapping[str, Any],
    deletes: Sequence[ScopedDelete],
) -> DataFrame:
    ids = deletes[0].file.equality_ids
    files = [each.file for each in deletes]
    described = tuple((each.path, each.file_format, each.size, each.record_count) for each in files)
    rows = read_key_files(table, snapshot_id, key_schema(schema, ids), FilesOfKeys(described))
    values = key_values(schema, ids)
    keys = [value.alias(f"{_KEY}{number}") for number, value in enumerate(values)]
    marks = pa.table(
        {
            "path": pa.array([each.path for each in files], pa.string()),
            "sequence": pa.array([each.sequence_number for each in files], pa.int64()),
            "scope": pa.array([each.scope for each in deletes], pa.int32()),
        }
    )
    marked = _marked(rows.select(*keys, "_file"), marks, (_SEQUENCE, _SCOPE))
    return marked.select(*(f"{_KEY}{number}" for number in range(len(keys))), _SCOPE, _SEQUENCE)


def _vector_keys(table: LoadedTable, deletes: Sequence[ScopedDelete], kind: str) -> DataFrame:
    storage = open_storage(table.spark, local_path(table.metadata.location))
    files = [each.file for each in deletes]
    values = [each.to_numpy() for each in gather(partial(read_key_vector, storage), files)]
    lengths = [len(each) for each in values]
    numbers = pa.array(np.concatenate(values))
    arrow = arrow_type(kind)
    narrow = pa.int32() if arrow.bit_width == numbers.type.bit_width // 2 else pa.int64()
    keys = pa.table(
        {
            f"{_KEY}0": numbers.cast(narrow).cast(arrow),
            _SCOPE: pa.array(np.repeat([each.scope for each in deletes], lengths), pa.int32()),
            _SEQUENCE: pa.array(
                np.repeat([each.sequence_number for each in files], lengths), pa.int64()
            ),
        }
    )
    # By a schema: PySpark would take a timestamp without a zone for one of the session's zone.
    types = [
        StructField(f"{_KEY}0", KEY_TYPES[kind]),
        StructField(_SCOPE, IntegerType()),
        StructField(_SEQUENCE, LongType()),
    ]
    return table.spark.createDataFrame(keys, StructType(types))


def key_values(schema: Mapping[str, Any], ids: Sequence[int]) -> list[Column]:
    """Return what is compared of a row: its key columns, and which structs around them are null.

    Iceberg distinguishes a struct that is null from one whose field is.
    """
    paths = key_paths(schema)
    columns = [F.col(_quoted(paths[field_id])) for field_id in ids]
    around = {path[:end] for path in map(paths.__getitem__, ids) for end in range(1, len(path))}
    return [*columns, *(F.col(_quoted(path)).isNull() for path in sorted(around))]


def _quoted(path: Sequence[str]) -> str:
    return ".".join(map(quote, path))
