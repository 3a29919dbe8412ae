"""Bringing the primary-key index of a table to a snapshot, by the difference in data files."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameWriterV2
from pyspark.sql import functions as F

from delvec.errors import ConflictError, PlanError, UnsupportedFeatureError
from delvec.iceberg.client.catalog import LoadedTable, load_table
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.files import snapshot_table
from delvec.iceberg.maintain.procedures import call_procedure, expire_snapshots, sql_map
from delvec.iceberg.search import key_index
from delvec.iceberg.search.key_index import (
    IndexedKey,
    KeyIndex,
    Written,
    entries_of,
    marks_of,
    sorted_by_hash,
)
from delvec.identifiers import sql_string
from delvec.report.hints import argument, format_hint
from delvec.spark.jobs import describe_jobs

_LOG: Final = logging.getLogger("delvec")
_MOST_RUNS: Final = 16  # appended, before they are merged: each is looked into for each key
_MOST_OVERLAPPING: Final = 50_000_000  # rows in files that overlap those of the last build
_MOST_SNAPSHOTS: Final = 64
_KEPT: Final = timedelta(hours=1)  # of snapshots: longer than a look-up takes


def update_index(
    table: LoadedTable, snapshot_id: int, ids: Collection[int], *, rebuild: bool = False
) -> KeyIndex:
    """Index the data files of a snapshot that are not indexed yet, in one commit.

    The index is made if there is none. It is built again if it is about another key, if more than
    half of its rows would be about files that are gone, or if too many of them were appended. Tasks
    compare the snapshot's files with those that are indexed, 100 bytes each; the driver holds the
    paths of new ones, some 300 bytes each, and none for a build.
    """
    key, schema = _indexable(table, ids)
    index = key_index.opened(key_index.find_or_make_index(table), key)
    update = _Update(table, snapshot_id, schema, key, index)
    with describe_jobs(table.spark, f"delvec: index of {table.name}"):
        return update.run(rebuild=rebuild)


def planned_action(table: LoadedTable, snapshot_id: int, ids: Collection[int]) -> str:
    """Return what `update_index` would do, by metadata alone: `built`, `updated` or `kept`.

    An index that is updated may be built again as well, if too much of it is about files that are
    gone.
    """
    _indexable(table, ids)
    found = key_index.open_index(table, ids)
    if found is None or not found.is_usable or found.head is None:
        return "built"
    return "kept" if found.snapshot_id == snapshot_id else "updated"


def _indexable(table: LoadedTable, ids: Collection[int]) -> tuple[IndexedKey, Mapping[str, Any]]:
    key, schema = key_index.wanted_key(table, ids)
    if key.why_not is not None:
        raise UnsupportedFeatureError(
            f"a key of {table.name} cannot be indexed: {key.why_not}",
            feature="an index of such a key",
            hint=format_hint("resolve with {}", argument(index="join")),
        )
    return key, schema


@dataclass(frozen=True, eq=False)
class _Update:
    """An update of an index to a snapshot of its table."""

    table: LoadedTable
    snapshot_id: int
    schema: Mapping[str, Any]
    key: IndexedKey
    index: KeyIndex

    def run(self, *, rebuild: bool) -> KeyIndex:
        if rebuild:
            return self._built("it was asked for")
        if not self.index.is_usable:
            return self._built(self.index.why_not or "")
        if self.index.snapshot_id == self.snapshot_id:
            return self.index
        new = self._new_files()
        rows = int(sum(new.column("rows").to_pylist()))
        reason = self._why_rebuilt(rows)
        if reason is not None:
            return self._built(reason)
        if not new.num_rows:
            # What was read is what look-ups read, whoever commits to the index meanwhile.
            return replace(self.index, snapshot_id=self.snapshot_id)
        found = self._appended(new.select(["path"]), rows)
        return replace(found, added_files=new.num_rows, added_rows=rows, action="updated")

    def _new_files(self) -> pa.Table:
        """Return path and rows of the snapshot's files that are not indexed."""
        live = snapshot_table(self.table, "data_files", self.snapshot_id)
        files = live.groupBy(F.col("file_path").alias("path")).agg(
            F.max("record_count").alias("rows")
        )
        with translate_errors(str(self.table.name)):
            return files.join(self.index.indexed_paths(), "path", "left_anti").toArrow()

    def _why_rebuilt(self, added: int) -> str | None:
        index = self.index
        snapshot = self.table.metadata.snapshots[self.snapshot_id]
        total = snapshot.count("total-records")
        rows = index.rows + added
        # Each file has a mark. Totals in a summary are optional.
        if total is not None and rows > 2 * (total + (snapshot.data_file_count or 0)):
            return "most of its rows are about files that are gone"
        if rows - index.built_rows > max(_MOST_OVERLAPPING, index.built_rows):
            return "most of its rows were appended bit by bit"
        return None

    def _built(self, reason: str) -> KeyIndex:
        live = snapshot_table(self.table, "data_files", self.snapshot_id)
        with translate_errors(str(self.table.name)):
            [counts] = live.agg(
                F.coalesce(F.sum("record_count"), F.lit(0)), F.countDistinct("file_path")
            ).collect()
        rows, files = int(counts[0]), int(counts[1])
        entries = entries_of(self.table, self.snapshot_id, self.schema, self.key, None)
        marks = marks_of(live.select("file_path"), self.key)
        written = Written(self.key, self.snapshot_id, key_index.WHOLE, rows + files, 0)
        writer = self._writer(sorted_by_hash(entries.unionByName(marks), rows + files), written)
        with translate_errors(str(self.index.table.name)):
            writer.overwrite(F.lit(True))
        found = self._reopened()
        return replace(found, added_files=files, added_rows=rows, action="built", reason=reason)

    def _appended(self, paths: pa.Table, rows: int) -> KeyIndex:
        index = self.index
        listed = paths.column("path").to_pylist()
        entries = entries_of(self.table, self.snapshot_id, self.schema, self.key, listed)
        marks = marks_of(self.table.spark.createDataFrame(paths), self.key)
        read, runs = str(index.head), index.runs + 1
        written = Written(self.key, self.snapshot_id, read, index.built_rows, runs)
        joined = sorted_by_hash(entries.unionByName(marks), rows + len(listed))
        with translate_errors(str(index.table.name)):
            self._writer(joined, written).append()
        found = self._reopened()
        return self._merged(found) if found.runs > _MOST_RUNS else found

    def _writer(self, rows: DataFrame, written: Written) -> DataFrameWriterV2:
        writer = rows.writeTo(str(self.index.table.name))
        for name, value in written.to_summary(self.table).items():
            writer = writer.option(f"snapshot-property.{name}", value)
        return writer

    def _merged(self, index: KeyIndex) -> KeyIndex:
        """Merge small files by Iceberg's own procedure; rows stay as they are."""
        name = index.table.name
        options = {
            "min-input-files": "2",
            "rewrite-all": "false",
            "target-file-size-bytes": str(key_index.FILE_BYTES),
        }
        arguments = {
            "strategy": sql_string("sort"),
            "sort_order": sql_string("hash"),
            "options": sql_map(options),
        }
        try:
            call_procedure(index.table, "rewrite_data_files", arguments)
        except (ConflictError, PlanError) as error:
            _LOG.info("files of %s were not merged, others changed it: %s", name, error)
        return self._reopened()

    def _reopened(self) -> KeyIndex:
        found = key_index.opened(load_table(self.table.spark, self.index.table.name), self.key)
        if len(found.table.metadata.snapshots) > _MOST_SNAPSHOTS:
            expire_snapshots(found.table, _KEPT, 1)
            found = key_index.opened(load_table(self.table.spark, self.index.table.name), self.key)
        return found
