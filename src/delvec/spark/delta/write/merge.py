"""MERGE in one pass over the target.

The source is computed once. Target rows join it with their file and position; the result is staged
once and gives vectors, updated rows and, by the source rows that are missing in it, inserts.
A source that is small enough is broadcast, so that the target is not shuffled.

    target JOIN source  ->  staged rows  ->  vectors (positions)
                                         ->  updated rows
            source ANTI JOIN staged rows ->  inserted rows
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import DataFrame, functions

from delvec.delta.pruning.predicate import Always
from delvec.delta.write.change import Change, ReadSet
from delvec.delta.write.targets import targets_of
from delvec.delta.write.transaction import Outcome
from delvec.delta.write.writable import require_writable, writes_vectors
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote
from delvec.spark.conf import time_zone
from delvec.spark.delta.scan.read_versions import depend_on_source
from delvec.spark.delta.write.change_files import old_and_new, store_change_rows
from delvec.spark.delta.write.conform_rows import checked
from delvec.spark.delta.write.file_outcomes import Found, find_outcomes
from delvec.spark.delta.write.identity_values import with_identity_values
from delvec.spark.delta.write.merge_plan import MergePlan
from delvec.spark.delta.write.projection import CLAUSE
from delvec.spark.delta.write.rewrite import count_kept, store_rows
from delvec.spark.delta.write.row_tracking import id_names
from delvec.spark.positions import NUMBER, POSITION
from delvec.spark.staging import staged
from delvec.spark.task_groups import shuffles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.pruning.predicate import Predicate
    from delvec.delta.write.transaction import Attempt
    from delvec.spark.delta.write.clauses import MergeRequest
    from delvec.spark.delta.write.data_files import WrittenFiles

__all__ = ["merge"]

_ROWS: Final = ("rows_updated", "rows_deleted", "rows_inserted")
_CHANGES: Final = (
    ("matched", "update"),
    ("matched", "delete"),
    ("not_matched_by_source", "update"),
    ("not_matched_by_source", "delete"),
)


def merge(request: MergeRequest) -> Callable[[Attempt], Outcome]:
    """Prepare a merge.

    Raises:
        InvalidArgumentError: The clauses make no sense.
    """
    request.require_valid()
    return lambda attempt: _Merge(attempt, request).prepare()


class _Merge:
    def __init__(self, attempt: Attempt, request: MergeRequest) -> None:
        self._attempt, self._request = attempt, request
        self._snapshot = attempt.snapshot
        self._plan = MergePlan(attempt.spark, attempt.snapshot, request)

    def prepare(self) -> Outcome:
        attempt, snapshot, plan = self._attempt, self._snapshot, self._plan
        with attempt.phase("plan"):
            attempt.depend_on(self._request.reads)
            columns = {name for each in plan.changes for name in each.values}
            require_writable(snapshot, "merge", columns_set=columns)
            ranges = plan.source_ranges()
            predicate = Always() if plan.by_source else ranges.predicate
            targets = targets_of(snapshot, predicate, time_zone(attempt.spark))
            scanned = np.union1d(targets.whole, targets.open).astype(np.int64)
            files = snapshot.files.select(scanned)
            vectors = bool(len(files) and plan.changes) and writes_vectors(snapshot)
        figures = {
            "files_scanned": len(files),
            "files_pruned": len(snapshot.files) - len(files),
            "scans": int(len(files) > 0),
        }
        with ExitStack() as stages:
            joined = plan.changed_rows(files, ranges)
            depend_on_source(attempt, joined)  # a subquery may read the table
            changed = stages.enter_context(staged(joined))
            with attempt.phase("find"):
                in_order = not shuffles(joined)
                found = self._found(files, changed, vectors=vectors, in_order=in_order)
            inserted = plan.inserted_rows(changed, ranges.rows)
            if inserted is not None:
                depend_on_source(attempt, inserted)
            state = plan.state
            if inserted is not None and plan.missing_ids and not attempt.options.dry_run:
                inserted = stages.enter_context(staged(inserted))
                inserted, state = with_identity_values(state, inserted, plan.missing_ids)
            if inserted is not None and plan.has_feed:
                inserted = stages.enter_context(staged(inserted))
            written, copied = self._written(files, changed, inserted, found, ranges.rows)
            counts = self._counts(found, inserted, written, copied)
            any_rows = any(counts[name] for name in _ROWS)
            evolves = state.metadata != snapshot.metadata
            if not any_rows and not evolves:
                return Outcome(None, figures)
            feed = plan.has_feed and any_rows
            change_files = self._change_files(changed, inserted) if feed else ()
        change = Change(
            "MERGE",
            parameters=self._request.parameters(),
            metrics=_metrics(counts, ranges.rows, copied),
            reads=self._reads(predicate, files),
            vector_updates=found.outcomes.vector_updates,
            vector_files=found.vector_files,
            removed=found.outcomes.removed,
            added=written.adds if written else (),
            change_files=change_files,
            protocol=state.protocol if evolves else None,
            metadata=state.metadata if evolves else None,
            transaction=attempt.options.transaction,
            user_metadata=attempt.options.commit_metadata,
        )
        rows = {name: counts[name] for name in _ROWS}
        return Outcome(change, {**figures, "rows_copied": copied, **rows})

    def _found(self, files: FileSet, changed: DataFrame, *, vectors: bool, in_order: bool) -> Found:
        """Find the rows that change; this is the job that runs the join."""
        plan = self._plan
        if not plan.changes:
            # Only the matches are of interest, and the inserts find them.
            return Found()
        numbers: dict[tuple[str, str], list[int]] = {}
        for each in plan.changes:
            numbers.setdefault((each.clause.when, each.clause.action), []).append(each.number)
        counted = {
            _count_name(when, action): f"{CLAUSE} IN ({', '.join(map(str, clauses))})"
            for (when, action), clauses in numbers.items()
        }
        rows = changed.where(functions.col(CLAUSE) > 0).select(NUMBER, POSITION, CLAUSE)
        ratio = self._request.rewrite_ratio
        found = find_outcomes(
            self._attempt,
            files,
            rows,
            vectors=vectors,
            ratio=ratio,
            counted=counted,
            in_order=in_order,
        )
        only_deletes = len(plan.matched) == 1 and plan.matched[0].clause.action == "delete"
        if found.repeated and not (only_deletes and plan.matched[0].clause.condition is None):
            raise InvalidArgumentError(
                f"several rows of the source match one row of {self._snapshot.table}, in"
                f" {found.repeated[0]}: which of them counts is not defined",
                hint="leave one row for each key in the source, e.g. by dropDuplicates",
            )
        return found

    def _written(
        self,
        files: FileSet,
        changed: DataFrame,
        inserted: DataFrame | None,
        found: Found,
        source_rows: int,
    ) -> tuple[WrittenFiles | None, int]:
        """Write updated, inserted and copied rows; return the files and how many were copied."""
        attempt, plan = self._attempt, self._plan
        rewritten = found.outcomes.rewritten
        copied = count_kept(self._snapshot, files, rewritten)
        if attempt.options.dry_run:
            return None, copied
        columns = [quote(name) for name in (*plan.metadata.schema.names, *id_names(plan.metadata))]
        parts = []
        updates = self._numbers("update")
        if found.rows and updates:
            parts.append(changed.where(functions.col(CLAUSE).isin(updates)).select(*columns))
        if inserted is not None:
            parts.append(inserted.select(*columns))
        if parts:
            new = reduce(DataFrame.unionAll, parts)
            parts = [checked(attempt.spark, attempt.storage.root, plan.metadata, new)]
        if rewritten:
            parts.append(plan.kept_rows(files, rewritten).select(*columns))
        if not parts:
            return None, 0
        at_most = sum(found.counts.values()) + copied + (source_rows if plan.inserts else 0)
        rows = reduce(DataFrame.unionAll, parts)
        return store_rows(attempt, plan.state, rows, at_most), copied

    def _numbers(self, action: str) -> list[int]:
        return [each.number for each in self._plan.changes if each.clause.action == action]

    def _counts(
        self,
        found: Found,
        inserted: DataFrame | None,
        written: WrittenFiles | None,
        copied: int,
    ) -> dict[str, int]:
        counts = {_count_name(*each): found.counts.get(_count_name(*each), 0) for each in _CHANGES}
        updated = counts["matched_update"] + counts["not_matched_by_source_update"]
        if found.repeated:  # a row that a delete matched twice is deleted once
            counts["matched_delete"] -= sum(found.counts.values()) - found.rows
        counts["rows_updated"] = updated
        counts["rows_deleted"] = found.rows - updated
        new = 0
        if written is not None:
            new = written.rows - updated - copied
        elif inserted is not None and self._attempt.options.dry_run:
            new = inserted.count()
        return counts | {"rows_inserted": new}

    def _reads(self, predicate: Predicate, files: FileSet) -> ReadSet:
        """Return what the merge depends on.

        A matched row that no clause handles is not changed, and yet keeps its row of the source
        from being inserted: whoever deletes it changes the result.
        """
        matched = self._plan.matched
        all_change = bool(matched) and matched[-1].clause.condition is None
        row_wise = not self._plan.inserts or all_change
        paths = frozenset() if row_wise else frozenset(files.paths.to_pylist())
        return ReadSet(predicate, paths, row_wise, time_zone(self._attempt.spark))

    def _change_files(
        self, changed: DataFrame, inserted: DataFrame | None
    ) -> tuple[Mapping[str, Any], ...]:
        metadata = self._plan.metadata
        names, parts = metadata.schema.names, []
        if updates := self._numbers("update"):
            rows = changed.where(functions.col(CLAUSE).isin(updates))
            parts += [
                old_and_new(rows, names, kind) for kind in ("update_preimage", "update_postimage")
            ]
        if deletes := self._numbers("delete"):
            rows = changed.where(functions.col(CLAUSE).isin(deletes))
            # A row that several rows of the source delete is deleted once.
            rows = rows.dropDuplicates([NUMBER, POSITION])
            parts.append(old_and_new(rows, names, "delete"))
        if inserted is not None:
            parts.append(old_and_new(inserted, names, "insert"))
        return store_change_rows(self._attempt, reduce(DataFrame.unionAll, parts), metadata)


def _count_name(when: str, action: str) -> str:
    return f"{when}_{action}"


def _metrics(counts: Mapping[str, int], source_rows: int, copied: int) -> dict[str, int]:
    """Return the counts of a merge by Delta's names."""
    return {
        "numSourceRows": source_rows,
        "numTargetRowsInserted": counts["rows_inserted"],
        "numTargetRowsUpdated": counts["rows_updated"],
        "numTargetRowsDeleted": counts["rows_deleted"],
        "numTargetRowsMatchedUpdated": counts["matched_update"],
        "numTargetRowsMatchedDeleted": counts["matched_delete"],
        "numTargetRowsNotMatchedBySourceUpdated": counts["not_matched_by_source_update"],
        "numTargetRowsNotMatchedBySourceDeleted": counts["not_matched_by_source_delete"],
        "numTargetRowsCopied": copied,
        "numOutputRows": counts["rows_inserted"] + counts["rows_updated"] + copied,
    }
