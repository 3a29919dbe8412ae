"""Finding rows with deleted keys by the index or by the join, whichever is asked for or cheaper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from pyspark.sql import DataFrame

from delvec.errors import InvalidArgumentError
from delvec.iceberg.deletes.key_columns import key_types
from delvec.iceberg.search.index_search import FEW_KEYS, find_by_index
from delvec.iceberg.search.index_update import update_index
from delvec.iceberg.search.key_index import KeyIndex, open_index, why_no_index
from delvec.iceberg.search.search import Search, find_by_join
from delvec.report.hints import Wording
from delvec.spark.input.key_values import NUMBER_TYPES

Strategy: TypeAlias = Literal["auto", "join", "index"]
# Seconds on two cores, rough, from tables of 4 and 20 million rows. Only their ratios matter, but
# for the first one: it says from which size on an index is thought of.
_JOB: Final = 1.0  # the jobs of a look-up, however small
_ROW_OF_NUMBERS: Final = 4e-8  # compared as bits in the scan's filter
_ROW_OF_OTHERS: Final = 2e-7  # joined; for each column
_INDEX_ROW: Final = 8e-8
_ROWS_OF_A_GROUP: Final = 90_000  # of an index, the least that an IN condition reads
_PROBE: Final = 1e-6  # a key in a look-up
_MARKS: Final = 0.7  # reading which files are indexed
_ACCEPTED: Final = 0.25  # of the join, for a look-up that may turn out to be in vain


@dataclass(frozen=True)
class Choice:
    """How rows are found, and why so."""

    strategy: Literal["join", "index"]
    reason: str


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows with deleted keys, see `find_by_join`, and how they are found."""

    rows: DataFrame
    choice: Choice


def find_rows_of(
    search: Search, wanted: Strategy, keys: frozenset[int], *, may_write: bool
) -> Rows:
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


def choose(search: Search, index: KeyIndex | None, wanted: Strategy) -> Choice:
    """Return how to find the rows of a search."""
    if wanted == "join":
        return Choice("join", "as asked for")
    if index is None or not index.is_usable:
        why = "there is no index" if index is None else f"the index is not usable: {index.why_not}"
        if wanted == "index":
            raise InvalidArgumentError(
                f"index='index' for {search.table.name}, but {why}",
                hint=Wording("build_index(keys) first", "make it by `delvec index` first"),
            )
        return Choice("join", why)
    if wanted == "index":
        return Choice("index", "as asked for")
    return _cheaper(search, index)


def _cheaper(search: Search, index: KeyIndex) -> Choice:
    keys, rows, files = search.keys, search.rows, search.files.files.num_rows
    cost = _row_cost(search)
    join = rows * cost
    look_up = _look_up(keys, index)
    if index.snapshot_id != search.snapshot_id:
        # Files that are not indexed yet are read as by the join; which they are, its marks tell.
        look_up += _MARKS + max(0, rows - index.rows) * cost
    # Keys in no order: the share of files that have at least one of them.
    share = 0.0 if index.key.is_proven else 1 - (1 - 1 / max(files, 1)) ** keys
    what = f"{keys:,} keys in {rows:,} rows of {files:,} files"
    if look_up + share * join < join:
        return Choice("index", f"{what}: the index is read in place of most files")
    # What is found may be in few files all the same; if not, little is lost.
    if look_up < _ACCEPTED * join:
        return Choice("index", f"{what}: a look-up costs little beside reading the files")
    return Choice("join", f"{what}: reading their keys costs less than a look-up")


def _look_up(keys: int, index: KeyIndex) -> float:
    rows = index.rows
    if keys <= FEW_KEYS:
        # Each append has rows of any hash; a key is looked for in one row group of each.
        rows = min(rows, keys * _ROWS_OF_A_GROUP * (1 + min(index.runs, index.files)))
    return _JOB + rows * _INDEX_ROW + keys * _PROBE


def _row_cost(search: Search) -> float:
    types = key_types(search.schema)
    kinds = [types[each] for each in search.ids]
    if len(kinds) == 1 and kinds[0] in ("boolean", *NUMBER_TYPES):
        return _ROW_OF_NUMBERS
    return _ROW_OF_OTHERS * len(kinds)
