"""DELETE: by the log alone where it says enough, else by vectors, else by rewriting files.

Rows are chosen by a condition, or by their keys: those that a semi-join with the keys leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_
from typing import Final

import numpy as np
from pyspark.sql import Column, DataFrame, functions

from delvec.delta.alter.table_state import TableState
from delvec.delta.log.file_set import FileSet
from delvec.delta.read.change_feed import CHANGE_TYPE
from delvec.delta.schema.types import StructType
from delvec.delta.write.change import Change, Operation, ReadSet, SourceRead
from delvec.delta.write.targets import Targets, find_targets
from delvec.delta.write.transaction import Attempt, Outcome
from delvec.delta.write.writable import require_writable, writes_vectors
from delvec.identifiers import quote, quote_if_needed
from delvec.spark.delta.scan.conditions import aliased, plan_targets, to_sql
from delvec.spark.delta.scan.read_versions import depend_on_source
from delvec.spark.delta.scan.scan import PLACE, scan
from delvec.spark.delta.write.data_files import has_change_feed, store_change_rows
from delvec.spark.delta.write.file_outcomes import Found, find_outcomes, require_ratio
from delvec.spark.delta.write.join_keys import JoinKey, KeyRanges, is_broadcast, key_ranges
from delvec.spark.delta.write.rewrite import count_kept, count_live, read_kept_rows, store_rows
from delvec.spark.engine import time_zone
from delvec.spark.input.keys import padded
from delvec.spark.positions import NUMBER, POSITION, shuffles
from delvec.vector import Bitmap

_KEY: Final = "__delvec_key_"


def delete(where: str | Column | None, ratio: float | None) -> Callable[[Attempt], Outcome]:
    """Prepare a delete of the rows that match a condition, or of all.

    One scan of the files that pruning cannot decide, with the columns of the condition only.
    """
    require_ratio(ratio)
    return lambda attempt: prepare_delete(attempt, where, ratio)


def delete_keys(keys: ByKeys, ratio: float | None) -> Callable[[Attempt], Outcome]:
    """Prepare a delete of the rows that have one of some keys.

    One job over the keys, for their range, and one scan of the files that may have rows in it.
    """
    require_ratio(ratio)
    return lambda attempt: _Delete(attempt, keys, ratio).prepare()


def prepare_delete(attempt: Attempt, where: str | Column | None, ratio: float | None) -> Outcome:
    return _Delete(attempt, _ByCondition(where), ratio).prepare()


@dataclass(frozen=True)
class ByKeys:
    """The rows that have one of some keys; a null equals none.

    The keys have a column for each name, whose values fit into the table's, those of `char(n)`
    padded; staged by the caller. `reads` are what they have read of the table.
    """

    keys: DataFrame
    names: tuple[str, ...]
    reads: tuple[SourceRead, ...] = ()

    @cached_property
    def ranges(self) -> KeyRanges:
        """Run one job over the keys: their number, and the range of each column."""
        columns = [JoinKey(name, functions.col(quote(name))) for name in self.names]
        return key_ranges(self.keys, columns)

    def targets(self, attempt: Attempt) -> Targets:
        attempt.depend_on(self.reads)
        predicate = self.ranges.predicate
        found = find_targets(attempt.snapshot, predicate, time_zone(attempt.spark))
        # Rows in the range need not have one of the keys.
        either = np.union1d(found.whole, found.open).astype(np.int64)
        return Targets(predicate, np.empty(0, np.int64), either, found.total)

    def chosen(self, rows: DataFrame, schema: StructType) -> DataFrame:
        """Return the rows that have one of the keys, once each."""
        fields = [schema.field(name) for name in self.names]
        names = [field.name for field in fields]
        for field in fields:
            if field.char_width is not None:  # a setting of Spark leaves them unpadded
                column = padded(functions.col(quote(field.name)), field.char_width)
                rows = rows.withColumn(field.name, column)
        keys = self.keys.toDF(*(f"{_KEY}{place}" for place in range(len(names))))
        if is_broadcast(keys, self.ranges.rows):
            keys = functions.broadcast(keys)
        same = (
            functions.col(quote(name)) == functions.col(f"{_KEY}{place}")
            for place, name in enumerate(names)
        )
        return self.ranges.narrowed(rows).join(keys, reduce(and_, same), "left_semi")

    def in_order(self, hits: DataFrame) -> bool:
        """Return whether tasks read files in order, see `positions.find_rows`."""
        return not shuffles(hits)

    @property
    def predicate(self) -> list[str]:
        columns = ", ".join(map(quote_if_needed, self.names))
        listed = columns if len(self.names) == 1 else f"({columns})"
        return [f"{listed} IN ({self.ranges.rows} keys)"]


@dataclass(frozen=True)
class _ByCondition:
    """The rows that match a condition; all without one."""

    where: str | Column | None

    def targets(self, attempt: Attempt) -> Targets:
        return plan_targets(attempt.spark, attempt.snapshot, self.where)

    def chosen(self, rows: DataFrame, schema: StructType) -> DataFrame:
        return aliased(rows, schema).where(self.where)  # type: ignore[arg-type]

    def in_order(self, _hits: DataFrame) -> bool:
        return True

    @property
    def predicate(self) -> list[str]:
        return [] if self.where is None else [to_sql(self.where)]


class _Delete:
    def __init__(
        self, attempt: Attempt, chosen: _ByCondition | ByKeys, ratio: float | None
    ) -> None:
        self._attempt, self._chosen, self._ratio = attempt, chosen, ratio
        self._spark, self._snapshot = attempt.spark, attempt.snapshot

    def prepare(self) -> Outcome:
        attempt, snapshot = self._attempt, self._snapshot
        with attempt.phase("plan"):
            require_writable(snapshot, "delete", rewrites=self._ratio is not None)
            targets = self._chosen.targets(attempt)
            # Whole files are removed without a vector, even where the table takes none.
            vectors = bool(len(targets.open)) and writes_vectors(snapshot)
            whole = snapshot.files.entries(targets.whole)
            gone = count_live(snapshot, targets.whole)
        files = snapshot.files.select(targets.open)
        found = Found()
        if len(files):
            with attempt.phase("find"):
                hits = self._hits(files)
                in_order = self._chosen.in_order(hits)
                found = find_outcomes(
                    attempt, files, hits, vectors=vectors, ratio=self._ratio, in_order=in_order
                )
        rows = gone + found.rows
        figures = {**targets.figures, "rows_deleted": rows}
        removed = (*whole, *found.removed)
        if not removed and not found.vector_updates:
            return Outcome(None, figures)
        added, copied = self._copied(files, found.rewritten)
        parameters = {"predicate": self._chosen.predicate}
        metrics = {"numDeletedRows": rows, "numCopiedRows": copied}
        reads = ReadSet(targets.predicate, time_zone=time_zone(self._spark))
        change = Change(
            Operation("DELETE", parameters, metrics, reads),
            vector_updates=found.vector_updates,
            vector_files=found.vector_files,
            removed=removed,
            added=added,
            change_files=self._change_files(targets, files, found.hits) if added else (),
        )
        return Outcome(change, {**figures, "rows_copied": copied})

    def _hits(self, files: FileSet) -> DataFrame:
        rows = scan(self._spark, self._snapshot, None, files, added=PLACE)
        schema = self._snapshot.metadata.schema
        hits = self._chosen.chosen(rows, schema).select(NUMBER, POSITION)
        depend_on_source(self._attempt, hits)  # a subquery may read the table
        return hits

    def _copied(
        self, files: FileSet, rewritten: Mapping[int, Bitmap]
    ) -> tuple[tuple[Mapping[str, object], ...], int]:
        """Write the live rows of files that are rewritten."""
        attempt, snapshot = self._attempt, self._snapshot
        left = count_kept(snapshot, files, rewritten)
        if not rewritten or attempt.options.dry_run:
            return (), left
        rows = read_kept_rows(self._spark, snapshot, files, rewritten)
        return store_rows(attempt, TableState.of(snapshot), rows, left).adds, left

    def _change_files(
        self, targets: Targets, files: FileSet, hits: Mapping[int, Bitmap]
    ) -> tuple[Mapping[str, object], ...]:
        """Write the deleted rows for the change feed.

        Only if files were rewritten: without change files, readers of the feed would take all of
        their rows for deleted and inserted again. A commit with change files is read by these
        alone, so they hold all deleted rows.
        """
        snapshot = self._snapshot
        if not has_change_feed(snapshot.metadata):
            return ()
        rows = scan(self._spark, snapshot, None, files, vectors=hits, keep="selected")
        if len(targets.whole):
            whole = snapshot.files.select(targets.whole)
            rows = rows.unionAll(scan(self._spark, snapshot, None, whole))
        return store_change_rows(
            self._attempt, rows.withColumn(CHANGE_TYPE, functions.lit("delete"))
        )
