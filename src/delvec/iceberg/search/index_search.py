"""Finding deleted rows by the primary-key index.

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
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.files import find_position_deletes
from delvec.iceberg.deletes import key_filter
from delvec.iceberg.deletes.positions import read_earlier_positions
from delvec.iceberg.search.index_rows import file_hash, indexed_key
from delvec.iceberg.search.search import FILE, KEY_HASH, PLACE, Search, find_by_join
from delvec.spark.jobs import describe_jobs
from delvec.vector import Bitmap

if TYPE_CHECKING:
    from delvec.iceberg.search.key_index import KeyIndex


FEW_KEYS: Final = 2000
"""Up to so many deleted keys are looked up by an IN condition, which prunes the index."""

_MOST_IN: Final = 200  # Iceberg looks at no bounds for more values of one condition
_MOST_BROADCAST: Final = 5_000_000  # keys, 24 bytes each
_MOST_FOUND: Final = 1_000_000  # rows that the driver holds: 16 bytes and a path each
_HASH_OF_NULL: Final = 42  # the seed: there is one value of each type that may have this hash
_HASH: Final = "__delvec_hash"
_FILE_HASH: Final = "__delvec_file_hash"


def find_by_index(search: Search, index: KeyIndex) -> DataFrame:
    """Return the live rows that are deleted, as `find_by_join` does: file, place, hash of the key.

    The index is looked up at once, the keys are compared when the result is used. Files that are
    not indexed are searched by the join. The driver holds the hashes of few keys, and the paths of
    files with candidates; for keys that need no comparison at most 1 million rows, as positions.
    """
    if not _is_about(index, search):
        return find_by_join(search)
    with describe_jobs(search.table.spark, f"delvec: look-up in the index of {search.table.name}"):
        missing = _not_indexed(search, index)
        lookup = _Lookup(_with_files(search, missing, chosen=False), index)
        found = lookup.proven_rows() if index.key.is_proven else None
        paths = missing if found is not None else [*missing, *lookup.paths()]
    if not paths:
        return _nothing(search) if found is None else found
    compared = find_by_join(_with_files(search, paths, chosen=True))
    return compared if found is None else found.unionAll(compared)


def _is_about(index: KeyIndex, search: Search) -> bool:
    """Whether the index has the hashes of keys as they are read now."""
    if not index.is_usable or not search.files.files.num_rows:
        return False
    now = indexed_key(search.table.metadata, search.schema, search.ids)
    return now.why_not is None and now.signature == index.key.signature


def _not_indexed(search: Search, index: KeyIndex) -> list[str]:
    """Return the paths of files that the index does not have."""
    if index.snapshot_id == search.snapshot_id:
        return []
    paths = search.files.files.select(["path"])
    with translate_errors(str(search.table.name)):
        wanted = search.table.spark.createDataFrame(paths)
        found = wanted.join(index.indexed_paths(), "path", "left_anti").distinct().toArrow()
    missing: list[str] = found.column("path").to_pylist()
    return missing


def _with_files(search: Search, paths: Collection[str], *, chosen: bool) -> Search:
    """Return a search in some of its files, or in all others."""
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
    index: KeyIndex

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
        files = files.withColumn(_FILE_HASH, file_hash("path", self.index.key))
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
