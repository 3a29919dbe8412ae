"""MERGE in one pass over the target.

The source is computed once. Target rows join it with their file and position; what comes out is
staged once and gives vectors, updated rows and, by the source rows that are missing in it, inserts.
A source that is small enough is broadcast, so that the target is not shuffled.

    target JOIN source  ->  staged rows  ->  vectors (positions)
                                         ->  updated rows
            source ANTI JOIN staged rows ->  inserted rows
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import DataFrame, functions

from delvec.delta.alter.columns import evolve_schema
from delvec.delta.alter.table_state import TableState
from delvec.delta.pruning.predicate import Always
from delvec.delta.schema.expressions import GENERATION
from delvec.delta.schema.parse import parse_schema
from delvec.delta.write.change import Change, Reads
from delvec.delta.write.targets import targets_of
from delvec.delta.write.transaction import Outcome
from delvec.delta.write.writable import require_writable, writes_vectors
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote
from delvec.spark.conf import bytes_setting, time_zone
from delvec.spark.delta.scan.scan import scan
from delvec.spark.delta.write.change_files import has_change_feed, store_change_rows
from delvec.spark.delta.write.clauses import KIND, assigned, bound, expression, kind_of, new_values
from delvec.spark.delta.write.conform_rows import Conversion, checked
from delvec.spark.delta.write.file_outcomes import Marks, mark
from delvec.spark.delta.write.join_keys import join_keys, key_ranges
from delvec.spark.delta.write.merge_request import SOURCE_ROW, count_name, merge_metrics
from delvec.spark.delta.write.rewrite import count_kept, kept_rows, placed_rows, store_rows
from delvec.spark.delta.write.row_tracking import id_names, with_ids
from delvec.spark.delta.write.update import OLD, old_and_new
from delvec.spark.positions import NUMBER, POSITION
from delvec.spark.staging import staged
from delvec.spark.types import spark_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.pruning.predicate import Predicate
    from delvec.delta.write.transaction import Attempt
    from delvec.spark.delta.write.clauses import Assigned, Clause
    from delvec.spark.delta.write.data_files import WrittenFiles
    from delvec.spark.delta.write.join_keys import KeyRanges
    from delvec.spark.delta.write.merge_request import MergeRequest
    from delvec.vector import Bitmap

__all__ = ["BROADCAST_LIMIT", "merge"]

BROADCAST_LIMIT: Final = "spark.delvec.merge.broadcastLimit"
_WIDTHS: Final = {"string": 40, "binary": 100}
_FEW_ROWS: Final = 1_000_000
_ROWS: Final = ("rows_updated", "rows_deleted", "rows_inserted")
_KINDS: Final = (
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
        self._spark, self._snapshot = attempt.spark, attempt.snapshot
        self._state = self._evolved()
        self._metadata = self._state.metadata
        self._old_names = frozenset(self._snapshot.metadata.schema.names)
        self._t, self._s = request.aliases
        numbers = {clause: place + 1 for place, clause in enumerate(map(id, request.clauses))}
        self._by_when: dict[str, list[Assigned]] = {
            when: [
                assigned(
                    self._with_values(clause),
                    numbers[id(clause)],
                    self._metadata.schema,
                    None if when == "not_matched" else self._old,
                )
                for clause in request.of(when)
            ]
            for when in ("matched", "not_matched", "not_matched_by_source")
        }
        self._changes = [*self._by_when["matched"], *self._by_when["not_matched_by_source"]]
        self._inserts = self._by_when["not_matched"]
        self._feed = has_change_feed(self._metadata)

    def _evolved(self) -> TableState:
        state = TableState.of(self._snapshot)
        if not self._request.merge_schema:
            return state
        source = self._request.source.drop(SOURCE_ROW)
        return evolve_schema(state, parse_schema(source.schema.json()))

    def _old(self, name: str) -> Column:
        """Give the value that a column of the target has so far."""
        return self._as_evolved(name, f"{quote(self._t)}.{quote(name)}")

    def _as_evolved(self, name: str, reference: str) -> Column:
        """Give what a column is after the schema has grown: new fields are null."""
        wanted = self._metadata.schema.field(name).type
        if name not in self._old_names:
            return functions.lit(None).cast(spark_type(wanted))
        had = self._snapshot.metadata.schema.field(name).type
        column = functions.col(reference)
        if had == wanted:
            return column
        return Conversion(self._spark).value(column, spark_type(had), wanted, name)

    def _with_values(self, clause: Clause) -> Clause:
        """Spell out "all columns": those of the source under the names of the target's."""
        if clause.action == "delete" or clause.values is not None:
            return clause
        have = {name.lower(): name for name in self._request.source.columns if name != SOURCE_ROW}
        names = self._metadata.schema.names
        missing = [name for name in names if name.lower() not in have]
        generated = [n for n in missing if GENERATION in self._metadata.schema.field(n).metadata]
        if len(missing) > len(generated) and not self._request.merge_schema:
            raise InvalidArgumentError(
                f"the source lacks {', '.join(missing)}, so that it cannot give all columns",
                hint="name the columns and their values, or allow for it by merge_schema=True",
            )
        values = {
            name: functions.col(f"{quote(self._s)}.{quote(have[name.lower()])}")
            for name in names
            if name.lower() in have
        }
        return replace(clause, values=values)

    def prepare(self) -> Outcome:
        attempt, snapshot = self._attempt, self._snapshot
        with attempt.phase("plan"):
            columns = {name for each in self._changes for name in each.values}
            require_writable(snapshot, "merge", columns_set=columns, inserts=bool(self._inserts))
            source = self._request.source.alias(self._s)
            ranges = self._source_ranges(source)
            predicate = Always() if self._by_when["not_matched_by_source"] else ranges.predicate
            targets = targets_of(snapshot, predicate, time_zone(self._spark))
            looked_at = np.union1d(targets.whole, targets.open).astype(np.int64)
            files = snapshot.files.select(looked_at)
            vectors = bool(len(files) and self._changes) and writes_vectors(snapshot)
        figures = {
            "files_scanned": len(files),
            "files_pruned": len(snapshot.files) - len(files),
            "scans": int(len(files) > 0),
        }
        with ExitStack() as stages:
            changed = stages.enter_context(staged(self._changed(files, source, ranges)))
            with attempt.phase("find"):
                marks = self._marks(files, changed, vectors=vectors)
            inserted = self._inserted(source, changed, ranges)
            if inserted is not None and self._feed:
                inserted = stages.enter_context(staged(inserted))
            written, copied = self._written(files, changed, inserted, marks, ranges.rows)
            counts = self._counts(marks, inserted, written, copied)
            if not sum(counts[name] for name in _ROWS):
                return Outcome(None, figures)
            change_files = self._change_files(changed, inserted) if self._feed else ()
        evolves = self._metadata is not snapshot.metadata
        change = Change(
            "MERGE",
            parameters=self._request.parameters(),
            metrics=merge_metrics(counts, ranges.rows, copied),
            reads=self._reads(predicate, files),
            marked=marks.fates.marked,
            vector_files=marks.vector_files,
            removed=marks.fates.removed,
            added=written.adds if written else (),
            change_files=change_files,
            protocol=self._state.protocol if evolves else None,
            metadata=self._metadata if evolves else None,
            transaction=attempt.options.transaction,
            user_metadata=attempt.options.commit_metadata,
        )
        return Outcome(
            change,
            {**figures, "rows_copied": copied, **{name: counts[name] for name in _ROWS}},
        )

    def _source_ranges(self, source: DataFrame) -> KeyRanges:
        none = self._snapshot.files.select(np.zeros(len(self._snapshot.files), dtype=np.bool_))
        target = scan(self._spark, self._snapshot, None, none).alias(self._t)
        return key_ranges(
            source, join_keys(self._spark, target, source, expression(self._request.on))
        )

    def _changed(self, files: FileSet, source: DataFrame, ranges: KeyRanges) -> DataFrame:
        """Join the target with the source; give new values, places, and who matched."""
        by_source = bool(self._by_when["not_matched_by_source"])
        rows = placed_rows(self._spark, self._snapshot, files)
        if not by_source:
            rows = ranges.narrowed(rows)
        rows = with_ids(self._spark, self._metadata, files, rows, changed=True)
        if self._is_small(source, ranges.rows):
            source = functions.broadcast(source)
        on = expression(self._request.on)
        rows = rows.alias(self._t)
        # Clauses for rows without a partner have no source to speak of.
        changes = [
            bound(self._spark, each, rows) if each.clause.when == "not_matched_by_source" else each
            for each in self._changes
        ]
        joined = rows.join(source, on, "left" if by_source else "inner")
        is_matched = functions.col(SOURCE_ROW).isNotNull()
        joined = joined.select("*", kind_of(changes, is_matched).alias(KIND))
        if not self._inserts:
            joined = joined.where(functions.col(KIND) > 0)
        elif by_source:
            joined = joined.where((functions.col(KIND) > 0) | is_matched)
        names = [NUMBER, POSITION, SOURCE_ROW, *id_names(self._metadata)]
        kept = {name: functions.col(quote(name)) for name in names}
        if self._feed:
            kept[OLD] = functions.struct(
                *(self._old(name).alias(name) for name in self._metadata.schema.names)
            )
        schema = self._metadata.schema
        return new_values(self._spark, schema, joined, changes, self._old, kept)

    def _is_small(self, source: DataFrame, rows: int) -> bool:
        widths = (_WIDTHS.get(field.dataType.typeName(), 8) for field in source.schema.fields)
        return rows * (16 + sum(widths)) <= bytes_setting(self._spark, BROADCAST_LIMIT, "64m")

    def _marks(self, files: FileSet, changed: DataFrame, *, vectors: bool) -> Marks:
        """Find the rows that change; this is the job that runs the join."""
        if not self._changes:
            # Only who matched is of interest, which the inserts find out.
            return Marks()
        kinds = {
            count_name(when, action): f"{KIND} IN ({', '.join(map(str, numbers))})"
            for (when, action), numbers in self._numbers().items()
        }
        rows = changed.where(functions.col(KIND) > 0).select(NUMBER, POSITION, KIND)
        ratio = self._request.rewrite_ratio
        marks = mark(self._attempt, files, rows, vectors=vectors, ratio=ratio, kinds=kinds)
        matched = self._by_when["matched"]
        only_deletes = len(matched) == 1 and matched[0].clause.action == "delete"
        if marks.twice and not (only_deletes and matched[0].clause.condition is None):
            raise InvalidArgumentError(
                f"several rows of the source match one row of {self._snapshot.table}, in"
                f" {marks.twice[0]}: which of them counts is not defined",
                hint="leave one row for each key in the source, e.g. by dropDuplicates",
            )
        return marks

    def _numbers(self) -> dict[tuple[str, str], list[int]]:
        numbers: dict[tuple[str, str], list[int]] = {}
        for each in self._changes:
            numbers.setdefault((each.clause.when, each.clause.action), []).append(each.number)
        return numbers

    def _inserted(
        self, source: DataFrame, changed: DataFrame, ranges: KeyRanges
    ) -> DataFrame | None:
        """Give the rows to insert: those of the source that are not among the matches."""
        if not self._inserts:
            return None
        partners = changed.where(functions.col(SOURCE_ROW).isNotNull())
        partners = partners.select(functions.col(SOURCE_ROW).alias(f"{SOURCE_ROW}_of")).distinct()
        if ranges.rows <= _FEW_ROWS:
            partners = functions.broadcast(partners)
        condition = functions.col(SOURCE_ROW) == functions.col(f"{SOURCE_ROW}_of")
        alone = source.join(partners, condition, "left_anti")
        alone = alone.select("*", kind_of(self._inserts, None).alias(KIND))
        alone = alone.where(functions.col(KIND) > 0)
        schema = self._metadata.schema
        rows = new_values(self._spark, schema, alone, self._inserts, None, {})
        ids = {name: functions.lit(None).cast("long") for name in id_names(self._metadata)}
        return rows.withColumns(ids) if ids else rows

    def _written(
        self,
        files: FileSet,
        changed: DataFrame,
        inserted: DataFrame | None,
        marks: Marks,
        source_rows: int,
    ) -> tuple[WrittenFiles | None, int]:
        attempt, metadata = self._attempt, self._metadata
        rewritten = marks.fates.rewritten
        copied = count_kept(self._snapshot, files, rewritten)
        if attempt.options.dry_run:
            return None, copied
        columns = [quote(name) for name in (*metadata.schema.names, *id_names(metadata))]
        parts = []
        if updates := self._updates(marks):
            parts.append(changed.where(functions.col(KIND).isin(updates)).select(*columns))
        if inserted is not None:
            parts.append(inserted.select(*columns))
        if not parts and not rewritten:
            return None, 0
        rows = None
        if parts:
            new = reduce(DataFrame.unionAll, parts)
            rows = checked(self._spark, attempt.storage.root, metadata, new)
        if rewritten:
            kept = self._kept(files, rewritten).select(*columns)
            rows = kept if rows is None else rows.unionAll(kept)
        at_most = sum(marks.counts.values()) + copied + (source_rows if self._inserts else 0)
        if rows is None:
            raise AssertionError("there is something to write")
        return store_rows(attempt, self._state, rows, at_most), copied

    def _kept(self, files: FileSet, rewritten: Mapping[int, Bitmap]) -> DataFrame:
        """Give the rows that stay of files that are rewritten, as the table is from now on."""
        kept = kept_rows(self._spark, self._snapshot, files, rewritten)
        if self._metadata.schema == self._snapshot.metadata.schema:
            return kept
        names = self._metadata.schema.names
        return kept.withColumns({name: self._as_evolved(name, quote(name)) for name in names})

    def _updates(self, marks: Marks) -> list[int]:
        if not marks.rows:
            return []
        return [each.number for each in self._changes if each.clause.action == "update"]

    def _counts(
        self,
        marks: Marks,
        inserted: DataFrame | None,
        written: WrittenFiles | None,
        copied: int,
    ) -> dict[str, int]:
        counts = {count_name(*each): marks.counts.get(count_name(*each), 0) for each in _KINDS}
        updated = counts["matched_update"] + counts["not_matched_by_source_update"]
        if marks.twice:  # a delete that matched twice deletes once
            counts["matched_delete"] -= sum(marks.counts.values()) - marks.rows
        counts["rows_updated"] = updated
        counts["rows_deleted"] = marks.rows - updated
        new = 0
        if written is not None:
            new = written.rows - updated - copied
        elif inserted is not None and self._attempt.options.dry_run:
            new = inserted.count()
        return counts | {"rows_inserted": new}

    def _reads(self, predicate: Predicate, files: FileSet) -> Reads:
        """Say what the merge depends on.

        A row that has a partner and no clause keeps that partner from being inserted, though it is
        not changed itself: whoever deletes it changes the result.
        """
        matched = self._by_when["matched"]
        all_change = bool(matched) and matched[-1].clause.condition is None
        row_wise = not self._inserts or all_change
        paths = frozenset() if row_wise else frozenset(files.paths.to_pylist())
        return Reads(predicate, paths, row_wise, time_zone(self._spark))

    def _change_files(
        self, changed: DataFrame, inserted: DataFrame | None
    ) -> tuple[Mapping[str, Any], ...]:
        names, parts = self._metadata.schema.names, []
        numbers = {
            action: [each.number for each in self._changes if each.clause.action == action]
            for action in ("update", "delete")
        }
        if numbers["update"]:
            rows = changed.where(functions.col(KIND).isin(numbers["update"]))
            parts += [
                old_and_new(rows, names, kind) for kind in ("update_preimage", "update_postimage")
            ]
        if numbers["delete"]:
            rows = changed.where(functions.col(KIND).isin(numbers["delete"]))
            # A row that several rows of the source delete is deleted once.
            rows = rows.dropDuplicates([NUMBER, POSITION])
            parts.append(old_and_new(rows, names, "delete"))
        if inserted is not None:
            parts.append(old_and_new(inserted, names, "insert"))
        return store_change_rows(self._attempt, reduce(DataFrame.unionAll, parts), self._metadata)
