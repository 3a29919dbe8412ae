"""Conditions, in SQL or as a Column, as predicates that prune the files of a table.

An operation scans its table again, and after a conflict again, so that columns of one DataFrame of
the table, such as `df["id"]`, are rebuilt to be resolved by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, functions

from delvec.delta.skipping.predicate import Always, Predicate, Unknown
from delvec.delta.write.targets import Targets, find_targets
from delvec.errors import InvalidArgumentError
from delvec.spark import jvm
from delvec.spark.catalyst import column_of, expression_of, name_of, rebuild
from delvec.spark.delta.scan.pushdown import translate
from delvec.spark.engine import time_zone
from delvec.spark.types import table_schema

if TYPE_CHECKING:
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.types import StructType

ALIAS: Final = "t"
"""What conditions and values may call the table, as those of a merge do."""
_T = TypeVar("_T")


def to_predicate(spark: SparkSession, schema: StructType, where: str | Column) -> Predicate:
    """Return what is understood of a condition, which Spark parses and resolves; runs no job."""
    condition = functions.expr(where) if isinstance(where, str) else where
    nothing = no_rows(spark, schema)
    try:
        plan: Any = nothing.where(condition)._jdf.queryExecution().analyzed()  # noqa: SLF001
    except AnalysisException:
        return Unknown()  # wrong, or on another DataFrame: reported when it is applied to rows
    if jvm.class_name(plan) != "Filter":
        return Unknown()  # conditions that Spark turns into joins, such as subqueries
    return translate(spark, plan.condition(), lambda path: path)


def plan_targets(spark: SparkSession, snapshot: Snapshot, where: str | Column | None) -> Targets:
    """Return the files of a version that a condition may match, by the log; reads no row."""
    predicate = Always() if where is None else to_predicate(spark, snapshot.metadata.schema, where)
    return find_targets(snapshot, predicate, time_zone(spark))


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return no rows of a table, under its alias.

    PySpark would make them of an RDD, in tenfold the time.
    """
    rows = jvm.java_class(spark, "java.util.ArrayList")()
    columns = jvm.java_type(spark, table_schema(schema.fields))
    return aliased(DataFrame(jvm.session_of(spark).createDataFrame(rows, columns), spark), schema)


def to_sql(where: str | Column) -> str:
    """Return a condition as the table's history shows it."""
    if isinstance(where, str):
        return where
    column: Any = where._jc  # noqa: SLF001
    return str(column.toString())


def alias_in(schema: StructType) -> str | None:
    """Return the alias of a table; none if it has a column of that name, whose fields are meant."""
    return None if ALIAS in {name.lower() for name in schema.names} else ALIAS


def aliased(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return rows of a table under its alias, for a condition or values that follow."""
    alias = alias_in(schema)
    return rows if alias is None else rows.alias(alias)


def rebind_columns(
    spark: SparkSession,
    value: _T,
    table: tuple[str | None, Iterable[Any]],
    others: Iterable[tuple[str, DataFrame]] = (),
) -> _T:
    """Return a column with all bound columns in it replaced by names; other values as they are."""
    if not isinstance(value, Column) or not hasattr(value, "_jc"):
        return value
    known = [(table[0], list(table[1])), *((alias, [attributes_of(df)]) for alias, df in others)]
    rebuilt = rebuild(spark, expression_of(spark, value), partial(_by_name, spark, known))
    return value if rebuilt is None else column_of(spark, rebuilt)  # type: ignore[return-value]


def attributes_of(df: DataFrame) -> Any:  # noqa: ANN401
    """Return the columns of a DataFrame as a set of the JVM, which holds neither plan nor files."""
    plan: Any = df._jdf.queryExecution().analyzed()  # noqa: SLF001
    return plan.outputSet()


def _by_name(
    spark: SparkSession,
    known: Sequence[tuple[str | None, Sequence[Any]]],
    kind: str,
    node: Any,  # noqa: ANN401
    children: Sequence[Any],
) -> Any | None:  # noqa: ANN401
    """Return a node that is resolved by name instead of a bound column; None for others."""
    if kind == "AttributeReference":
        return name_of(spark, [*_aliases(known, node), node.name()])
    if not children or kind not in ("GetStructField", "GetArrayStructFields"):
        return None
    # Fields are found by name again: their place may be another one.
    name = node.extractFieldName() if kind == "GetStructField" else node.field().name()
    catalyst = jvm.view_of(spark).org.apache.spark.sql.catalyst
    literal = catalyst.expressions.Literal.apply(name)
    return catalyst.analysis.UnresolvedExtractValue(children[0], literal)


def _aliases(known: Sequence[tuple[str | None, Sequence[Any]]], attribute: Any) -> list[str]:  # noqa: ANN401
    """Return what a bound column's name has to stand behind."""
    found = [
        alias for alias, sets in known if any(attributes.contains(attribute) for attributes in sets)
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
