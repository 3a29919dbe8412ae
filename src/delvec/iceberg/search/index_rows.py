"""What a primary-key index is about, and the rows that it has.

    hash  xxhash64 of the key columns, in order of their field ids; null leaves it as it is, so
          different keys may have one
    file  xxhash64 of the data file's path, as the manifest spells it, and of what is indexed
    pos   the row's position in the file
    path  null, but for the mark of a file

All rows that a file has are indexed, deleted ones included: a rollback, or another branch, may have
them live. A file is marked, in the same commit, by one more row: the path, and as `hash` what the
index is about. Only marked files are indexed. So any mix of commits is right, those of concurrent
writers and of other keys included: what is missing is never taken for indexed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delvec.documents import parse_json
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.file_scan import read_all_rows
from delvec.iceberg.client.metadata import TableMetadata
from delvec.iceberg.deletes.key_columns import key_paths
from delvec.identifiers import quote
from delvec.spark.input.key_values import NUMBER_TYPES, UNKNOWN_TO_SPARK, is_key_type

HASH_VERSION: Final = 1
"""Is to be raised when the same key gets another hash, or the rows another meaning."""

_NAME_MAPPING: Final = "schema.name-mapping.default"
_ROWS_OF_A_PART: Final = 4_000_000  # some 12 bytes each
_FEWEST_ROWS_OF_A_PART: Final = 250_000


@dataclass(frozen=True)
class IndexedKey:
    """What an index is about: a table and key columns, as they are read.

    Attributes:
        ids: Field ids of the key columns, in ascending order.
        signature: A number for all that decides the hash of a row: the table, ids, types, defaults
            of rows without a value, names by which they are found in files without ids.
        why_not: Why such a key has no index; None if it may have one.
    """

    ids: tuple[int, ...]
    types: tuple[str, ...]
    signature: int
    why_not: str | None = None

    @property
    def is_proven(self) -> bool:
        """Whether rows with the same hash have the same key, null apart."""
        # Spark's xxhash64 of a number is a bijection of its 64 bits, or an injection of its 32.
        return len(self.ids) == 1 and self.types[0] in NUMBER_TYPES


def indexed_key(
    metadata: TableMetadata, schema: Mapping[str, Any], ids: Collection[int]
) -> IndexedKey:
    """Return what an index of key columns is about."""
    wanted = tuple(sorted(ids))
    fields = {each["id"]: each for each in schema["fields"]}
    inner = [each for each in wanted if each not in fields]
    if inner:
        name = ".".join(key_paths(schema)[inner[0]])
        return IndexedKey(wanted, (), 0, f"{name} is a field of a struct")
    kinds = [fields[each]["type"] for each in wanted]
    for each, kind in zip(wanted, kinds, strict=True):
        # Values of other types may be equal and have other bytes for Spark's hashes, as zeros of
        # floating-point numbers have, or Spark does not have them.
        if not isinstance(kind, str) or not is_key_type(kind) or kind in UNKNOWN_TO_SPARK:
            shown = kind if isinstance(kind, str) else kind["type"]
            return IndexedKey(wanted, (), 0, f"{fields[each]['name']} is {shown}")
    mapping = parse_json(metadata.properties.get(_NAME_MAPPING) or "[]", _NAME_MAPPING)
    # Of the top level; some of it has no column.
    names = {each["field-id"]: sorted(each["names"]) for each in mapping if "field-id" in each}
    facts = [
        HASH_VERSION,
        metadata.uuid,
        wanted,
        kinds,
        [fields[each].get("initial-default") for each in wanted],
        [names.get(each) for each in wanted],
    ]
    digest = sha256(json.dumps(facts).encode()).digest()
    return IndexedKey(wanted, tuple(kinds), int.from_bytes(digest[:8], "big", signed=True))


def file_hash(path: str, key: IndexedKey) -> Column:
    """Return the hash of a column of paths; of another key it is another, so entries never mix."""
    return F.xxhash64(F.col(path), F.lit(key.signature).cast("bigint"))


def entries_of(
    table: LoadedTable,
    snapshot_id: int,
    schema: Mapping[str, Any],
    key: IndexedKey,
    paths: Sequence[str] | None,
) -> DataFrame:
    """Return the rows of an index for data files of a snapshot; lazy."""
    by_id = {each["id"]: each for each in schema["fields"]}
    fields = [{**by_id[each], "required": False} for each in key.ids]
    narrow = {"type": "struct", "schema-id": 0, "fields": fields}
    rows = read_all_rows(table, snapshot_id, narrow, paths or (), chosen=paths is not None)
    return rows.select(
        F.xxhash64(*(F.col(quote(each["name"])) for each in fields)).alias("hash"),
        file_hash("_file", key).alias("file"),
        F.col("_pos").alias("pos"),
        F.lit(None).cast("string").alias("path"),
    )


def marks_of(paths: DataFrame, key: IndexedKey) -> DataFrame:
    """Return the rows that mark data files as indexed; lazy."""
    [name] = paths.columns
    return paths.select(
        F.lit(key.signature).cast("bigint").alias("hash"),
        file_hash(name, key).alias("file"),
        F.lit(-1).cast("bigint").alias("pos"),
        F.col(name).alias("path"),
    )


def sorted_by_hash(rows: DataFrame, count: int) -> DataFrame:
    """Return rows of an index in some parts, each of a range of hashes and sorted.

    Hashes are spread evenly, so that ranges are known without a look at the rows. That each range
    is a part of its own hangs on how Spark assigns parts; if it did otherwise, files would overlap.
    """
    cores = rows.sparkSession.sparkContext.defaultParallelism
    parts = max(-(-count // _ROWS_OF_A_PART), min(cores, count // _FEWEST_ROWS_OF_A_PART), 1)
    if parts == 1:
        return rows.repartition(1).sortWithinPartitions("hash")
    numbers = F.array(*map(F.lit, _numbers_by_part(rows, parts)))
    scaled = F.floor((F.col("hash") / F.lit(float(1 << 64)) + F.lit(0.5)) * F.lit(float(parts)))
    part = F.least(scaled.cast("int"), F.lit(parts - 1))
    return rows.repartition(parts, F.get(numbers, part)).sortWithinPartitions("hash")


def _numbers_by_part(rows: DataFrame, parts: int) -> list[int]:
    """Return for each part a number that Spark sends there."""
    tried = rows.sparkSession.range(0, 30 * parts, 1, 1)
    found = tried.selectExpr("CAST(id AS INT) AS id", f"pmod(hash(CAST(id AS INT)), {parts}) AS p")
    known = {each["p"]: each["id"] for each in found.toArrow().to_pylist()}
    return [known.get(part, part) for part in range(parts)]
