"""delta-spark's builder of a MERGE."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession

from delvec.compat.arguments import (
    ArgumentTypeError,
    Condition,
    Values,
    require_condition,
    require_values,
)
from delvec.errors import InvalidArgumentError
from delvec.spark import jvm

if TYPE_CHECKING:
    from delvec.delta.table import DeltaTable
    from delvec.delta.table.writes import MergeBuilder

_AUTO_MERGE: Final = "spark.databricks.delta.schema.autoMerge.enabled"
_MERGED: Final = (
    "num_affected_rows BIGINT, num_updated_rows BIGINT, num_deleted_rows BIGINT,"
    " num_inserted_rows BIGINT"
)
_NAMES: Final = ("target", "merged", "delta")  # of a table that has none, whatever its source's is


@dataclass(frozen=True)
class DeltaMergeBuilder:
    """A MERGE to be run: each method returns a builder with one more clause."""

    _spark: SparkSession
    _builder: MergeBuilder

    @classmethod
    def of(
        cls,
        table: DeltaTable,
        spark: SparkSession,
        alias: str | None,
        source: object,
        on: Any,  # noqa: ANN401
    ) -> DeltaMergeBuilder:
        """Begin the merge of a source into a table."""
        if source is None:
            raise InvalidArgumentError("'source' in merge cannot be None")
        if not isinstance(source, DataFrame):
            raise ArgumentTypeError("Type of 'source' in merge must be DataFrame")
        if on is None:
            raise InvalidArgumentError("'condition' in merge cannot be None", hint='"t.id = s.id"')
        require_condition(on)
        name = _alias_of(source)
        target = alias or next(each for each in _NAMES if each != name)
        evolves = (spark.conf.get(_AUTO_MERGE, None) or "").lower() == "true"
        builder = table.merge(
            source, on, source_alias=name, target_alias=target, merge_schema=evolves
        )
        return cls(spark, builder)

    def whenMatchedUpdate(
        self,
        condition: Condition = None,
        set: Values | None = None,  # noqa: A002
    ) -> DeltaMergeBuilder:
        """Set columns of a row of the table that matches a row of the source."""
        return self._with("when_matched_update", condition, set=set)

    def whenMatchedUpdateAll(self, condition: Condition = None) -> DeltaMergeBuilder:
        """Set all columns of a matched row to those of the source row."""
        return self._with("when_matched_update_all", condition)

    def whenMatchedDelete(self, condition: Condition = None) -> DeltaMergeBuilder:
        """Delete a row of the table that matches a row of the source."""
        return self._with("when_matched_delete", condition)

    def whenNotMatchedInsert(
        self, condition: Condition = None, values: Values | None = None
    ) -> DeltaMergeBuilder:
        """Insert a row for a row of the source that matches none."""
        return self._with("when_not_matched_insert", condition, values=values)

    def whenNotMatchedInsertAll(self, condition: Condition = None) -> DeltaMergeBuilder:
        """Insert a row of the source that matches none."""
        return self._with("when_not_matched_insert_all", condition)

    def whenNotMatchedBySourceUpdate(
        self,
        condition: Condition = None,
        set: Values | None = None,  # noqa: A002
    ) -> DeltaMergeBuilder:
        """Set columns of a row of the table that matches no row of the source."""
        return self._with("when_not_matched_by_source_update", condition, set=set)

    def whenNotMatchedBySourceDelete(self, condition: Condition = None) -> DeltaMergeBuilder:
        """Delete a row of the table that matches no row of the source."""
        return self._with("when_not_matched_by_source_delete", condition)

    def withSchemaEvolution(self) -> DeltaMergeBuilder:
        """Add columns that clauses assign and only the source has."""
        return replace(self, _builder=replace(self._builder, merge_schema=True))

    def execute(self) -> DataFrame:
        """Run the merge; return how many rows it changed."""
        report = self._builder.execute()
        figures = (report.rows_updated, report.rows_deleted, report.rows_inserted)
        return self._spark.createDataFrame([(sum(figures), *figures)], _MERGED)

    def _with(self, method: str, condition: Condition, **given: Values | None) -> DeltaMergeBuilder:
        for name, values in given.items():
            require_values(f"'{name}'", values)
        require_condition(condition)
        changed = getattr(self._builder, method)(**given, condition=condition)
        return replace(self, _builder=changed)


def _alias_of(source: DataFrame) -> str:
    """Return what the columns of a source are qualified with; a name of ours if they are not."""
    analyzed: Any = source._jdf.queryExecution().analyzed()  # noqa: SLF001
    for column in jvm.items(analyzed.output()):
        if names := [str(each) for each in jvm.items(column.qualifier())]:
            return names[-1]
    return "source"
