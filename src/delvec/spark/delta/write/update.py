"""UPDATE: old rows are deleted by vectors, rows with the new values go to new files.

The condition is evaluated once. Matched rows are staged with file and position, so that vectors and
new files agree even if the condition is non-deterministic. Files that match as a whole by their
statistics are not staged: they are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame, functions

from delvec.delta.alter.table_state import TableState
from delvec.delta.log.file_set import FileSet
from delvec.delta.write.change import Change, Operation, ReadSet
from delvec.delta.write.transaction import Attempt, Outcome
from delvec.delta.write.writable import require_writable, writes_vectors
from delvec.identifiers import quote
from delvec.spark.delta.scan.conditions import alias_in, aliased, plan_targets, to_sql
from delvec.spark.delta.scan.read_versions import depend_on_source
from delvec.spark.delta.write import rewrite
from delvec.spark.delta.write.clauses import Clause, parse_assignments, require_row_wise
from delvec.spark.delta.write.conform_rows import check_constraints
from delvec.spark.delta.write.data_files import OLD, has_change_feed, old_and_new, store_change_rows
from delvec.spark.delta.write.file_outcomes import Found, find_outcomes, require_ratio
from delvec.spark.delta.write.projection import CLAUSE, new_values
from delvec.spark.engine import time_zone
from delvec.spark.jobs import stage_rows
from delvec.spark.positions import NUMBER, POSITION, shuffles


def update(
    values: Mapping[str, Any], where: str | Column | None, ratio: float | None
) -> Callable[[Attempt], Outcome]:
    """Prepare an update of the rows that match a condition, or of all."""
    require_ratio(ratio)
    clause = Clause("matched", "update", None, values)
    return lambda attempt: _Update(attempt, clause, where, ratio).prepare()


class _Update:
    def __init__(
        self, attempt: Attempt, clause: Clause, where: str | Column | None, ratio: float | None
    ) -> None:
        self._attempt, self._where, self._ratio = attempt, where, ratio
        self._spark, self._snapshot = attempt.spark, attempt.snapshot
        self._metadata = attempt.snapshot.metadata
        schema = self._metadata.schema
        self._assigned = parse_assignments(
            self._spark,
            attempt.storage.root,
            clause,
            1,
            schema,
            lambda name: functions.col(quote(name)),
            alias=alias_in(schema),
            named=schema.names,
        )

    def prepare(self) -> Outcome:
        attempt, snapshot = self._attempt, self._snapshot
        with attempt.phase("plan"):
            require_writable(snapshot, "update", columns_set=self._assigned.values)
            targets = plan_targets(self._spark, snapshot, self._where)
            feed = has_change_feed(self._metadata)
            # The change feed needs old and new rows, which only staging keeps consistent.
            direct = targets.whole[: 0 if feed else None]
            looked_at = np.union1d(targets.whole if feed else [], targets.open).astype(np.int64)
            vectors = bool(len(looked_at)) and writes_vectors(snapshot)
        files, whole = snapshot.files.select(looked_at), snapshot.files.select(direct)
        figures = {**targets.figures, "files_scanned": len(looked_at)}
        rows = self._rows(files, self._where, old=feed)
        depend_on_source(attempt, rows)  # a subquery may read the table
        with stage_rows(rows) as changed:
            with attempt.phase("find"):
                hits, in_order = changed.select(NUMBER, POSITION), not shuffles(rows)
                found = find_outcomes(
                    attempt, files, hits, vectors=vectors, ratio=self._ratio, in_order=in_order
                )
            gone = snapshot.files.entries(direct)
            count = found.rows + rewrite.count_live(snapshot, direct)
            if not count:
                return Outcome(None, figures)
            parts = [changed] if found.rows else []
            parts += [self._rows(whole, None, old=False)] if gone else []
            added, copied = self._written(parts, files, found, count)
            change_files: tuple[Mapping[str, Any], ...] = ()
            if feed:
                kinds = "update_preimage", "update_postimage"
                both = old_and_new(changed, self._metadata.schema.names, *kinds)
                change_files = store_change_rows(attempt, both)
        parameters = {"predicate": [] if self._where is None else [to_sql(self._where)]}
        metrics = {"numUpdatedRows": count, "numCopiedRows": copied}
        reads = ReadSet(targets.predicate, time_zone=time_zone(self._spark))
        change = Change(
            Operation("UPDATE", parameters, metrics, reads),
            vector_updates=found.vector_updates,
            vector_files=found.vector_files,
            removed=(*gone, *found.removed),
            added=added,
            change_files=change_files,
        )
        return Outcome(change, {**figures, "rows_updated": count, "rows_copied": copied})

    def _rows(self, files: FileSet, where: str | Column | None, *, old: bool) -> DataFrame:
        """Return rows with new values, file and position, and with old values if asked for."""
        rows = rewrite.read_rows_with_positions(self._spark, self._snapshot, files)
        rows = aliased(rows, self._metadata.schema)
        rows = rows if where is None else rows.where(where)
        rows = rewrite.add_row_ids(self._spark, self._metadata, files, rows, changed=True)
        names = [NUMBER, POSITION, *rewrite.id_names(self._metadata)]
        kept = {name: functions.col(quote(name)) for name in names}
        require_row_wise(rows, [self._assigned])
        if old:
            kept[OLD] = functions.struct(*map(quote, self._metadata.schema.names))
        return new_values(
            self._spark,
            self._attempt.storage.root,
            self._metadata.schema,
            rows.selectExpr("*", f"1 AS {CLAUSE}"),
            [self._assigned],
            lambda name: functions.col(quote(name)),
            kept,
        )

    def _written(
        self, parts: list[DataFrame], files: FileSet, found: Found, count: int
    ) -> tuple[tuple[Mapping[str, Any], ...], int]:
        attempt, metadata = self._attempt, self._metadata
        copied = rewrite.count_kept(self._snapshot, files, found.rewritten)
        if attempt.options.dry_run:
            return (), copied
        columns = rewrite.stored_names(metadata)
        new = reduce(DataFrame.unionAll, (part.select(*columns) for part in parts))
        rows = check_constraints(self._spark, attempt.storage.root, metadata, new)
        if found.rewritten:
            kept = rewrite.read_kept_rows(self._spark, self._snapshot, files, found.rewritten)
            rows = rows.unionAll(kept.select(*columns))
        state = TableState.of(self._snapshot)
        return rewrite.store_rows(attempt, state, rows, count + copied).adds, copied
