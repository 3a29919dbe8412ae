"""DELETE: by the log alone where it says enough, else by vectors, else by rewriting files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions

from delvec.delta.alter.table_state import TableState
from delvec.delta.parquet.row_counts import row_counts
from delvec.delta.read.change_feed_schema import CHANGE_TYPE
from delvec.delta.write.change import Change, ReadSet
from delvec.delta.write.transaction import Outcome
from delvec.delta.write.writable import require_writable, writes_vectors
from delvec.spark.conf import time_zone
from delvec.spark.delta.scan.conditions import plan_targets, sql_of
from delvec.spark.delta.scan.read_versions import depend_on_source
from delvec.spark.delta.scan.scan import scan
from delvec.spark.delta.write.change_files import has_change_feed, store_change_rows
from delvec.spark.delta.write.file_outcomes import Found, find_outcomes, require_ratio
from delvec.spark.delta.write.rewrite import count_kept, kept_rows, store_rows
from delvec.spark.positions import NUMBER, POSITION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.write.targets import Targets
    from delvec.delta.write.transaction import Attempt
    from delvec.spark.delta.write.file_outcomes import FileOutcomes
    from delvec.vector import Bitmap

__all__ = ["delete", "prepare_delete"]


def delete(where: str | Column | None, ratio: float | None) -> Callable[[Attempt], Outcome]:
    """Prepare a delete of the rows that match a condition, or of all.

    One scan of the files that pruning cannot decide, with the columns of the condition only.

    Args:
        where: The condition; rows for which it is null are kept.
        ratio: Rewrite a file when at least this share of its rows is deleted.
    """
    require_ratio(ratio)
    return lambda attempt: prepare_delete(attempt, where, ratio)


def prepare_delete(attempt: Attempt, where: str | Column | None, ratio: float | None) -> Outcome:
    """Prepare a delete as part of an operation."""
    return _Delete(attempt, where, ratio).prepare()


class _Delete:
    def __init__(self, attempt: Attempt, where: str | Column | None, ratio: float | None) -> None:
        self._attempt, self._where, self._ratio = attempt, where, ratio
        self._spark, self._snapshot = attempt.spark, attempt.snapshot

    def prepare(self) -> Outcome:
        attempt, snapshot = self._attempt, self._snapshot
        with attempt.phase("plan"):
            require_writable(snapshot, "delete", rewrites=self._ratio is not None)
            targets = plan_targets(self._spark, snapshot, self._where)
            # Whole files are removed without a vector, even where the table takes none.
            vectors = bool(len(targets.open)) and writes_vectors(snapshot)
            whole = snapshot.files.entries(targets.whole)
            gone = self._live_rows(targets)
        files = snapshot.files.select(targets.open)
        found = Found()
        if len(files):
            with attempt.phase("find"):
                hits = self._hits(files)
                found = find_outcomes(attempt, files, hits, vectors=vectors, ratio=self._ratio)
        outcomes, rows = found.outcomes, gone + found.rows
        figures = {**targets.figures, "rows_deleted": rows}
        removed = (*whole, *outcomes.removed)
        if not removed and not outcomes.vector_updates:
            return Outcome(None, figures)
        added, copied = self._copied(files, outcomes)
        change = Change(
            "DELETE",
            parameters={"predicate": [] if self._where is None else [sql_of(self._where)]},
            metrics={"numDeletedRows": rows, "numCopiedRows": copied},
            reads=ReadSet(targets.predicate, time_zone=time_zone(self._spark)),
            vector_updates=outcomes.vector_updates,
            vector_files=found.vector_files,
            removed=removed,
            added=added,
            change_files=self._change_files(targets, files, found.hits) if added else (),
            transaction=attempt.options.transaction,
            user_metadata=attempt.options.commit_metadata,
        )
        return Outcome(change, {**figures, "rows_copied": copied})

    def _live_rows(self, targets: Targets) -> int:
        """Count the live rows of files that are removed as a whole."""
        files = self._snapshot.files
        physical = sum(row_counts(self._snapshot.storage, files, targets.whole))
        return physical - int(files.deleted_rows[targets.whole].sum())

    def _hits(self, files: FileSet) -> DataFrame:
        added = {NUMBER: "number", POSITION: "position"}
        rows = scan(self._spark, self._snapshot, None, files, added=added)  # type: ignore[arg-type]
        hits = rows.where(self._where).select(NUMBER, POSITION)  # type: ignore[arg-type]
        depend_on_source(self._attempt, hits)  # a subquery may read the table
        return hits

    def _copied(
        self, files: FileSet, outcomes: FileOutcomes
    ) -> tuple[tuple[Mapping[str, object], ...], int]:
        """Write the live rows of files that are rewritten."""
        attempt, snapshot = self._attempt, self._snapshot
        if not outcomes.rewritten:
            return (), 0
        left = count_kept(snapshot, files, outcomes.rewritten)
        if attempt.options.dry_run:
            return (), left
        rows = kept_rows(self._spark, snapshot, files, outcomes.rewritten)
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
        parts = [scan(self._spark, snapshot, None, files, vectors=hits, keep="selected")]
        if len(targets.whole):
            whole = snapshot.files.select(targets.whole)
            parts.append(scan(self._spark, snapshot, None, whole))
        rows = parts[0] if len(parts) == 1 else parts[0].unionAll(parts[1])
        return store_change_rows(
            self._attempt, rows.withColumn(CHANGE_TYPE, functions.lit("delete"))
        )
