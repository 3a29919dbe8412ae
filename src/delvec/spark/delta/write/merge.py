"""MERGE in one pass over the target.

The source is computed once. Target rows join it with their file and position; the result is staged
once and gives vectors, updated rows and, by the source rows that are missing in it, inserts.
A source that is small enough is broadcast, so that the target is not shuffled.

    target JOIN source  ->  staged rows  ->  vectors (positions)
                                         ->  updated rows
            source ANTI JOIN staged rows ->  inserted rows

A `MergePlan` has the joins as DataFrames that no job has run yet; `_Merge` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from typing import Any, Final

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession, functions

from delvec.delta.alter.columns import evolve_schema
from delvec.delta.alter.table_state import TableState
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.expressions import GENERATION, names_in
from delvec.delta.schema.types import parse_schema
from delvec.delta.skipping.predicate import Always, Predicate
from delvec.delta.write.change import Change, Operation, ReadSet
from delvec.delta.write.targets import find_targets
from delvec.delta.write.transaction import Attempt, Outcome
from delvec.delta.write.writable import require_writable, writes_vectors
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote
from delvec.report.hints import argument, call, format_hint
from delvec.spark.delta.scan.read_versions import depend_on_source
from delvec.spark.delta.scan.scan import scan
from delvec.spark.delta.write import conform_rows, data_files, rewrite
from delvec.spark.delta.write.clauses import (
    SOURCE_ROW,
    Assigned,
    Clause,
    MergeRequest,
    When,
    assigned_fields,
    bound,
    expression,
    parse_assignments,
    path_of,
    require_row_wise,
)
from delvec.spark.delta.write.file_outcomes import Found, find_outcomes
from delvec.spark.delta.write.join_keys import KeyRanges, is_broadcast, join_keys, key_ranges
from delvec.spark.delta.write.projection import CLAUSE, clause_number, new_values
from delvec.spark.engine import time_zone
from delvec.spark.jobs import stage_rows
from delvec.spark.positions import NUMBER, POSITION, shuffles
from delvec.spark.types import spark_type
from delvec.vector import Bitmap

_FEW_ROWS: Final = 1_000_000
_ROWS: Final = ("rows_updated", "rows_deleted", "rows_inserted")
_CHANGES: Final = (
    "matched_update",
    "matched_delete",
    "not_matched_by_source_update",
    "not_matched_by_source_delete",
)


def merge(request: MergeRequest) -> Callable[[Attempt], Outcome]:
    request.require_valid()
    return lambda attempt: _Merge(attempt, request).prepare()


class MergePlan:
    """A MERGE into one version of a table; `state` is the table after it."""

    def __init__(self, spark: SparkSession, snapshot: Snapshot, request: MergeRequest) -> None:
        self._spark, self._snapshot, self._request = spark, snapshot, request
        self._target_alias, self._source_alias = request.aliases
        self.state = self._evolved()
        self.metadata = self.state.metadata
        self._old_names = frozenset(snapshot.metadata.schema.names)
        self._lacking: conform_rows.Lacking = "null" if request.merge_schema else "refuse"
        self.matched = self._assigned("matched")
        self.inserts = self._assigned("not_matched")
        for each in self.inserts:
            conform_rows.require_insertable(self.metadata.schema, each.values)
            self._require_computable(each)
        self.by_source = self._assigned("not_matched_by_source")
        self.has_feed = data_files.has_change_feed(self.metadata)
        self.source = request.source.alias(self._source_alias)

    @property
    def changes(self) -> list[Assigned]:
        """The clauses that change rows of the target."""
        return [*self.matched, *self.by_source]

    @property
    def missing_ids(self) -> dict[str, Column]:
        """The identity columns that inserts give no value, with a condition for their rows."""
        found: dict[str, list[int]] = {}
        for each in self.inserts:
            for name in conform_rows.missing_identities(self.metadata.schema, each.values):
                found.setdefault(name, []).append(each.number)
        return {name: functions.col(CLAUSE).isin(numbers) for name, numbers in found.items()}

    def _evolved(self) -> TableState:
        state = TableState.of(self._snapshot)
        if not self._request.merge_schema:
            return state
        source = self._request.source.drop(SOURCE_ROW).schema
        assigned = assigned_fields(source, state.schema, self._request)
        return evolve_schema(state, parse_schema(assigned.json()))

    def _assigned(self, when: When) -> list[Assigned]:
        clauses = enumerate(self._request.clauses, 1)
        return [self._resolved(number, each) for number, each in clauses if each.when == when]

    def _resolved(self, number: int, clause: Clause) -> Assigned:
        is_new, has_source = clause.when == "not_matched", clause.when != "not_matched_by_source"
        own = self._snapshot.metadata.schema
        if not has_source:
            for name in clause.values or ():
                path_of(own, name, self._target_alias)  # new columns are the source's
        found = parse_assignments(
            self._spark,
            self._snapshot.table,
            self._with_values(clause),
            number,
            self.metadata.schema,
            None if is_new else self._old,
            alias=self._target_alias,
            named=(
                *(() if is_new else own.names),
                *(self._request.source.columns if has_source else ()),
            ),
        )
        return replace(found, keeps_fields=self._request.merge_schema and clause.values is None)

    def _require_computable(self, insert: Assigned) -> None:
        """Refuse generated columns of ids: inserts compute them before ids are generated."""
        schema = self.metadata.schema
        ids = {name.lower() for name in conform_rows.missing_identities(schema, insert.values)}
        for field in schema.fields:
            sql = str(field.metadata.get(GENERATION, ""))
            if field.name not in insert.values and ids & names_in(sql):
                raise InvalidArgumentError(
                    f"generated column {field.name} is computed from an identity column: {sql};"
                    " a merge cannot insert into such a table",
                    hint=format_hint("{} can", call("append")),
                )

    def _with_values(self, clause: Clause) -> Clause:
        """Expand "all columns": those of the source under the names of the target's."""
        if clause.action == "delete" or clause.values is not None:
            return clause
        conform_rows.refuse_twins(self._request.source.columns, "the rows of the source")
        have = {name.lower(): name for name in self._request.source.columns if name != SOURCE_ROW}
        schema = self.metadata.schema
        missing = [name for name in schema.names if name.lower() not in have]
        generated = [name for name in missing if GENERATION in schema.field(name).metadata]
        if len(missing) > len(generated) and not self._request.merge_schema:
            raise InvalidArgumentError(
                f"the source lacks {', '.join(missing)}, so that it cannot give all columns",
                hint=format_hint(
                    "name the columns and their values, or allow for it by {}",
                    argument(merge_schema=True),
                ),
            )
        values = {
            name: functions.col(f"{quote(self._source_alias)}.{quote(have[name.lower()])}")
            for name in schema.names
            if name.lower() in have
        }
        return replace(clause, values=values)

    def _old(self, name: str) -> Column:
        """Return the value that a column of the target has so far."""
        return self._as_evolved(name, f"{quote(self._target_alias)}.{quote(name)}")

    def _as_evolved(self, name: str, reference: str) -> Column:
        """Return a column in the evolved schema: new fields are null."""
        wanted = self.metadata.schema.field(name).type
        if name not in self._old_names:
            return functions.lit(None).cast(spark_type(wanted))
        had = self._snapshot.metadata.schema.field(name).type
        column = functions.col(reference)
        if had == wanted:
            return column
        conversion = conform_rows.Conversion(self._spark, lacking="null")
        return conversion.value(column, spark_type(had), wanted, name)

    def source_ranges(self) -> KeyRanges:
        """Run one job over the source: its rows, and the range of each key that it joins by."""
        none = self._snapshot.files.select(np.zeros(len(self._snapshot.files), dtype=np.bool_))
        target = scan(self._spark, self._snapshot, None, none).alias(self._target_alias)
        on = expression(self._request.on)
        return key_ranges(self.source, join_keys(self._spark, target, self.source, on))

    def changed_rows(self, files: FileSet, ranges: KeyRanges) -> DataFrame:
        """Join the target with the source: new values, file and position, and the source's row.

        Without inserts only rows that a clause handles; with them all matched rows as well.
        """
        rows = rewrite.read_rows_with_positions(self._spark, self._snapshot, files)
        if not self.by_source:
            rows = ranges.narrowed(rows)
        rows = rewrite.add_row_ids(self._spark, self.metadata, files, rows, changed=True)
        rows = rows.alias(self._target_alias)
        # Clauses for rows without a match have no source to refer to.
        changes = [*self.matched, *(bound(self._spark, each, rows) for each in self.by_source)]
        source = self.source
        if is_broadcast(self.source, ranges.rows):
            source = functions.broadcast(source)
        joined = rows.join(
            source, expression(self._request.on), "left" if self.by_source else "inner"
        )
        is_matched = functions.col(SOURCE_ROW).isNotNull()
        require_row_wise(joined, self.matched)
        joined = joined.select("*", clause_number(changes, is_matched).alias(CLAUSE))
        if not self.inserts:
            joined = joined.where(functions.col(CLAUSE) > 0)
        elif self.by_source:
            joined = joined.where((functions.col(CLAUSE) > 0) | is_matched)
        names = [NUMBER, POSITION, SOURCE_ROW, *rewrite.id_names(self.metadata)]
        kept = {name: functions.col(quote(name)) for name in names}
        if self.has_feed:
            kept[data_files.OLD] = functions.struct(
                *(self._old(name).alias(name) for name in self.metadata.schema.names)
            )
        return self._new_values(joined, changes, self._old, kept)

    def inserted_rows(self, changed: DataFrame, source_rows: int) -> DataFrame | None:
        """Return the rows to insert: those of the source that are not among the matches."""
        if not self.inserts:
            return None
        matches = changed.where(functions.col(SOURCE_ROW).isNotNull())
        matches = matches.select(functions.col(SOURCE_ROW).alias(f"{SOURCE_ROW}_of")).distinct()
        if source_rows <= _FEW_ROWS:
            matches = functions.broadcast(matches)
        condition = functions.col(SOURCE_ROW) == functions.col(f"{SOURCE_ROW}_of")
        rest = self.source.join(matches, condition, "left_anti")
        require_row_wise(rest, self.inserts)
        rest = rest.select("*", clause_number(self.inserts, None).alias(CLAUSE))
        rest = rest.where(functions.col(CLAUSE) > 0)
        rows = self._new_values(rest, self.inserts, None, {})
        ids = {name: functions.lit(None).cast("long") for name in rewrite.id_names(self.metadata)}
        return rows.withColumns(ids) if ids else rows

    def _new_values(
        self,
        rows: DataFrame,
        clauses: list[Assigned],
        old: Callable[[str], Column] | None,
        kept: Mapping[str, Column],
    ) -> DataFrame:
        table, schema = self._snapshot.table, self.metadata.schema
        return new_values(self._spark, table, schema, rows, clauses, old, kept, self._lacking)

    def kept_rows(self, files: FileSet, rewritten: Mapping[int, Bitmap]) -> DataFrame:
        """Return the live rows of files that are rewritten, in the evolved schema."""
        kept = rewrite.read_kept_rows(self._spark, self._snapshot, files, rewritten)
        if self.metadata.schema == self._snapshot.metadata.schema:
            return kept
        names = self.metadata.schema.names
        return kept.withColumns({name: self._as_evolved(name, quote(name)) for name in names})


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
            targets = find_targets(snapshot, predicate, time_zone(attempt.spark))
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
            changed = stages.enter_context(stage_rows(joined))
            with attempt.phase("find"):
                in_order = not shuffles(joined)
                found = self._found(files, changed, vectors=vectors, in_order=in_order)
            inserted = plan.inserted_rows(changed, ranges.rows)
            if inserted is not None:
                depend_on_source(attempt, inserted)
            state = plan.state
            if inserted is not None and plan.missing_ids and not attempt.options.dry_run:
                inserted = stages.enter_context(stage_rows(inserted))
                ids = plan.missing_ids
                inserted, state = conform_rows.with_identity_values(state, inserted, ids)
            if inserted is not None and plan.has_feed:
                inserted = stages.enter_context(stage_rows(inserted))
            written, copied = self._written(files, changed, inserted, found, ranges.rows)
            counts = self._counts(found, inserted, written, copied)
            any_rows = any(counts[name] for name in _ROWS)
            evolves = state.metadata != snapshot.metadata
            if not any_rows and not evolves:
                return Outcome(None, figures)
            feed = plan.has_feed and any_rows
            change_files = self._change_files(changed, inserted) if feed else ()
        metrics = _metrics(counts, ranges.rows, copied)
        reads = self._reads(predicate, files)
        change = Change(
            Operation("MERGE", self._request.parameters(), metrics, reads),
            vector_updates=found.vector_updates,
            vector_files=found.vector_files,
            removed=found.removed,
            added=written.adds if written else (),
            change_files=change_files,
            protocol=state.protocol if evolves else None,
            metadata=state.metadata if evolves else None,
        )
        rows = {name: counts[name] for name in _ROWS}
        return Outcome(change, {**figures, "rows_copied": copied, **rows})

    def _found(self, files: FileSet, changed: DataFrame, *, vectors: bool, in_order: bool) -> Found:
        """Find the rows that change; this is the job that runs the join."""
        plan = self._plan
        if not plan.changes:
            # Only the matches are of interest, and the inserts find them.
            return Found()
        numbers: dict[str, list[str]] = {}
        for each in plan.changes:
            name = f"{each.clause.when}_{each.clause.action}"
            numbers.setdefault(name, []).append(str(each.number))
        counted = {name: f"{CLAUSE} IN ({', '.join(each)})" for name, each in numbers.items()}
        rows = changed.where(functions.col(CLAUSE) > 0).select(NUMBER, POSITION, CLAUSE)
        found = find_outcomes(
            self._attempt,
            files,
            rows,
            vectors=vectors,
            ratio=self._request.rewrite_ratio,
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
    ) -> tuple[data_files.WrittenFiles | None, int]:
        """Write updated, inserted and copied rows; return the files and how many were copied."""
        attempt, plan = self._attempt, self._plan
        rewritten = found.rewritten
        copied = rewrite.count_kept(self._snapshot, files, rewritten)
        if attempt.options.dry_run:
            return None, copied
        columns = rewrite.stored_names(plan.metadata)
        parts = []
        updates = self._numbers("update")
        if found.rows and updates:
            parts.append(changed.where(functions.col(CLAUSE).isin(updates)).select(*columns))
        if inserted is not None:
            parts.append(inserted.select(*columns))
        if parts:
            new = reduce(DataFrame.unionAll, parts)
            table = attempt.storage.root
            parts = [conform_rows.check_constraints(attempt.spark, table, plan.metadata, new)]
        if rewritten:
            parts.append(plan.kept_rows(files, rewritten).select(*columns))
        if not parts:
            return None, 0
        at_most = sum(found.counts.values()) + copied + (source_rows if plan.inserts else 0)
        rows = reduce(DataFrame.unionAll, parts)
        return rewrite.store_rows(attempt, plan.state, rows, at_most), copied

    def _numbers(self, action: str) -> list[int]:
        return [each.number for each in self._plan.changes if each.clause.action == action]

    def _counts(
        self,
        found: Found,
        inserted: DataFrame | None,
        written: data_files.WrittenFiles | None,
        copied: int,
    ) -> dict[str, int]:
        counts = {name: found.counts.get(name, 0) for name in _CHANGES}
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
            parts.append(data_files.old_and_new(rows, names, "update_preimage", "update_postimage"))
        if deletes := self._numbers("delete"):
            rows = changed.where(functions.col(CLAUSE).isin(deletes))
            # A row that several rows of the source delete is deleted once.
            rows = rows.dropDuplicates([NUMBER, POSITION])
            parts.append(data_files.old_and_new(rows, names, "delete"))
        if inserted is not None:
            parts.append(data_files.old_and_new(inserted, names, "insert"))
        rows = reduce(DataFrame.unionAll, parts)
        return data_files.store_change_rows(self._attempt, rows, metadata)


def _metrics(counts: Mapping[str, int], source_rows: int, copied: int) -> dict[str, int]:
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
