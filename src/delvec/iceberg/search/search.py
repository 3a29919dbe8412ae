"""A search for live rows that have a deleted key, and the way to find them that needs no index.

Iceberg's planner, by partitions and bounds, has said which data files may have some: their key
columns are read. Keys are compared as bits in the scan's filter where they are of one integer
column, and joined otherwise; see `key_bits` and `key_filter`. The time grows with the rows of these
data files, not with other columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.file_scan import DataFilesWithKeys, read_data_files
from delvec.iceberg.client.files import EqualityDeleteFile
from delvec.iceberg.deletes import key_filter
from delvec.iceberg.deletes.key_bits import plan_bits
from delvec.iceberg.deletes.key_columns import add_dropped_key_columns
from delvec.iceberg.deletes.key_filter import ScopedDelete

FILE: Final = "_file"
"""The column of a found row's data file, as the manifest spells it."""
PLACE: Final = "_pos"
"""The column of its position there."""
KEY_HASH: Final = "__delvec_key_hash"
"""The column of the hash of its key columns."""


@dataclass(frozen=True, eq=False)
class Search:
    """Data files of a snapshot, and the equality deletes that apply to rows of theirs.

    A row is deleted if a delete has its key, applies to the partition of its file or to all, and
    has a higher sequence number than its file.

    Attributes:
        snapshot_id: Rows that positions and vectors of this snapshot delete are not live.
        schema: The columns, key columns included, in Iceberg's JSON form.
        deletes: The equality deletes, all of the same key columns. Their sequence numbers need not
            be those of the manifest.
    """

    table: LoadedTable
    snapshot_id: int
    schema: Mapping[str, Any]
    files: DataFilesWithKeys
    deletes: tuple[ScopedDelete, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """The field ids of the key columns."""
        return self.deletes[0].file.equality_ids

    def deleted_keys(self) -> DataFrame:
        return key_filter.read_deleted_keys(self.table, self.snapshot_id, self.schema, self.deletes)

    @property
    def keys(self) -> int:
        """How many keys the deletes have."""
        return sum(each.file.record_count for each in self.deletes)

    @property
    def rows(self) -> int:
        """How many rows the data files have."""
        return int(sum(self.files.files.column("rows").to_pylist()))


def find_by_join(search: Search) -> DataFrame:
    """Return the live rows that have a deleted key, as `FILE`, `PLACE` and `KEY_HASH`; lazy."""
    hashed = F.xxhash64(*key_filter.key_values(search.schema, search.ids)).alias(KEY_HASH)
    bits = plan_bits(search.table, search.schema, search.files, search.deletes)
    if not isinstance(bits, str):
        parts = [
            _rows(search, each.paths).where(~each.condition).select(FILE, PLACE, hashed)
            for each in bits
        ]
        return reduce(DataFrame.unionAll, parts)
    rows = _rows(search, search.files.files.column("path").to_pylist())
    marked = key_filter.with_file_marks(search.table, rows.select("*", FILE, PLACE), search.files)
    is_deleted = key_filter.is_deleted(search.schema, search.deletes)
    return marked.join(search.deleted_keys(), is_deleted, "left_semi").select(FILE, PLACE, hashed)


def count_keys(table: LoadedTable, snapshot_id: int, deletes: Iterable[EqualityDeleteFile]) -> int:
    """Return how many different keys equality deletes have, by a job that reads them."""
    by_ids: dict[tuple[int, ...], list[ScopedDelete]] = {}
    for each in deletes:
        ids = tuple(sorted(each.equality_ids))
        scoped = ScopedDelete(replace(each, equality_ids=ids), key_filter.GLOBAL)
        by_ids.setdefault(ids, []).append(scoped)
    count = 0
    for ids, some in by_ids.items():
        metadata, name = table.metadata, str(table.name)
        schema = add_dropped_key_columns(metadata, metadata.schema, ids, name)
        keys = key_filter.read_deleted_keys(table, snapshot_id, schema, some)
        values = keys.columns[: len(key_filter.key_values(schema, ids))]
        count += keys.select(F.xxhash64(*values)).distinct().count()
    return count


def _rows(search: Search, paths: Sequence[str]) -> DataFrame:
    return read_data_files(search.table, search.snapshot_id, search.schema, paths, chosen=True)
