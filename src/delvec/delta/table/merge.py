"""The builder of a MERGE: its clauses, then `execute()`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from delvec.calls import explained_calls
from delvec.delta.table.arguments import in_order, require_condition, require_values
from delvec.delta.write.options import WriteOptions
from delvec.spellings import Explained, explain_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame
    from typing_extensions import Unpack

    from delvec.delta.table.handle import TableHandle
    from delvec.delta.write.report import WriteReport
    from delvec.spark.delta.write.clauses import Clause, When

    Condition = str | Column | None
    Values = Mapping[str, str | Column | Any]

__all__ = ["MergeBuilder"]


@explained_calls(WriteOptions)
@dataclass(frozen=True)
class MergeBuilder(metaclass=Explained):
    """A MERGE to be run: each method returns a builder with one more clause, `execute` runs it.

    Each row is handled by the first clause of its kind whose condition holds, and left as it is
    if there is none. Conditions and values are SQL or columns of Spark; they refer to the table
    and the source by their aliases, which assigned columns may have as well: `{"t.v": "s.w"}`. The
    value `DEFAULT` is the column's default; values are cast to its type as in ANSI mode. Condition
    and values may change places, as delta-spark has them.
    """

    _table: TableHandle
    source: DataFrame
    on: str | Column
    aliases: tuple[str, str]
    merge_schema: bool = False
    clauses: tuple[Clause, ...] = ()
    _by_name: Callable[[Any], Any] = field(default=lambda value: value, repr=False)

    if not TYPE_CHECKING:  # to a type checker these names do not exist

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            raise explain_name(type(self), name)

    def when_matched_update(self, set: Values, condition: Condition = None) -> MergeBuilder:  # noqa: A002
        """Set columns of a row of the table that matches a row of the source."""
        return self._with("matched", "update", condition, set)

    def when_matched_update_all(self, condition: Condition = None) -> MergeBuilder:
        """Set all columns of a matched row to the values of the source row, by name."""
        return self._with("matched", "update", condition, None)

    def when_matched_delete(self, condition: Condition = None) -> MergeBuilder:
        """Delete a row of the table that matches a row of the source."""
        return self._with("matched", "delete", condition, None)

    def when_not_matched_insert(self, values: Values, condition: Condition = None) -> MergeBuilder:
        """Insert a row for a row of the source that matches no row of the table."""
        return self._with("not_matched", "insert", condition, values)

    def when_not_matched_insert_all(self, condition: Condition = None) -> MergeBuilder:
        """Insert a row of the source that matches no row of the table, columns by name."""
        return self._with("not_matched", "insert", condition, None)

    def when_not_matched_by_source_update(
        self,
        set: Values,  # noqa: A002
        condition: Condition = None,
    ) -> MergeBuilder:
        """Set columns of a row of the table that matches no row of the source."""
        return self._with("not_matched_by_source", "update", condition, set)

    def when_not_matched_by_source_delete(self, condition: Condition = None) -> MergeBuilder:
        """Delete a row of the table that matches no row of the source."""
        return self._with("not_matched_by_source", "delete", condition, None)

    def execute(
        self, *, rewrite_ratio: float | None = None, **options: Unpack[WriteOptions]
    ) -> WriteReport:
        """Run the merge as one commit.

        The source is computed once, even if a conflict with another writer makes the merge start
        again. A source that reads the table itself is not used again: if rows of the table have
        changed since it was read, the caller has to read it anew.

        Args:
            rewrite_ratio: Rewrite a file, instead of giving it a deletion vector, when the vector
                would delete at least this share of its rows, earlier deletes included.
            options: See `WriteOptions`.

        Raises:
            InvalidArgumentError: Clauses or names are wrong, or several rows of the source match
                one row of the table that a clause changes.
            ConflictError: Another writer won, see `ConflictError.retryable`.
        """
        from delvec.spark.delta.scan.read_versions import reads_of  # noqa: PLC0415
        from delvec.spark.delta.write.clauses import MergeRequest, numbered  # noqa: PLC0415
        from delvec.spark.delta.write.merge import merge  # noqa: PLC0415
        from delvec.spark.engine import SparkEngine  # noqa: PLC0415
        from delvec.spark.staging import staged  # noqa: PLC0415

        # Before the source is read, so that no commit falls between the two.
        root, newest = self._table.storage.root, lambda: self._table.version
        reads = reads_of(self.source, root, newest)
        engine = SparkEngine(self.source.sparkSession)
        with engine.explained(root), staged(numbered(self.source)) as source:
            request = MergeRequest(
                source,
                self.on,
                self.aliases,
                self.clauses,
                self.merge_schema,
                rewrite_ratio,
                reads,
            )
            return self._table.run("MERGE", merge(request), options)

    def _with(
        self,
        when: When,
        action: Literal["update", "delete", "insert"],
        condition: Condition,
        values: Values | None,
    ) -> MergeBuilder:
        from delvec.spark.delta.write.clauses import Clause  # noqa: PLC0415

        call = f"when_{when}_{action}"
        if values is not None:
            values, condition = in_order(values, condition)
        first = {"update": "set, ", "insert": "values, "}.get(action, "") if values else ""
        require_condition(f"{call}({first}condition={{}})", condition)
        if values is not None:
            require_values(call, values)
            values = {name: self._by_name(value) for name, value in values.items()}
        clause = Clause(when, action, self._by_name(condition), values)
        return replace(self, clauses=(*self.clauses, clause))
