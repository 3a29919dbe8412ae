"""Finding rows with deleted keys by reading the key columns of all data files that may have some.

Iceberg's planner, by partitions and bounds, has said which these are. Keys are compared as bits in
the scan's filter where they are of one integer column, and joined otherwise; see `key_bits` and
`key_filter`. The time grows with the rows of these data files, not with other columns.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from delvec.iceberg.client.chosen_files import read_data_files
from delvec.iceberg.deletes.key_bits import plan_bits
from delvec.iceberg.deletes.key_filter import (
    ScopedDelete,
    deleted_keys,
    is_deleted,
    key_values,
    with_file_marks,
)
from delvec.iceberg.deletes.read_schema import with_dropped_keys
from delvec.iceberg.search.search import FILE, KEY_HASH, PLACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.client.delete_files import EqualityDeleteFile
    from delvec.iceberg.search.search import Search

__all__ = ["count_keys", "find_by_join"]


def find_by_join(search: Search) -> DataFrame:
    """Return the live rows that have a deleted key, as `FILE`, `PLACE` and `KEY_HASH`; lazy."""
    hashed = F.xxhash64(*key_values(search.schema, search.ids)).alias(KEY_HASH)
    bits = plan_bits(search.table, search.schema, search.files, search.deletes)
    if not isinstance(bits, str):
        parts = [
            _rows(search, each.paths).where(~each.condition).select(FILE, PLACE, hashed)
            for each in bits
        ]
        return reduce(DataFrame.unionAll, parts)
    rows = _rows(search, search.files.files.column("path").to_pylist())
    marked = with_file_marks(search.table, rows.select("*", FILE, PLACE), search.files)
    keys = deleted_keys(search.table, search.snapshot_id, search.schema, search.deletes)
    found = marked.join(keys, is_deleted(search.schema, search.deletes), "left_semi")
    return found.select(FILE, PLACE, hashed)


def count_keys(table: LoadedTable, snapshot_id: int, deletes: Iterable[EqualityDeleteFile]) -> int:
    """Return how many different keys equality deletes have, by a job that reads them.

    Args:
        table: The table.
        snapshot_id: Any snapshot of it.
        deletes: The deletes; those of different key columns are counted apart.
    """
    by_ids: dict[tuple[int, ...], list[ScopedDelete]] = {}
    for each in deletes:
        ids = tuple(sorted(each.equality_ids))
        by_ids.setdefault(ids, []).append(ScopedDelete(replace(each, equality_ids=ids), -1))
    count = 0
    for ids, some in by_ids.items():
        schema = with_dropped_keys(table.metadata, table.metadata.schema, ids, str(table.name))
        keys = deleted_keys(table, snapshot_id, schema, some)
        values = keys.columns[: len(key_values(schema, ids))]
        count += keys.select(F.xxhash64(*values)).distinct().count()
    return count


def _rows(search: Search, paths: Sequence[str]) -> DataFrame:
    return read_data_files(search.table, search.snapshot_id, search.schema, paths, chosen=True)
