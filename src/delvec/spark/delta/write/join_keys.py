"""The columns by which a MERGE joins, found in the plan that Spark makes of its condition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, functions, types

from delvec.delta.skipping.predicate import Always, And, Comparison, Never, Predicate
from delvec.identifiers import quote
from delvec.spark import jvm
from delvec.spark.catalyst import column_of
from delvec.spark.engine import bytes_setting
from delvec.spark.jvm import items

BROADCAST_LIMIT: Final = "spark.delvec.merge.broadcastLimit"
_WIDTHS: Final = {"string": 40, "binary": 100}
_EPOCH: Final = date(1970, 1, 1).toordinal()
_REPLACED: Final = "\ufffd"


@dataclass(frozen=True)
class JoinKey:
    """A column of the target that must equal an expression over the source."""

    column: str
    source: Column


@dataclass(frozen=True)
class KeyRanges:
    """The number of rows of a source, and the range of each key."""

    rows: int
    ranges: tuple[tuple[str, Any, Any], ...]

    @property
    def predicate(self) -> Predicate:
        """What a row of the target must satisfy to have a match."""
        if not self.rows or any(low is None for _, low, _ in self.ranges):
            return Never()  # no rows, or only null keys, which equal nothing
        bounds: list[Predicate] = []
        for name, low, high in self.ranges:
            if _is_plain(low):
                bounds += [Comparison((name,), ">=", low), Comparison((name,), "<=", high)]
        return And(tuple(bounds)) if bounds else Always()

    def narrowed(self, target: DataFrame) -> DataFrame:
        """Filter out rows of the target that cannot have a match."""
        for name, low, high in self.ranges:
            column = functions.col(quote(name))
            if isinstance(low, date) and _is_plain(low):
                # As days: Py4J would convert a date to another calendar.
                first, last = (each.toordinal() - _EPOCH for each in (low, high))
                target = target.where(functions.unix_date(column).between(first, last))
            elif _is_plain(low):
                target = target.where(column.between(low, high))
        return target


def join_keys(
    spark: SparkSession, target: DataFrame, source: DataFrame, on: Column
) -> list[JoinKey]:
    """Find the equalities in a condition; both sides carry the names that it uses."""
    join: Any = target.join(source, on)._jdf.queryExecution().analyzed()  # noqa: SLF001
    if jvm.class_name(join) != "Join" or join.condition().isEmpty():
        return []
    ours = {each.exprId().toString() for each in items(join.left().output())}
    theirs = {each.exprId().toString() for each in items(join.right().output())}
    keys = []
    for equal in _equalities(join.condition().get()):
        for side, other in ((equal.left(), equal.right()), (equal.right(), equal.left())):
            used = {each.exprId().toString() for each in items(other.references())}
            is_column = jvm.class_name(side) == "AttributeReference"
            if is_column and side.exprId().toString() in ours and used and used <= theirs:
                keys.append(JoinKey(side.name(), column_of(spark, other)))
                break
    return keys


def is_broadcast(source: DataFrame, rows: int) -> bool:
    """Return whether so many rows are few enough to be joined by a broadcast."""
    widths = (_WIDTHS.get(field.dataType.typeName(), 8) for field in source.schema.fields)
    limit = bytes_setting(source.sparkSession, BROADCAST_LIMIT, "64m")
    return rows * (16 + sum(widths)) <= limit


def key_ranges(source: DataFrame, keys: Sequence[JoinKey]) -> KeyRanges:
    """Run one job over a source: how many rows it has, and the range of each key."""
    kinds = [field.dataType for field in source.select(*(key.source for key in keys)).schema]
    bounds = [
        bound for key, kind in zip(keys, kinds, strict=True) for bound in _bounds(key.source, kind)
    ]
    rows, *values = source.agg(functions.count(functions.lit(1)), *bounds).first() or (0,)
    ranges = [
        (key.column, *_range(kind, *values[2 * place : 2 * place + 2]))
        for place, (key, kind) in enumerate(zip(keys, kinds, strict=True))
    ]
    return KeyRanges(rows, tuple(ranges))


def _bounds(key: Column, kind: types.DataType) -> tuple[Column, Column]:
    """Return the least and the greatest key, or whether there is one; null if there is none."""
    if isinstance(kind, types.DateType):
        # As days: Python has fewer dates than Spark.
        key = functions.unix_date(key)
    elif not isinstance(kind, types.IntegralType | types.StringType | types.DecimalType):
        key = functions.when(key.isNotNull(), functions.lit(True))
    return functions.min(key), functions.max(key)


def _range(kind: types.DataType, low: Any, high: Any) -> tuple[Any, Any]:  # noqa: ANN401
    if isinstance(kind, types.StringType) and _REPLACED in f"{low}{high}":
        return True, True  # bytes that are not UTF-8 were replaced on the way to Python
    if not isinstance(kind, types.DateType) or low is None:
        return low, high
    first, last = low + _EPOCH, high + _EPOCH
    if first < date.min.toordinal() or last > date.max.toordinal():
        return True, True
    return date.fromordinal(first), date.fromordinal(last)


def _equalities(condition: Any) -> Iterator[Any]:  # noqa: ANN401
    name = jvm.class_name(condition)
    if name == "And":
        yield from _equalities(condition.left())
        yield from _equalities(condition.right())
    elif name == "EqualTo" and condition.deterministic():
        yield condition


def _is_plain(value: object) -> bool:
    """Return whether a value means the same in Python and the JVM: no zones, no NaN."""
    return isinstance(value, int | str | Decimal | date) and not isinstance(value, bool | datetime)
