"""Finding rows with deleted keys by the index or by the join, whichever is asked for or cheaper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.iceberg.search.find import find_by_join
from delvec.iceberg.search.index_search import find_by_index
from delvec.iceberg.search.index_update import update_index
from delvec.iceberg.search.key_index import open_index, why_no_index
from delvec.iceberg.search.strategy import Choice, choose

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delvec.iceberg.search.search import Search
    from delvec.iceberg.search.strategy import Strategy

__all__ = ["Rows", "find_rows_of"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows with deleted keys, see `find_by_join`, and how they are found."""

    rows: DataFrame
    choice: Choice


def find_rows_of(
    search: Search, wanted: Strategy, keys: frozenset[int], *, may_write: bool
) -> Rows:
    """Find the rows of a search.

    Args:
        search: What is looked for, in the newest snapshot of the target.
        wanted: `index` makes the index, or brings it up to date first; `auto` uses what there is.
        keys: The field ids of the columns that the index is for; those of the search if empty.
        may_write: Whether the index may be written.
    """
    ids = frozenset(search.ids)
    if wanted != "join" and keys and keys != ids:
        return Rows(find_by_join(search), Choice("join", "a delete is by other columns"))
    if wanted == "index" and (reason := why_no_index(search.table, ids)):
        return Rows(find_by_join(search), Choice("join", f"no index: {reason}"))
    index = None if wanted == "join" else open_index(search.table, ids)
    if wanted == "index" and may_write:
        index = update_index(search.table, search.snapshot_id, ids)
    unusable = index is None or not index.is_usable
    choice = choose(search, index, "auto" if unusable and wanted == "index" else wanted)
    if choice.strategy == "join" or index is None:
        return Rows(find_by_join(search), choice)
    return Rows(find_by_index(search, index), choice)
