"""SQL statements, as Spark parses them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyspark.sql import Column, SparkSession

from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.spark import jvm
from delvec.spark.catalyst import column_of, name_of, rebuild
from delvec.spark.failures import translate_errors
from delvec.spark.jvm import class_name

_CASE: Final = "spark.sql.caseSensitive"


@dataclass(frozen=True, eq=False)
class DeleteStatement:
    """A DELETE, with the name of the table in parts.

    Attributes:
        qualifier: The name that qualifies columns in subqueries of the condition: the alias, or
            the name of the table; empty if there are no subqueries.
        condition: The condition, unresolved; None for all rows. Outside of subqueries its columns
            have no qualifiers any more.
    """

    table: tuple[str, ...]
    qualifier: tuple[str, ...]
    condition: Column | None


def parse_statement(spark: SparkSession, statement: str) -> DeleteStatement | str:
    """Parse a statement by the session's parser; nothing is resolved or run.

    Of any other statement, return the name of its class in Spark, such as `UpdateTable`.
    """
    with translate_errors("of the statement"):
        plan = jvm.session_of(spark).sessionState().sqlParser().parsePlan(statement)
    kind = class_name(plan)
    if kind == "UnresolvedWith" and class_name(plan.child()) == "DeleteFromTable":
        raise UnsupportedFeatureError(
            "DELETE after WITH is not carried out",
            feature="WITH ... DELETE",
            hint="write the query as a subquery: WHERE id IN (SELECT ...)",
        )
    if kind != "DeleteFromTable":
        return kind
    relation, alias = plan.table(), None
    if class_name(relation) == "SubqueryAlias":
        relation, alias = relation.child(), str(relation.alias())
        if alias.lower() == "where":
            # Spark takes the word for an alias, and deletes all rows.
            raise InvalidArgumentError("the DELETE has a WHERE without a condition behind it")
    if class_name(relation) != "UnresolvedRelation":
        raise UnsupportedFeatureError(
            "the table of this DELETE is not written as a name",
            feature="IDENTIFIER()",
            hint="name the table, such as catalog.database.table",
        )
    table = tuple(str(each) for each in jvm.items(relation.multipartIdentifier()))
    condition = plan.condition()
    if class_name(condition) == "Literal" and condition.value() is True:
        return DeleteStatement(table, (), None)
    qualifier = table if alias is None else (alias,)
    subqueries = "org.apache.spark.sql.catalyst.expressions.SubqueryExpression"
    has_subquery = jvm.java_class(spark, subqueries).hasSubquery(condition)
    plain = rebuild(spark, condition, partial(_unqualified, spark, qualifier))
    column = column_of(spark, condition if plain is None else plain)
    return DeleteStatement(table, qualifier if has_subquery else (), column)


def is_temporary_view(spark: SparkSession, name: str) -> bool:
    return bool(jvm.session_of(spark).sessionState().catalog().getRawTempView(name).isDefined())


def _unqualified(
    spark: SparkSession,
    qualifier: tuple[str, ...],
    kind: str,
    node: Any,  # noqa: ANN401
    _: object,
) -> Any | None:  # noqa: ANN401
    """Return a column without the name of a table before it, as far as Spark would resolve it."""
    if kind != "UnresolvedAttribute":
        return None
    is_exact = (spark.conf.get(_CASE) or "").lower() == "true"
    same = str if is_exact else str.lower
    parts = [str(each) for each in jvm.items(node.nameParts())]
    for length in range(min(len(qualifier), len(parts) - 1), 0, -1):
        if [*map(same, parts[:length])] == [*map(same, qualifier[-length:])]:
            return name_of(spark, parts[length:])
    return None
