"""UPDATE: old rows are deleted by vectors, rows with the new values go to new files.

The condition is evaluated once. Matched rows are staged with file and position, so that vectors and
new files agree even if the condition is non-deterministic. Files that match as a whole by their
statistics are not staged: they are removed.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import DataFrame, functions

from delvec.delta.alter.table_state import TableState
from delvec.delta.parquet.row_counts import row_counts
from delvec.delta.write.change import Change, ReadSet
from delvec.delta.write.transaction import Outcome
from delvec.delta.write.writable import require_writable, writes_vectors
from delvec.identifiers import quote
from delvec.spark.conf import time_zone
from delvec.spark.delta.scan.conditions import alias_in, aliased, plan_targets, sql_of
from delvec.spark.delta.scan.read_versions import depend_on_source
from delvec.spark.delta.write.change_files import (
    OLD,
    has_change_feed,
    old_and_new,
    store_change_rows,
)
from delvec.spark.delta.write.clauses import Clause, assigned, require_row_wise
from delvec.spark.delta.write.conform_rows import checked
from delvec.spark.delta.write.file_outcomes import find_outcomes, require_ratio
from delvec.spark.delta.write.projection import CLAUSE, new_values
from delvec.spark.delta.write.rewrite import count_kept, kept_rows, placed_rows, store_rows
from delvec.spark.delta.write.row_tracking import id_names, with_ids
from delvec.spark.positions import NUMBER, POSITION
from delvec.spark.staging import staged
from delvec.spark.task_groups import shuffles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from numpy.typing import NDArray
    from pyspark.sql import Column

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.write.transaction import Attempt
    from delvec.spark.delta.write.file_outcomes import Found

__all__ = ["update"]


def update(
    values: Mapping[str, Any], where: str | Column | None, ratio: float | None
) -> Callable[[Attempt], Outcome]:
    """Prepare an update of the rows that match a condition, or of all.

    Args:
        values: New values by column, as SQL, columns of Spark, or plain values.
        where: The condition; rows for which it is null keep their values.
        ratio: Rewrite a file when at least this share of its rows is deleted.
    """
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
        self._assigned = assigned(
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
        with staged(rows) as changed:
            with attempt.phase("find"):
                found = find_outcomes(
                    attempt,
                    files,
                    changed.select(NUMBER, POSITION),
                    vectors=vectors,
                    ratio=self._ratio,
                    in_order=not shuffles(rows),
                )
            gone = snapshot.files.entries(direct)
            count = found.rows + self._live_rows(direct)
            if not count:
                return Outcome(None, figures)
            parts = [changed] if found.rows else []
            parts += [self._rows(whole, None, old=False)] if gone else []
            added, copied = self._written(parts, files, found, count)
            change_files = self._change_files(changed) if feed else ()
        change = Change(
            "UPDATE",
            parameters={"predicate": [] if self._where is None else [sql_of(self._where)]},
            metrics={"numUpdatedRows": count, "numCopiedRows": copied},
            reads=ReadSet(targets.predicate, time_zone=time_zone(self._spark)),
            vector_updates=found.outcomes.vector_updates,
            vector_files=found.vector_files,
            removed=(*gone, *found.outcomes.removed),
            added=added,
            change_files=change_files,
            transaction=attempt.options.transaction,
            user_metadata=attempt.options.commit_metadata,
        )
        return Outcome(change, {**figures, "rows_updated": count, "rows_copied": copied})

    def _live_rows(self, indexes: NDArray[np.int64]) -> int:
        files = self._snapshot.files
        physical = sum(row_counts(self._snapshot.storage, files, indexes))
        return physical - int(files.deleted_rows[indexes].sum())

    def _rows(self, files: FileSet, where: str | Column | None, *, old: bool) -> DataFrame:
        """Return rows with new values, file and position, and with old values if asked for."""
        rows = placed_rows(self._spark, self._snapshot, files)
        rows = aliased(rows, self._metadata.schema)
        rows = rows if where is None else rows.where(where)
        rows = with_ids(self._spark, self._metadata, files, rows, changed=True)
        names = [NUMBER, POSITION, *id_names(self._metadata)]
        kept = {name: functions.col(quote(name)) for name in names}
        require_row_wise(rows, [self._assigned])
        own = self._metadata.schema.names
        if old:
            kept[OLD] = functions.struct(*(functions.col(quote(name)) for name in own))
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
        rewritten = found.outcomes.rewritten
        copied = count_kept(self._snapshot, files, rewritten)
        if attempt.options.dry_run:
            return (), copied
        columns = [quote(name) for name in (*metadata.schema.names, *id_names(metadata))]
        new = reduce(DataFrame.unionAll, (part.select(*columns) for part in parts))
        rows = checked(self._spark, attempt.storage.root, metadata, new)
        if rewritten:
            kept = kept_rows(self._spark, self._snapshot, files, rewritten)
            rows = rows.unionAll(kept.select(*columns))
        return store_rows(attempt, TableState.of(self._snapshot), rows, count + copied).adds, copied

    def _change_files(self, changed: DataFrame) -> tuple[Mapping[str, Any], ...]:
        names = self._metadata.schema.names
        return store_change_rows(
            self._attempt,
            old_and_new(changed, names, "update_preimage").unionAll(
                old_and_new(changed, names, "update_postimage")
            ),
        )
