"""The clauses of a MERGE, gathered one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame
    from typing_extensions import Unpack

    from delvec.delta.write.options import WriteOptions
    from delvec.delta.write.report import WriteReport
    from delvec.spark.delta.write.clauses import Clause, When

    Condition = str | Column | None
    Values = Mapping[str, str | Column | Any]

__all__ = ["MergeBuilder"]


@dataclass(frozen=True)
class MergeBuilder:
    """A merge to be: each method gives one with a clause more, `execute` does it.

    Of the clauses for a row the first counts whose condition it satisfies. Conditions and values
    are SQL or columns of Spark, and call the table and the source by their aliases.
    """

    _run: Callable[..., WriteReport]
    source: DataFrame
    on: str | Column
    aliases: tuple[str, str]
    merge_schema: bool = False
    clauses: tuple[Clause, ...] = ()

    def when_matched_update(self, set: Values, condition: Condition = None) -> MergeBuilder:  # noqa: A002
        """Give columns of a row that has a partner new values."""
        return self._with("matched", "update", condition, set)

    def when_matched_update_all(self, condition: Condition = None) -> MergeBuilder:
        """Give all columns of a row that has a partner the partner's values."""
        return self._with("matched", "update", condition, None)

    def when_matched_delete(self, condition: Condition = None) -> MergeBuilder:
        """Delete a row that has a partner."""
        return self._with("matched", "delete", condition, None)

    def when_not_matched_insert(self, values: Values, condition: Condition = None) -> MergeBuilder:
        """Insert a row for one of the source that has no partner."""
        return self._with("not_matched", "insert", condition, values)

    def when_not_matched_insert_all(self, condition: Condition = None) -> MergeBuilder:
        """Insert a row of the source that has no partner, by the names of its columns."""
        return self._with("not_matched", "insert", condition, None)

    def when_not_matched_by_source_update(
        self,
        set: Values,  # noqa: A002
        condition: Condition = None,
    ) -> MergeBuilder:
        """Give columns of a row of the table that has no partner new values."""
        return self._with("not_matched_by_source", "update", condition, set)

    def when_not_matched_by_source_delete(self, condition: Condition = None) -> MergeBuilder:
        """Delete a row of the table that has no partner."""
        return self._with("not_matched_by_source", "delete", condition, None)

    def execute(
        self, *, rewrite_ratio: float | None = None, **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Merge; the source is computed once, however often a conflict makes it begin again.

        Args:
            rewrite_ratio: Write a file anew when this share of its rows is gone.
            options: See `WriteOptions`.

        Raises:
            InvalidArgumentError: Clauses or names are wrong, or several rows of the source match
                one row that is to be changed.
        """
        from delvec.spark.delta.write.merge import merge  # noqa: PLC0415
        from delvec.spark.delta.write.merge_request import MergeRequest, numbered  # noqa: PLC0415
        from delvec.spark.staging import staged  # noqa: PLC0415

        with staged(numbered(self.source)) as source:
            request = MergeRequest(
                source, self.on, self.aliases, self.clauses, self.merge_schema, rewrite_ratio
            )
            return self._run("MERGE", merge(request), options)

    def _with(
        self,
        when: When,
        action: Literal["update", "delete", "insert"],
        condition: Condition,
        values: Values | None,
    ) -> MergeBuilder:
        from delvec.spark.delta.write.clauses import Clause  # noqa: PLC0415

        clause = Clause(when, action, condition, values)
        return replace(self, clauses=(*self.clauses, clause))
