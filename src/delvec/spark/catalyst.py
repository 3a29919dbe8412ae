"""Expressions of Spark, as trees of Python: the one reader of what Catalyst has parsed.

A tree is read in one call of the JVM. Constants are folded in it, unless they are those that Spark
fixes when a query runs, such as the current time. An expression that the reader does not know is a
node like any other, under the name of its class: whoever matches on kinds decides what to do.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

from delvec.spark import jvm


@dataclass(frozen=True, slots=True)
class Expression:
    """A node of an expression.

    Attributes:
        kind: Its class in Spark, such as `EqualTo`. `And` and `Or` have all their operands as
            children. `In` is `InSet` as well. `Opaque` is a constant that fails or that Python does
            not have, or what lies 200 levels deep.
        type: Its type in SQL; None if it is not resolved.
        name: That of a column or of a struct's field.
        value: Of a `Literal`, dates and times as days and microseconds, a struct as a tuple; of an
            `In` the list, None if it has more than constants, which are children then; of a column
            its id.
        children: The nodes below it.
        number: Its place in the tree, for `sql_of`.
    """

    kind: str
    type: str | None
    name: str | None
    value: Any
    children: tuple[Expression, ...]
    number: int


def read(spark: SparkSession, expression: Any) -> Expression:  # noqa: ANN401
    return _node(*pickle.loads(_reader(spark).read(expression)))  # noqa: S301 - from our own JVM


def sql_of(spark: SparkSession, expression: Any, node: Expression) -> str:  # noqa: ANN401
    """Return a node of an expression that was read, in SQL."""
    return str(_reader(spark).shown(expression, node.number))


def rebuild(
    spark: SparkSession,
    expression: Any,  # noqa: ANN401
    replace: Callable[[str, Any, list[Any]], Any | None],
) -> Any | None:  # noqa: ANN401
    """Return an expression of the JVM with other nodes; None if none is replaced.

    `replace` gets the kind of each node, the node and, if some are new, its children; it returns
    None for a node that may stay.
    """
    old = list(jvm.items(expression.children()))
    new = [rebuild(spark, child, replace) for child in old]
    is_new = any(child is not None for child in new)
    inside = [b if a is None else a for a, b in zip(new, old, strict=True)] if is_new else []
    other = replace(jvm.class_name(expression), expression, inside)
    if other is None and is_new:
        return expression.withNewChildren(jvm.to_seq(spark, inside))
    return other


def name_of(spark: SparkSession, parts: Sequence[str]) -> Any:  # noqa: ANN401
    """Return an expression of the JVM that Spark resolves by name: that of a column, in parts."""
    names = jvm.java_class(spark, "org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute")
    return names(jvm.to_seq(spark, parts))


def column_of(spark: SparkSession, expression: Any) -> Column:  # noqa: ANN401
    utils = jvm.java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
    found: Any = ClassicColumn(utils.column(expression))
    return found  # type: ignore[no-any-return]


def expression_of(spark: SparkSession, column: Column) -> Any:  # noqa: ANN401
    """Return a column as an expression of the JVM."""
    classic = jvm.view_of(spark).org.apache.spark.sql.classic
    converter = getattr(getattr(classic, "ColumnNodeToExpressionConverter$"), "MODULE$")
    node: Any = column._jc  # noqa: SLF001
    return converter.apply(node.node())


def _reader(spark: SparkSession) -> Any:  # noqa: ANN401
    load = partial(jvm.load_java, spark, "delvec.spark", "Expressions")
    return jvm.once(spark, "expressions", load)


def _node(kind: str, type_: str | None, name: str | None, *rest: Any) -> Expression:  # noqa: ANN401
    value, below, number = rest
    return Expression(kind, type_, name, value, tuple(_node(*each) for each in below), number)
