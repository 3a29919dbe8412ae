"""SQL statements, as Spark parses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.classic.column import Column as ClassicColumn

from delvec.errors import InvalidArgumentError, UnsupportedFeatureError
from delvec.spark import jvm
from delvec.spark.failures import explained

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

__all__ = ["DeleteStatement", "OtherStatement", "is_temporary_view", "parse_statement"]

_CASE: Final = "spark.sql.caseSensitive"


@dataclass(frozen=True, eq=False)
class DeleteStatement:
    """A DELETE.

    Attributes:
        table: The name of the table, in parts.
        qualifier: The name that qualifies columns in subqueries of the condition: the alias, or
            the name of the table; empty if there are no subqueries.
        condition: The condition, unresolved; None for all rows. Outside of subqueries its columns
            have no qualifiers any more.
    """

    table: tuple[str, ...]
    qualifier: tuple[str, ...]
    condition: Column | None


@dataclass(frozen=True)
class OtherStatement:
    """Any other statement.

    Attributes:
        kind: The name of its class in Spark, such as `UpdateTable`.
        deletes: Whether there is a DELETE inside of it, after a WITH.
    """

    kind: str
    deletes: bool = False


def parse_statement(spark: SparkSession, statement: str) -> DeleteStatement | OtherStatement:
    """Parse a statement by the session's parser; nothing is resolved or run.

    Raises:
        InvalidArgumentError: Spark cannot parse it.
        UnsupportedFeatureError: The table of a DELETE is not a name.
    """
    with explained("of the statement"):
        plan = jvm.session_of(spark).sessionState().sqlParser().parsePlan(statement)
    kind = _kind(plan)
    if kind == "UnresolvedWith":
        return OtherStatement(kind, _kind(plan.child()) == "DeleteFromTable")
    if kind != "DeleteFromTable":
        return OtherStatement(kind)
    relation, alias = plan.table(), None
    if _kind(relation) == "SubqueryAlias":
        relation, alias = relation.child(), str(relation.alias())
        if alias.lower() == "where":
            # Spark takes the word for an alias, and deletes all rows.
            raise InvalidArgumentError("the DELETE has a WHERE without a condition behind it")
    if _kind(relation) != "UnresolvedRelation":
        raise UnsupportedFeatureError(
            "the table of this DELETE is not written as a name",
            feature="IDENTIFIER()",
            hint="name the table, such as catalog.database.table",
        )
    table = tuple(str(each) for each in jvm.items(relation.multipartIdentifier()))
    condition = plan.condition()
    if _kind(condition) == "Literal" and condition.value() is True:
        return DeleteStatement(table, (), None)
    qualifier = table if alias is None else (alias,)
    subqueries = "org.apache.spark.sql.catalyst.expressions.SubqueryExpression"
    has_subquery = jvm.java_class(spark, subqueries).hasSubquery(condition)
    plain = _Unqualified(spark, qualifier).rebuilt(condition)
    columns = jvm.java_class(spark, "org.apache.spark.sql.classic.ExpressionUtils")
    column: Any = ClassicColumn(columns.column(condition if plain is None else plain))
    return DeleteStatement(table, qualifier if has_subquery else (), column)


def is_temporary_view(spark: SparkSession, name: str) -> bool:
    """Whether a name without a database is that of a temporary view."""
    return bool(jvm.session_of(spark).sessionState().catalog().getRawTempView(name).isDefined())


class _Unqualified:
    """Removes the name of a table before columns, as far as Spark would resolve them so."""

    def __init__(self, spark: SparkSession, qualifier: tuple[str, ...]) -> None:
        self._spark = spark
        is_exact = (spark.conf.get(_CASE) or "").lower() == "true"
        self._same = str if is_exact else str.lower
        self._qualifier = [self._same(each) for each in qualifier]

    def rebuilt(self, node: Any) -> Any | None:  # noqa: ANN401
        """Return an expression without qualifiers; None if it has none."""
        kind = _kind(node)
        if kind == "UnresolvedAttribute":
            return self._attribute(node)
        old = list(jvm.items(node.children()))
        new = [self.rebuilt(child) for child in old]
        if all(child is None for child in new):
            return None
        inside = [b if a is None else a for a, b in zip(new, old, strict=True)]
        return node.withNewChildren(jvm.to_seq(self._spark, inside))

    def _attribute(self, node: Any) -> Any | None:  # noqa: ANN401
        parts = [str(each) for each in jvm.items(node.nameParts())]
        plain = [self._same(each) for each in parts]
        for length in range(min(len(self._qualifier), len(parts) - 1), 0, -1):
            if plain[:length] == self._qualifier[-length:]:
                made = "org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute"
                left = jvm.to_seq(self._spark, parts[length:])
                return jvm.java_class(self._spark, made)(left)
        return None


def _kind(value: Any) -> str:  # noqa: ANN401
    name: str = value.getClass().getSimpleName()
    return name
