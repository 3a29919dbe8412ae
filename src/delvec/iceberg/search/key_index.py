"""The primary-key index of a table: where rows with a key may be.

It is an Iceberg table of its own beside the table, `<table>__delvec_index`. Data files are
immutable, so what it says of a file stays right: files that are gone are ignored by look-ups,
deletion vectors need nothing, and new files are appended, in one commit with their marks
(`update_index`). It is written by Iceberg's own writer; concurrent writers may index a file twice,
which costs space.

The newest snapshot's summary says which snapshot of the table the index reflects. That is believed
only if no commit came between what the writer had read and what it committed; otherwise the marks
tell which files are indexed.

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
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delvec.documents import parse_json, whole_number
from delvec.errors import PlanError
from delvec.iceberg.client.catalog import LoadedTable, TableName, find_table, load_table
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.file_scan import read_all_rows
from delvec.iceberg.client.files import snapshot_rows
from delvec.iceberg.client.metadata import IcebergSnapshot, TableMetadata
from delvec.iceberg.client.own_location import require_own_folder, shown, sorted_out
from delvec.iceberg.deletes.key_columns import add_dropped_key_columns, key_paths
from delvec.identifiers import quote, sql_string
from delvec.report.format import format_count, format_size
from delvec.report.rendering import OperationReport, doc, documented, required
from delvec.spark import expressions
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


_SUFFIX: Final = "__delvec_index"
_OF: Final = "delvec.index-of"
_KEY: Final = "delvec.index-key"
_REFLECTS: Final = "delvec.index-reflects"
_READ: Final = "delvec.index-read"
_BUILT_ROWS: Final = "delvec.index-built-rows"
_RUNS: Final = "delvec.index-runs"
WHOLE: Final = "*"
"""Stands for the snapshot of the index that was read, where a commit replaces all of it."""
FILE_BYTES: Final = 64 << 20
"""The size of the index's files, at most."""
_PROPERTIES: Final = {
    "format-version": "2",
    "gc.enabled": "true",
    "commit.retry.num-retries": "20",
    "write.distribution-mode": "none",
    "write.format.default": "parquet",
    "write.parquet.compression-codec": "zstd",
    # Row groups are what an IN condition prunes: some 90,000 rows each.
    "write.parquet.row-group-size-bytes": str(1 << 20),
    "write.target-file-size-bytes": str(FILE_BYTES),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


@dataclass(frozen=True)
class Written:
    """What a commit to an index says of itself in its summary.

    Attributes:
        key: What is indexed.
        reflects: The snapshot of the indexed table all of whose files are indexed after it.
        read: The index's own snapshot that the writer had read; `WHOLE` if it replaces all rows.
        built_rows: Rows of the last build.
        runs: Appends since.
    """

    key: IndexedKey
    reflects: int
    read: str
    built_rows: int
    runs: int

    def to_summary(self, table: LoadedTable) -> dict[str, str]:
        return {
            _KEY: str(self.key.signature),
            _REFLECTS: str(self.reflects),
            _READ: self.read,
            _BUILT_ROWS: str(self.built_rows),
            _RUNS: str(self.runs),
            # For people: the number of the key stands for these.
            _OF: table.metadata.uuid,
            "delvec.index-key-ids": ",".join(map(str, self.key.ids)),
            "delvec.index-key-types": ",".join(self.key.types),
            "delvec.index-hash-version": str(HASH_VERSION),
        }


@dataclass(frozen=True, eq=False)
class KeyIndex:
    """An index as it was when it was opened.

    Attributes:
        table: The index's own table.
        head: The newest snapshot of the index's own table; None if it is empty.
        snapshot_id: A snapshot of the indexed table all of whose files are indexed; None if only
            the marks can tell.
        rows: Its rows, those of files that are gone included.
        why_not: Why it is not usable for this key; None if it is.
        built_rows: Rows of the last build: later ones are in files that overlap with all others.
        runs: Appends since files were built or merged.
        added_files: Data files that were indexed by the update that returned this.
        added_rows: Their rows.
        action: What that update did: `built`, `updated`, or `kept` as it was.
        reason: Why so.
    """

    table: LoadedTable
    key: IndexedKey
    head: int | None = None
    snapshot_id: int | None = None
    rows: int = 0
    bytes: int = 0
    files: int = 0
    why_not: str | None = None
    built_rows: int = 0
    runs: int = 0
    added_files: int = 0
    added_rows: int = 0
    action: str = "kept"
    reason: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether it is about the key that it was opened for."""
        return self.why_not is None

    def entries(self) -> DataFrame:
        """Return its rows, those that mark files included; lazy."""
        if self.head is None:
            return self.table.spark.table(str(self.table.name)).where("false")
        return snapshot_rows(self.table, self.head)

    def indexed_paths(self) -> DataFrame:
        """Return the paths of the files that it has, gone ones included, as `path`; lazy."""
        marks = (F.col("hash") == F.lit(self.key.signature)) & F.col("path").isNotNull()
        return self.entries().where(marks).select("path").distinct()

    def marks(self) -> DataFrame:
        """Return the hash and the path of all files that it has, for any key; lazy."""
        return self.entries().where("pos < 0").select("file", "path")


@documented()
class IndexReport(OperationReport):
    """The primary-key index of a table, and what its update did.

    >>> print(IndexReport("lake.db.orders", "lake.db.orders__delvec_index", ("id",), 7, "updated",
    ...                   added_files=2, added_rows=500, rows=10_004, bytes=120_000))
    INDEX of lake.db.orders by id: updated, reflects snapshot 7
      table    lake.db.orders__delvec_index
      indexed  2 files, 500 rows
      rows     10,004, 117.2 KiB
    """

    table: str = required("The name of the table.")
    index: str = required("The name of the index's own table.")
    keys: tuple[str, ...] = required("The key columns.")
    snapshot_id: int | None = required(
        "The snapshot whose data files are all indexed; None if others changed the index at the"
        " same time."
    )
    action: str = required("`built`, `updated`, or `kept` as it was.")
    reason: str = doc("Why it was built.", "")
    added_files: int = doc("Data files that were indexed.", 0)
    added_rows: int = doc("Their rows.", 0)
    rows: int = doc("Rows of the index, those of files that are gone included.", 0)
    bytes: int = doc("The size of its files.", 0)
    dry_run: bool = doc("Whether nothing was written: the action is what would be done.", False)

    @classmethod
    def of(
        cls, table: str, keys: tuple[str, ...], index: KeyIndex, phases: Mapping[str, float]
    ) -> IndexReport:
        names = ("snapshot_id", "action", "reason", "added_files", "added_rows", "rows", "bytes")
        figures: dict[str, Any] = {name: getattr(index, name) for name in names}
        return cls(table, str(index.table.name), keys, phases=phases, **figures)

    def _headline(self) -> str:
        state = "" if self.snapshot_id is None else f", reflects snapshot {self.snapshot_id}"
        told = f"{self.action}{state}"
        if self.dry_run:
            told = f"dry run: nothing was written, it would be {self.action}"
        return f"INDEX of {self.table} by {', '.join(self.keys)}: {told}"

    def _facts(self) -> dict[str, str]:
        files, rows = format_count(self.added_files, "file"), format_count(self.added_rows, "row")
        return {
            "table": self.index,
            "because": self.reason,
            "indexed": f"{files}, {rows}" if self.added_files else "",
            "rows": f"{self.rows:,}, {format_size(self.bytes)}" if self.rows else "",
        }


def index_name(name: TableName) -> TableName:
    return replace(name, table=f"{name.table}{_SUFFIX}")


def open_index(table: LoadedTable, ids: Collection[int]) -> KeyIndex | None:
    """Return the index of a table for a key; None if it has none. Only metadata is read."""
    found = find_table(table.spark, index_name(table.name))
    return None if found is None else opened(found, wanted_key(table, ids)[0])


def find_or_make_index(table: LoadedTable) -> LoadedTable:
    """Return the table of an index, which is made if there is none."""
    name = index_name(table.name)
    found = find_table(table.spark, name)
    if found is not None:
        return found
    properties = {**_PROPERTIES, _OF: table.metadata.uuid}
    listed = ", ".join(
        f"{sql_string(key)} = {sql_string(value)}" for key, value in properties.items()
    )
    with translate_errors(str(name)):
        expressions.run(
            table.spark,
            f"CREATE TABLE IF NOT EXISTS {name} (hash BIGINT, file BIGINT, pos BIGINT, path STRING)"
            f" USING iceberg TBLPROPERTIES ({listed})",
        )
    return load_table(table.spark, name)


def drop_index(table: LoadedTable, *, dry_run: bool = False) -> bool:
    """Drop the index of a table with its files; return whether there was one."""
    found = find_table(table.spark, index_name(table.name))
    if found is None:
        return False
    _require_ours(found)
    _require_own_files(found)
    if not dry_run:
        with translate_errors(str(found.name)):
            expressions.run(table.spark, f"DROP TABLE IF EXISTS {found.name} PURGE")
    return True


def why_no_index(table: LoadedTable, ids: Collection[int]) -> str | None:
    """Return why a key has no index, as `x is double`; None if it may have one."""
    return wanted_key(table, ids)[0].why_not


def wanted_key(table: LoadedTable, ids: Collection[int]) -> tuple[IndexedKey, Mapping[str, Any]]:
    """Return what an index of a key is about now, and the schema that has its columns."""
    schema = add_dropped_key_columns(table.metadata, table.metadata.schema, ids, str(table.name))
    return indexed_key(table.metadata, schema, ids), schema


def opened(table: LoadedTable, key: IndexedKey) -> KeyIndex:
    """Return the index that a table is, for a key."""
    _require_ours(table)
    head, signature = table.metadata.head(), str(key.signature)
    if head is None:
        return KeyIndex(table, key, why_not=key.why_not or "it is empty")
    changes = (each for each in table.metadata.ancestors() if each.operation != "replace")
    written = next(changes, None)
    is_merged = written is not head
    why_not = key.why_not
    if why_not is None and written and written.summary.get(_KEY, signature) != signature:
        why_not = "it is about other key columns, or other types of them"
    return KeyIndex(
        table,
        key,
        head.id,
        _reflected(written, key),
        rows=head.count("total-records") or 0,
        bytes=head.count("total-files-size") or 0,
        files=head.data_file_count or 0,
        why_not=why_not,
        built_rows=(written and written.count(_BUILT_ROWS)) or 0,
        runs=0 if written is None or is_merged else written.count(_RUNS) or 0,
    )


def _require_own_files(index: LoadedTable) -> None:
    """Refuse an index with files of others: all files of all snapshots go with it."""
    folder = require_own_folder(index)
    spark, name = index.spark, str(index.name)
    with translate_errors(name):
        spark.catalog.refreshTable(name)
        files = spark.table(f"{name}.all_files").select("file_path")
        manifests = spark.table(f"{name}.all_manifests").select("path")
        paths = files.union(manifests).distinct().toArrow().column(0).to_pylist()
    refused = sorted_out(index, folder, {*paths, *index.metadata.files}).refused
    if refused:
        raise PlanError(
            f"{name} has files that are not in {folder}: {shown(refused)}; nothing was dropped",
            hint=f"drop it by SQL, without PURGE: DROP TABLE {name}",
        )


def _reflected(written: IcebergSnapshot | None, key: IndexedKey) -> int | None:
    """Return the snapshot of the indexed table that a commit made the index reflect."""
    if written is None or written.summary.get(_KEY) != str(key.signature):
        return None
    read = written.summary.get(_READ)
    # Another commit in between may have removed what the writer believed to be there.
    if read not in (WHOLE, str(written.parent_id)):
        return None
    return whole_number(written.summary.get(_REFLECTS), signed=True)


def _require_ours(table: LoadedTable) -> None:
    if _OF not in table.metadata.properties:
        raise PlanError(
            f"{table.name} has the name of an index, and is none: its property {_OF} is missing",
            hint="rename that table",
        )
