"""Rows of data files without those that equality deletes delete.

A row is deleted if there is a delete of its key, in its scope, with a higher sequence number than
that of the row's data file. Both are joined in the JVM:

    data file  path -> sequence number, scope (its partition)
    delete     key  -> highest sequence number, scope (a partition, or none: global)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.file_scan import DataFilesWithKeys, read_key_files
from delvec.iceberg.client.files import EqualityDeleteFile
from delvec.iceberg.deletes.key_columns import key_paths, key_schema, key_types
from delvec.iceberg.deletes.key_vectors import read_key_vector
from delvec.identifiers import quote, require_no_own_names
from delvec.spark.input.key_values import from_numbers
from delvec.storage.parallel import gather

_MOST_BROADCAST: Final = 20_000_000  # keys; 16 to 50 bytes each in the memory of each executor
_FEW_FILES: Final = 64  # of keys; more of them are likely to have the same ones
GLOBAL: Final = -1
KEY: Final = "__delvec_key"
_PATH: Final = "__delvec_path"
SEQUENCE: Final = "__delvec_sequence"
SCOPE: Final = "__delvec_scope"
FILE_SEQUENCE: Final = "__delvec_file_sequence"
FILE_SCOPE: Final = "__delvec_file_scope"


@dataclass(frozen=True)
class ScopedDelete:
    """An equality-delete file and the partition that it applies to, -1 for all."""

    file: EqualityDeleteFile
    scope: int


def filter_deleted(
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
    """
    marked = with_file_marks(table, rows.select("*", "_file", "_pos"), files)
    for ids in sorted({each.file.equality_ids for each in deletes}):
        some = [each for each in deletes if each.file.equality_ids == ids]
        keys = read_deleted_keys(table, snapshot_id, schema, some)
        marked = marked.join(keys, is_deleted(schema, some), "left_anti")
    return marked


def with_file_marks(table: LoadedTable, rows: DataFrame, files: DataFilesWithKeys) -> DataFrame:
    """Return rows, which have `_file`, with the sequence number and the scope of their files."""
    # Of the table, not of the rows: those have key columns that were dropped, under own names.
    names = {
        each["name"] for schema in table.metadata.schemas.values() for each in schema["fields"]
    }
    require_no_own_names(sorted(names), str(table.name))
    return _marked(rows, files.files, (FILE_SEQUENCE, FILE_SCOPE))


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


def is_deleted(schema: Mapping[str, Any], deletes: Sequence[ScopedDelete]) -> Column:
    """Return the condition that `read_deleted_keys` has a row of `with_file_marks`."""
    ids = deletes[0].file.equality_ids
    conditions = [is_later(scoped=any(each.scope != GLOBAL for each in deletes))]
    # Null matches null; a join on plain equality is cheaper.
    has_nulls = any(each.file.null_counts.get(field_id, 1) for each in deletes for field_id in ids)
    for number, data in enumerate(key_values(schema, ids)):
        key = F.col(f"{KEY}{number}")
        conditions.append(data.eqNullSafe(key) if has_nulls else data == key)
    return reduce(and_, conditions)


def is_later(*, scoped: bool) -> Column:
    """Return the condition that a delete is later than a row's file, and applies to its scope."""
    later = F.col(SEQUENCE) > F.col(FILE_SEQUENCE)
    if not scoped:
        return later
    return later & ((F.col(SCOPE) == GLOBAL) | (F.col(SCOPE) == F.col(FILE_SCOPE)))


def read_deleted_keys(
    table: LoadedTable, snapshot_id: int, schema: Mapping[str, Any], deletes: Sequence[ScopedDelete]
) -> DataFrame:
    """Return deleted keys with the sequence number and the scope of their deletes; lazy.

    A key may be there several times. Few keys are marked to be broadcast by a join.
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
        keys = [name for name in found.columns if name.startswith(KEY)]
        found = found.groupBy(*keys, SCOPE).agg(F.max(SEQUENCE).alias(SEQUENCE))
    few = sum(each.file.record_count for each in deletes) <= _MOST_BROADCAST
    return F.broadcast(found) if few else found


def _ordinary_keys(
    table: LoadedTable, snapshot_id: int, schema: Mapping[str, Any], deletes: Sequence[ScopedDelete]
) -> DataFrame:
    ids = deletes[0].file.equality_ids
    files = [each.file for each in deletes]
    rows = read_key_files(table, snapshot_id, key_schema(schema, ids), files)
    values = key_values(schema, ids)
    keys = [value.alias(f"{KEY}{number}") for number, value in enumerate(values)]
    marks = pa.table(
        {
            "path": pa.array([each.path for each in files], pa.string()),
            "sequence": pa.array([each.sequence_number for each in files], pa.int64()),
            "scope": pa.array([each.scope for each in deletes], pa.int32()),
        }
    )
    marked = _marked(rows.select(*keys, "_file"), marks, (SEQUENCE, SCOPE))
    return marked.select(*(f"{KEY}{number}" for number in range(len(keys))), SCOPE, SEQUENCE)


def _vector_keys(table: LoadedTable, deletes: Sequence[ScopedDelete], kind: str) -> DataFrame:
    files = [each.file for each in deletes]
    read = partial(read_key_vector, table.storage())
    values = [each.to_numpy() for each in gather(read, files)]
    lengths = [len(each) for each in values]
    keys = pa.table(
        {
            f"{KEY}0": from_numbers(np.concatenate(values), kind),
            SCOPE: pa.array(np.repeat([each.scope for each in deletes], lengths), pa.int32()),
            SEQUENCE: pa.array(
                np.repeat([each.sequence_number for each in files], lengths), pa.int64()
            ),
        }
    )
    # By a schema: PySpark would take a timestamp without a zone for one of the session's zone.
    schema = from_arrow_schema(keys.schema, prefer_timestamp_ntz=True)
    return table.spark.createDataFrame(keys, schema)


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
