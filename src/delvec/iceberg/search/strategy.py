"""Which way of finding deleted rows costs less: reading the keys of all files, or the index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from delvec.errors import InvalidArgumentError
from delvec.iceberg.deletes.read_schema import key_types
from delvec.iceberg.search.index_search import FEW_KEYS
from delvec.report.wordings import Wording

if TYPE_CHECKING:
    from delvec.iceberg.search.key_index import KeyIndex
    from delvec.iceberg.search.search import Search

__all__ = ["Choice", "Strategy", "choose"]

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
_NUMBERS: Final = ("boolean", "int", "long", "date", "timestamp", "timestamptz")


@dataclass(frozen=True)
class Choice:
    """How rows are found, and why so."""

    strategy: Literal["join", "index"]
    reason: str


def choose(search: Search, index: KeyIndex | None, wanted: Strategy) -> Choice:
    """Return how to find the rows of a search.

    Args:
        search: What is looked for.
        index: The index, if there is one.
        wanted: The caller's choice; `auto` for the one that costs less by estimate.

    Raises:
        InvalidArgumentError: The index is wanted, and there is none of use.
    """
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
    keys = sum(each.file.record_count for each in search.deletes)
    files, rows = search.files.files.num_rows, search.rows
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
    kinds = [types[each] for each in search.deletes[0].file.equality_ids]
    if len(kinds) == 1 and kinds[0] in _NUMBERS:
        return _ROW_OF_NUMBERS
    return _ROW_OF_OTHERS * len(kinds)
