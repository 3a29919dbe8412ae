"""The columns by which a MERGE joins, found in the plan that Spark makes of its condition."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, functions

from delvec.delta.predicate import Always, And, Comparison, Never
from delvec.spark import jvm
from delvec.spark.catalyst import items
from delvec.spark.file_columns import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from delvec.delta.predicate import Predicate

__all__ = ["JoinKey", "KeyRanges", "join_keys", "key_ranges"]


@dataclass(frozen=True)
class JoinKey:
    """A column of the target that must equal an expression over the source."""

    column: str
    source: Column


@dataclass(frozen=True)
class KeyRanges:
    """The rows of a source, and between which values its keys are."""

    rows: int
    ranges: tuple[tuple[str, Any, Any], ...]

    @property
    def predicate(self) -> Predicate:
        """What rows of the target must satisfy to have a partner."""
        if not self.rows or any(low is None for _, low, _ in self.ranges):
            return Never()  # no rows, or no key but nulls, which equal nothing
        bounds: list[Predicate] = []
        for name, low, high in self.ranges:
            if _is_plain(low):
                bounds += [Comparison((name,), ">=", low), Comparison((name,), "<=", high)]
        return And(tuple(bounds)) if bounds else Always()

    def narrowed(self, target: DataFrame) -> DataFrame:
        """Leave rows of the target out that cannot have a partner."""
        for name, low, high in self.ranges:
            if _is_plain(low):
                target = target.where(functions.col(quoted(name)).between(low, high))
        return target


def join_keys(
    spark: SparkSession, target: DataFrame, source: DataFrame, on: Column
) -> list[JoinKey]:
    """Find the equalities in a condition; both sides carry the names that it uses.

    Raises:
        AnalysisException: The condition is wrong.
    """
    join: Any = target.join(source, on)._jdf.queryExecution().analyzed()  # noqa: SLF001
    if join.getClass().getSimpleName() != "Join" or join.condition().isEmpty():
        return []
    ours = {each.exprId().toString() for each in items(join.left().output())}
    theirs = {each.exprId().toString() for each in items(join.right().output())}
    utils = jvm.view_of(spark).org.apache.spark.sql.classic.ExpressionUtils
    keys = []
    for equal in _equalities(join.condition().get()):
        for side, other in ((equal.left(), equal.right()), (equal.right(), equal.left())):
            used = {each.exprId().toString() for each in items(other.references())}
            is_column = side.getClass().getSimpleName() == "AttributeReference"
            if is_column and side.exprId().toString() in ours and used and used <= theirs:
                keys.append(JoinKey(side.name(), type(on)(utils.column(other))))
                break
    return keys


def key_ranges(source: DataFrame, keys: Sequence[JoinKey]) -> KeyRanges:
    """Run one job over a source: how many rows it has, and the range of each key."""
    bounds = [
        bound
        for place, key in enumerate(keys)
        for bound in (
            functions.min(key.source).alias(f"low_{place}"),
            functions.max(key.source).alias(f"high_{place}"),
        )
    ]
    rows, *values = source.agg(functions.count(functions.lit(1)), *bounds).first() or (0,)
    ranges = [
        (key.column, values[2 * place], values[2 * place + 1]) for place, key in enumerate(keys)
    ]
    return KeyRanges(rows, tuple(ranges))


def _equalities(condition: Any) -> Iterator[Any]:  # noqa: ANN401
    name = condition.getClass().getSimpleName()
    if name == "And":
        yield from _equalities(condition.left())
        yield from _equalities(condition.right())
    elif name == "EqualTo" and condition.deterministic():
        yield condition


def _is_plain(value: object) -> bool:
    """Whether a value means the same here and in the JVM: no zones, no NaN."""
    return isinstance(value, int | str | Decimal | date) and not isinstance(value, bool | datetime)
