"""Columns that are bound to a DataFrame, such as `df["id"]`, as columns by name.

An operation scans its table anew, and after a conflict again, so that it has no use for columns
of one DataFrame. Those of a DataFrame that the table gave are rebuilt to be resolved by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import Column

from delvec.errors import InvalidArgumentError
from delvec.spark import jvm
from delvec.spark.jvm import items

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["attributes_of", "by_name"]

_T = TypeVar("_T")


def attributes_of(df: DataFrame) -> Any:  # noqa: ANN401
    """Return the columns of a DataFrame as a set of the JVM, which holds neither plan nor files."""
    plan: Any = df._jdf.queryExecution().analyzed()  # noqa: SLF001
    return plan.outputSet()


def by_name(
    spark: SparkSession,
    value: _T,
    table: tuple[str | None, Iterable[Any]],
    others: Iterable[tuple[str, DataFrame]] = (),
) -> _T:
    """Return a column with all bound columns in it replaced by names; other values as they are.

    Args:
        spark: A classic session.
        value: A column, or anything else.
        table: The alias of the table, and the columns of its DataFrames (see `attributes_of`).
        others: Other DataFrames whose columns may be named, by alias.

    Raises:
        InvalidArgumentError: A column is bound to another DataFrame, or to both sides of a merge.
    """
    if not isinstance(value, Column) or not hasattr(value, "_jc"):
        return value
    classic = jvm.view_of(spark).org.apache.spark.sql.classic
    converter = getattr(getattr(classic, "ColumnNodeToExpressionConverter$"), "MODULE$")
    column: Any = value._jc  # noqa: SLF001
    expression = converter.apply(column.node())
    known = [table, *((alias, [attributes_of(df)]) for alias, df in others)]
    rebuilt = _Rebuilding(spark, known).rebuilt(expression)
    return value if rebuilt is None else type(value)(classic.ExpressionUtils.column(rebuilt))


class _Rebuilding:
    def __init__(
        self, spark: SparkSession, known: Sequence[tuple[str | None, Iterable[Any]]]
    ) -> None:
        self._spark, self._known = spark, [(alias, list(sets)) for alias, sets in known]
        self._view = jvm.view_of(spark)

    def rebuilt(self, node: Any) -> Any | None:  # noqa: ANN401
        """Return an expression without bound columns, None if it has none."""
        kind = node.getClass().getSimpleName()
        if kind == "AttributeReference":
            return self._unresolved([*self._aliases(node), node.name()])
        old = list(items(node.children()))
        new = [self.rebuilt(child) for child in old]
        if all(child is None for child in new):
            return None
        inside = [b if a is None else a for a, b in zip(new, old, strict=True)]
        # Fields are found by name again: their place may be another one.
        if kind == "GetStructField":
            return self._field(inside[0], node.extractFieldName())
        if kind == "GetArrayStructFields":
            return self._field(inside[0], node.field().name())
        return node.withNewChildren(jvm.to_seq(self._spark, inside))

    def _aliases(self, attribute: Any) -> list[str]:  # noqa: ANN401
        """Return what a bound column's name has to stand behind."""
        found = [
            alias
            for alias, sets in self._known
            if any(attributes.contains(attribute) for attributes in sets)
        ]
        if len(found) == 1:
            return [] if found[0] is None else [found[0]]
        name = attribute.name()
        if found:
            raise InvalidArgumentError(
                f"column {name} of a DataFrame is on both sides of the merge",
                hint=f"say which: {found[0]}.{name} or {found[1]}.{name}",
            )
        raise InvalidArgumentError(
            f"column {name} is bound to a DataFrame that is not to_df() of this table",
            hint=f'write functions.col("{name}"), or the condition as a string',
        )

    def _unresolved(self, parts: list[str]) -> Any:  # noqa: ANN401
        analysis = self._view.org.apache.spark.sql.catalyst.analysis
        return analysis.UnresolvedAttribute(jvm.to_seq(self._spark, parts))

    def _field(self, struct: Any, name: str) -> Any:  # noqa: ANN401
        catalyst = self._view.org.apache.spark.sql.catalyst
        literal = catalyst.expressions.Literal.apply(name)
        return catalyst.analysis.UnresolvedExtractValue(struct, literal)
