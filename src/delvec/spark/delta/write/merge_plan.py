"""The plan of a MERGE: its clauses resolved, its joins as DataFrames that no job has run yet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from pyspark.sql import functions

from delvec.delta.alter.columns import evolve_schema
from delvec.delta.alter.table_state import TableState
from delvec.delta.schema.expressions import GENERATION, names_in
from delvec.delta.schema.parse import parse_schema
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote
from delvec.report.wordings import call, worded
from delvec.spark.delta.scan.scan import scan
from delvec.spark.delta.write.change_files import OLD, has_change_feed
from delvec.spark.delta.write.clauses import (
    SOURCE_ROW,
    assigned,
    bound,
    expression,
    path_of,
    require_row_wise,
)
from delvec.spark.delta.write.conform_rows import Conversion, refuse_twins
from delvec.spark.delta.write.evolution import assigned_fields
from delvec.spark.delta.write.identity_values import missing_identities, require_insertable
from delvec.spark.delta.write.join_keys import is_broadcast, join_keys, key_ranges
from delvec.spark.delta.write.projection import CLAUSE, clause_number, new_values
from delvec.spark.delta.write.rewrite import kept_rows, placed_rows
from delvec.spark.delta.write.row_tracking import id_names, with_ids
from delvec.spark.positions import NUMBER, POSITION
from delvec.spark.types import spark_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.spark.delta.write.clauses import Assigned, Clause, MergeRequest, When
    from delvec.spark.delta.write.conform_rows import Lacking
    from delvec.spark.delta.write.join_keys import KeyRanges
    from delvec.vector import Bitmap

__all__ = ["MergePlan"]

_FEW_ROWS: Final = 1_000_000


class MergePlan:
    """A MERGE into one version of a table.

    Attributes:
        state: What the table is after the merge, with new columns if asked.
        matched: The clauses for matched rows.
        inserts: The clauses for rows of the source without a match.
        by_source: The clauses for rows of the target without a match.
    """

    def __init__(self, spark: SparkSession, snapshot: Snapshot, request: MergeRequest) -> None:
        self._spark, self._snapshot, self._request = spark, snapshot, request
        self._target_alias, self._source_alias = request.aliases
        self.state = self._evolved()
        self.metadata = self.state.metadata
        self._old_names = frozenset(snapshot.metadata.schema.names)
        self._lacking: Lacking = "null" if request.merge_schema else "refuse"
        self._numbers = {id(clause): place for place, clause in enumerate(request.clauses, 1)}
        self.matched = self._assigned("matched")
        self.inserts = self._assigned("not_matched")
        for each in self.inserts:
            require_insertable(self.metadata.schema, each.values)
            self._require_computable(each)
        self.by_source = self._assigned("not_matched_by_source")
        self.has_feed = has_change_feed(self.metadata)
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
            for name in missing_identities(self.metadata.schema, each.values):
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
        return [self._resolved(clause) for clause in self._request.of(when)]

    def _resolved(self, clause: Clause) -> Assigned:
        is_new, has_source = clause.when == "not_matched", clause.when != "not_matched_by_source"
        own = self._snapshot.metadata.schema
        if not has_source:
            for name in clause.values or ():
                path_of(own, name, self._target_alias)  # new columns are the source's
        found = assigned(
            self._spark,
            self._snapshot.table,
            self._with_values(clause),
            self._numbers[id(clause)],
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
        ids = {name.lower() for name in missing_identities(schema, insert.values)}
        for field in schema.fields:
            sql = str(field.metadata.get(GENERATION, ""))
            if field.name not in insert.values and ids & names_in(sql):
                raise InvalidArgumentError(
                    f"generated column {field.name} is computed from an identity column: {sql};"
                    " a merge cannot insert into such a table",
                    hint=worded("{} can", call("append")),
                )

    def _with_values(self, clause: Clause) -> Clause:
        """Expand "all columns": those of the source under the names of the target's."""
        if clause.action == "delete" or clause.values is not None:
            return clause
        refuse_twins(self._request.source.columns, "the rows of the source")
        have = {name.lower(): name for name in self._request.source.columns if name != SOURCE_ROW}
        schema = self.metadata.schema
        missing = [name for name in schema.names if name.lower() not in have]
        generated = [name for name in missing if GENERATION in schema.field(name).metadata]
        if len(missing) > len(generated) and not self._request.merge_schema:
            raise InvalidArgumentError(
                f"the source lacks {', '.join(missing)}, so that it cannot give all columns",
                hint="name the columns and their values, or allow for it by merge_schema=True",
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
        return Conversion(self._spark, lacking="null").value(column, spark_type(had), wanted, name)

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
        rows = placed_rows(self._spark, self._snapshot, files)
        if not self.by_source:
            rows = ranges.narrowed(rows)
        rows = with_ids(self._spark, self.metadata, files, rows, changed=True)
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
        names = [NUMBER, POSITION, SOURCE_ROW, *id_names(self.metadata)]
        kept = {name: functions.col(quote(name)) for name in names}
        if self.has_feed:
            kept[OLD] = functions.struct(
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
        ids = {name: functions.lit(None).cast("long") for name in id_names(self.metadata)}
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
        kept = kept_rows(self._spark, self._snapshot, files, rewritten)
        if self.metadata.schema == self._snapshot.metadata.schema:
            return kept
        names = self.metadata.schema.names
        return kept.withColumns({name: self._as_evolved(name, quote(name)) for name in names})
