"""`delvec.sql`: DELETE statements, parsed by Spark, carried out by delvec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession

from delvec.calls import describe_value, explained_call
from delvec.delta.table import DeltaTable
from delvec.delta.write.report import WriteReport
from delvec.errors import (
    InvalidArgumentError,
    MissingDependencyError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from delvec.iceberg.client.catalog import LoadedTable, find_table, is_metadata_table, table_name
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.table.writes import delete_where
from delvec.iceberg.write.key_predicates import Condition
from delvec.iceberg.write.report import KeyDeleteReport, PositionDeleteReport
from delvec.identifiers import quote_if_needed
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


_BRANCH: Final = "branch_"
# What Spark would carry out otherwise than delvec, or not at all.
_REFUSED: Final = {
    "UpdateTable": ("UPDATE", "DeltaTable.update(), or IcebergTable.upsert()"),
    "MergeIntoTable": ("MERGE", "DeltaTable.merge(), or IcebergTable.upsert()"),
}


@explained_call()
def sql(
    spark: SparkSession, statement: str, *, key: str | Sequence[str] | None = None
) -> KeyDeleteReport | PositionDeleteReport | WriteReport | DataFrame:
    """Carry out a DELETE by delvec; hand a query and any other statement to Spark.

        delvec.sql(spark, "DELETE FROM lake.db.orders WHERE order_id IN (100, 200, 300)")
        delvec.sql(spark, "DELETE FROM lake.db.orders.branch_audit WHERE amount < 0")
        delvec.sql(spark, "DELETE FROM delta.`/lake/orders` AS o WHERE o.amount < 0")

    The session's parser parses the statement. An Iceberg table is named as in its catalog, with
    `.branch_<name>` behind it for a branch; a Delta table by its path or its name. The condition
    may have subqueries. UPDATE and MERGE are refused, since Spark would not write them as delvec
    does: call `spark.sql` if that is wanted. Queries, DDL, INSERT and procedures go to `spark.sql`
    unchanged.

    Args:
        spark: The session.
        statement: One statement.
        key: The columns of the key of an Iceberg table, see `IcebergTable.delete`.

    Returns:
        The report of a DELETE; what `spark.sql` returns of any other statement.

    Raises:
        InvalidArgumentError: Spark cannot parse or resolve the statement.
        TableNotFoundError: The table is neither an Iceberg table nor a Delta table.
        UnsupportedFeatureError: It is an UPDATE or MERGE, or a DELETE after WITH.
    """
    if not hasattr(spark, "createDataFrame"):
        raise InvalidArgumentError(
            f"sql() takes a Spark session and a statement, not {describe_value(spark)}",
            hint="start a session by delvec.session()",
        )
    jvm.require_running(spark, "sql()")
    jvm.activate(spark)
    parsed = parse_statement(spark, statement)
    if isinstance(parsed, DeleteStatement):
        return _delete(spark, parsed, key)
    if parsed in _REFUSED:
        name, instead = _REFUSED[parsed]
        raise UnsupportedFeatureError(
            f"sql() carries out DELETE, not {name}",
            feature=name,
            hint=f"call {instead}; spark.sql(...) runs the statement by Spark's own means",
        )
    return spark.sql(statement)


def _delete(
    spark: SparkSession, parsed: DeleteStatement, key: str | Sequence[str] | None
) -> KeyDeleteReport | PositionDeleteReport | WriteReport:
    name = ".".join(map(quote_if_needed, parsed.table))
    if len(parsed.table) == 1 and is_temporary_view(spark, parsed.table[0]):
        raise TableNotFoundError(
            f"{name} is a temporary view, and rows are deleted from tables",
            table=name,
            hint="name the table that it shows",
        )
    if len(parsed.table) == 2 and parsed.table[0].lower() == "delta":
        return _delete_from_delta(DeltaTable.for_path(spark, parsed.table[1]), parsed, key)
    found = _iceberg_table(spark, parsed.table)
    if found is not None:
        table, branch = found
        condition = Condition(parsed.condition, parsed.qualifier)
        return delete_where(table, condition, key=key, branch=branch)
    try:
        delta = DeltaTable.for_name(spark, name)
    except TableNotFoundError as error:
        raise TableNotFoundError(
            f"{name} is neither a table of an Iceberg catalog nor a Delta table",
            table=name,
            hint="name an Iceberg table as catalog.database.table, a Delta table as delta.`/path`",
        ) from error
    return _delete_from_delta(delta, parsed, key)


def _delete_from_delta(
    table: DeltaTable, parsed: DeleteStatement, key: str | Sequence[str] | None
) -> WriteReport:
    if key is not None:
        raise InvalidArgumentError(
            f"a key is for Iceberg tables, and {table.storage.root} is a Delta table",
            hint="omit it: rows of Delta tables are deleted by position",
        )
    return table.delete(parsed.condition)


def _iceberg_table(spark: SparkSession, parts: tuple[str, ...]) -> tuple[LoadedTable, str] | None:
    """Return an Iceberg table and the branch that a name names; None if there is none."""
    found = _found(spark, parts)
    if found is not None:
        return found, MAIN
    if len(parts) > 1 and parts[-1].lower().startswith(_BRANCH):
        found = _found(spark, parts[:-1])
        if found is not None:
            branch = parts[-1][len(_BRANCH) :]
            if branch not in found.metadata.refs:
                raise TableNotFoundError(
                    f"{found.name} has no branch {branch}, only {', '.join(found.metadata.refs)}",
                    table=str(found.name),
                    hint=f'make it by IcebergTable.create_branch("{branch}")',
                )
            return found, branch
    return None


def _found(spark: SparkSession, parts: tuple[str, ...]) -> LoadedTable | None:
    try:
        name = table_name(spark, ".".join(map(quote_if_needed, parts)))
        if is_metadata_table(spark, name):
            raise UnsupportedFeatureError(
                f"{name} is a metadata table, whose rows cannot be deleted",
                feature="DELETE on a metadata table",
            )
        return find_table(spark, name)
    except (InvalidArgumentError, MissingDependencyError, TableNotFoundError):
        return None
