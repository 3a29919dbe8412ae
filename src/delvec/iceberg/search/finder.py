"""Finding rows with deleted keys by the index or by the join, whichever is asked for or cheaper.

    deleted keys --hash--> index --file, pos--> data files with candidates --compare--> deleted rows

A hash is no proof: two keys may share one. So keys are compared as the join does it, in the data
files with candidates alone; that costs what these files have, so an index pays where deleted keys
are in few files of many. For one key column of a type that the hash maps one to one (int, long,
date, timestamp), nothing is left to compare, and no data file is read: only positions that are
deleted already have to be left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from operator import or_
from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delvec.errors import InvalidArgumentError
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.files import find_position_deletes
from delvec.iceberg.deletes import key_filter
from delvec.iceberg.deletes.key_columns import key_types
from delvec.iceberg.deletes.positions import read_earlier_positions
from delvec.iceberg.search import key_index
from delvec.iceberg.search.index_update import update_index
from delvec.iceberg.search.search import FILE, KEY_HASH, PLACE, Search, find_by_join
from delvec.report.hints import Wording
from delvec.spark.input.key_values import NUMBER_TYPES
from delvec.spark.jobs import describe_jobs
from delvec.vector import Bitmap

FEW_KEYS: Final = 2000
"""Up to so many deleted keys are looked up by an IN condition, which prunes the index."""

_MOST_IN: Final = 200  # Iceberg looks at no bounds for more values of one condition
_MOST_BROADCAST: Final = 5_000_000  # keys, 24 bytes each
_MOST_FOUND: Final = 1_000_000  # rows that the driver holds: 16 bytes and a path each
_HASH_OF_NULL: Final = 42  # the seed: there is one value of each type that may have this hash
_HASH: Final = "__delvec_hash"
_FILE_HASH: Final = "__delvec_file_hash"


def find_by_index(search: Search, index: key_index.KeyIndex) -> DataFrame:
    """Return the live rows that are deleted, as `find_by_join` does: file, place, hash of the key.

    The index is looked up at once, the keys are compared when the result is used. Files that are
    not indexed are searched by the join. The driver holds the hashes of few keys, and the paths of
    files with candidates; for keys that need no comparison at most 1 million rows, as positions.
    """
    if not index.is_usable or not search.files.files.num_rows:
        return find_by_join(search)
    now = key_index.indexed_key(search.table.metadata, search.schema, search.ids)
    if now.why_not is not None or now.signature != index.key.signature:
        return find_by_join(search)  # the hashes are not those of keys as they are read now
    with describe_jobs(search.table.spark, f"delvec: look-up in the index of {search.table.name}"):
        missing = _not_indexed(search, index)
        lookup = _Lookup(_with_files(search, missing, chosen=False), index)
        found = lookup.proven_rows() if index.key.is_proven else None
        paths = missing if found is not None else [*missing, *lookup.paths()]
    if not paths:
        return _nothing(search) if found is None else found
    compared = find_by_join(_with_files(search, paths, chosen=True))
    return compared if found is None else found.unionAll(compared)


def _not_indexed(search: Search, index: key_index.KeyIndex) -> list[str]:
    if index.snapshot_id == search.snapshot_id:
        return []
    paths = search.files.files.select(["path"])
    with translate_errors(str(search.table.name)):
        wanted = search.table.spark.createDataFrame(paths)
        found = wanted.join(index.indexed_paths(), "path", "left_anti").distinct().toArrow()
    missing: list[str] = found.column("path").to_pylist()
    return missing


def _with_files(search: Search, paths: Collection[str], *, chosen: bool) -> Search:
    files = search.files.files
    within = pc.is_in(files.column("path"), value_set=pa.array(list(paths), pa.string()))
    kept = files.filter(within if chosen else pc.invert(within))
    return replace(search, files=replace(search.files, files=kept))


def _nothing(search: Search) -> DataFrame:
    schema = f"{FILE} string, {PLACE} bigint, {KEY_HASH} bigint"
    return search.table.spark.createDataFrame([], schema)


@dataclass(frozen=True, eq=False)
class _Lookup:
    """Deletes by the key of an index, in files that it has."""

    search: Search
    index: key_index.KeyIndex

    def paths(self) -> list[str]:
        """Return the files with candidates."""
        if not self.search.files.files.num_rows:
            return []
        with translate_errors(str(self.search.table.name)):
            found = self._candidates().select("path").distinct().toArrow()
        paths: list[str] = found.column("path").to_pylist()
        return paths

    def proven_rows(self) -> DataFrame | None:
        """Return the live rows, if their hashes prove their keys; None if that cannot be told."""
        if not self.search.files.files.num_rows:
            return _nothing(self.search)
        candidates = self._candidates().select("path", "pos", _HASH, "file").distinct()
        with translate_errors(str(self.search.table.name)):
            found = candidates.limit(_MOST_FOUND + 1).toArrow()
        hashes = found.column(_HASH)
        if found.num_rows > _MOST_FOUND or pc.any(pc.equal(hashes, _HASH_OF_NULL)).as_py():
            return None
        if not self._are_different(pc.unique(found.column("file"))):
            return None
        live = _live(self.search, found.drop_columns(["file"]))
        if not live.num_rows:
            return _nothing(self.search)
        named = live.rename_columns([FILE, PLACE, KEY_HASH])
        return self.search.table.spark.createDataFrame(named)

    def _are_different(self, files: pa.Array) -> bool:
        """Whether each of some hashes of paths is that of one path, in all that the index has.

        Else rows of one file, even of one that is gone, would be taken for those of another.
        """
        if len(files) > _MOST_IN:
            marks = self.index.marks()
        else:
            marks = self.index.marks().where(F.col("file").isin(files.to_pylist()))
        twice = marks.distinct().groupBy("file").count().where("count > 1").select("file")
        with translate_errors(str(self.search.table.name)):
            found = twice.toArrow().column("file")
        return not pc.any(pc.is_in(found, value_set=files)).as_py()

    def _candidates(self) -> DataFrame:
        """Return path, position and hash of rows that may be deleted; a row may be there twice."""
        search, keys = self.search, self._keys()
        rows = self.index.entries().where("pos >= 0")
        if search.keys <= FEW_KEYS:
            with translate_errors(str(search.table.name)):
                hashes = keys.select(_HASH).distinct().toArrow().column(_HASH).to_pylist()
            rows = rows.where(_is_one_of(F.col("hash"), sorted(hashes)))
        listed = search.files.files.select(["path", "sequence", "scope"])
        names = "path", key_filter.FILE_SEQUENCE, key_filter.FILE_SCOPE
        files = search.table.spark.createDataFrame(listed).toDF(*names)
        files = files.withColumn(_FILE_HASH, key_index.file_hash("path", self.index.key))
        marked = rows.drop("path").join(F.broadcast(files), F.col("file") == F.col(_FILE_HASH))
        is_few = search.keys <= _MOST_BROADCAST
        applies = (F.col("hash") == F.col(_HASH)) & key_filter.is_later(scoped=True)
        return marked.join(F.broadcast(keys) if is_few else keys, applies)

    def _keys(self) -> DataFrame:
        """Return the hashes of deleted keys, with scope and sequence number."""
        ids, keys = self.search.ids, self.search.deleted_keys()
        columns = [F.col(f"{key_filter.KEY}{ids.index(each)}") for each in self.index.key.ids]
        hashed = F.xxhash64(*columns).alias(_HASH)
        return keys.select(hashed, key_filter.SCOPE, key_filter.SEQUENCE)


def _is_one_of(column: Column, values: Sequence[int]) -> Column:
    """Return the condition that a column has one of some values, such that Iceberg prunes by it."""
    if not values:
        return F.lit(False)
    starts = range(0, len(values), _MOST_IN)
    return reduce(or_, (column.isin(*values[start : start + _MOST_IN]) for start in starts))


def _live(search: Search, found: pa.Table) -> pa.Table:
    """Return those of some rows that no position deletes."""
    table, snapshot_id = search.table, search.snapshot_id
    files = find_position_deletes(table, snapshot_id, pc.unique(found.column("path")).to_pylist())
    deleted = read_earlier_positions(
        table, snapshot_id, table.storage(), files.values(), complete=True
    )
    ordered = found.sort_by("path")
    places = ordered.column("pos").to_numpy()
    is_live = np.ones(ordered.num_rows, dtype=bool)
    start = 0
    for path, some in groupby(ordered.column("path").to_pylist()):
        end = start + sum(1 for _ in some)
        if path in deleted:
            gone = (deleted[path] & Bitmap(places[start:end])).to_numpy()
            is_live[start:end] = ~np.isin(places[start:end], gone)
        start = end
    return ordered.filter(pa.array(is_live))


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
    if wanted == "index" and (reason := key_index.why_no_index(search.table, ids)):
        return Rows(find_by_join(search), Choice("join", f"no index: {reason}"))
    index = None if wanted == "join" else key_index.open_index(search.table, ids)
    if wanted == "index" and may_write:
        index = update_index(search.table, search.snapshot_id, ids)
    unusable = index is None or not index.is_usable
    choice = choose(search, index, "auto" if unusable and wanted == "index" else wanted)
    if choice.strategy == "join" or index is None:
        return Rows(find_by_join(search), choice)
    return Rows(find_by_index(search, index), choice)


def choose(search: Search, index: key_index.KeyIndex | None, wanted: Strategy) -> Choice:
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


def _cheaper(search: Search, index: key_index.KeyIndex) -> Choice:
    keys, rows, files = search.keys, search.rows, search.files.files.num_rows
    cost = _row_cost(search)
    join = rows * cost
    read = index.rows
    if keys <= FEW_KEYS:
        # Each append has rows of any hash; a key is looked for in one row group of each.
        read = min(read, keys * _ROWS_OF_A_GROUP * (1 + min(index.runs, index.files)))
    look_up = _JOB + read * _INDEX_ROW + keys * _PROBE
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


def _row_cost(search: Search) -> float:
    types = key_types(search.schema)
    kinds = [types[each] for each in search.ids]
    if len(kinds) == 1 and kinds[0] in ("boolean", *NUMBER_TYPES):
        return _ROW_OF_NUMBERS
    return _ROW_OF_OTHERS * len(kinds)
