"""What the tests of the index ask of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.iceberg.client.chosen_files import plan_snapshot
from delvec.iceberg.client.delete_files import from_content_file
from delvec.iceberg.deletes.key_filter import ScopedDelete
from delvec.iceberg.deletes.read_schema import with_dropped_keys
from delvec.iceberg.search.find import find_by_join
from delvec.iceberg.search.index_search import find_by_index
from delvec.iceberg.search.search import FILE, KEY_HASH, PLACE, Search
from tests.iceberg.deletes.tables import loaded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.search.key_index import KeyIndex

__all__ = ["found_by_both", "head_of", "places", "search_of"]


def head_of(table: LoadedTable, branch: str = "main") -> int:
    head = table.metadata.head(branch)
    assert head is not None
    return head.id


def search_of(spark: SparkSession, name: str, branch: str = "main") -> Search:
    """The equality deletes of a branch, all of the same key columns, and where they apply."""
    table = loaded(spark, name)
    snapshot_id = head_of(table, branch)
    files = plan_snapshot(table, snapshot_id, table.metadata.schema)
    deletes = tuple(
        ScopedDelete(from_content_file(text, number), scope)
        for number, scope, text in files.deletes
    )
    ids = deletes[0].file.equality_ids
    schema = with_dropped_keys(table.metadata, table.metadata.schema, ids, name)
    return Search(table, snapshot_id, schema, files, deletes)


def places(rows: DataFrame) -> list[tuple[Any, ...]]:
    """The different rows that were found, in order."""
    return sorted({tuple(row) for row in rows.select(FILE, PLACE, KEY_HASH).collect()})


def found_by_both(search: Search, index: KeyIndex) -> int:
    """How many rows are found, by the index and by the join alike."""
    found = places(find_by_index(search, index))
    assert found == places(find_by_join(search))
    return len(found)
