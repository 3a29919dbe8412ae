"""`delvec.sql`: statements of delvec's in any classic session, whether its door is open or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import lit

from delvec.calls import describe_value, explained_call
from delvec.delta.write.report import WriteReport
from delvec.door import row_changes, utilities
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
from delvec.spark.catalyst import column_of, expression_of, name_of, rebuild
from delvec.spark.failures import translate_errors
from delvec.spark.jvm import Java, class_name

_CASE: Final = "spark.sql.caseSensitive"


@dataclass(frozen=True, eq=False)
class DeleteStatement:
    """A DELETE.

    Attributes:
        qualifier: The name that qualifies columns in subqueries of the condition: the alias, or
            the name of the table; empty if there are no subqueries.
        condition: The condition, unresolved; None for all rows. Outside of subqueries its columns
            have no qualifiers any more.
    """

    qualifier: tuple[str, ...]
    condition: Column | None


def _bound(spark: SparkSession, plan: Java, args: dict[str, Any] | list[Any]) -> Java:
    """Return a plan with values for its parameters, as expressions: none can become syntax."""
    with translate_errors("of the statement"):
        values = list(args.values() if isinstance(args, dict) else args)
        given = [jvm.to_seq(spark, [expression_of(spark, lit(value)) for value in values])]
        how = "Pos"
        if isinstance(args, dict):
            how, given = "Name", [jvm.to_seq(spark, list(args)), *given]
        query = jvm.java_class(spark, f"{_ANALYSIS}.{how}ParameterizedQuery")(plan, *given)
        return jvm.java_class(spark, f"{_ANALYSIS}.BindParameters").apply(query)


def _target(plan: Java) -> tuple[tuple[str, ...], str | None]:
    """Return the name of the table that a statement changes, in parts, and its alias."""
    relation = plan.targetTable() if class_name(plan) == "MergeIntoTable" else plan.table()
    alias = None
    if class_name(relation) == "SubqueryAlias":
        relation, alias = relation.child(), str(relation.alias())
    if class_name(relation) != "UnresolvedRelation":
        raise UnsupportedFeatureError(
            "the table of this statement is not written as a name",
            feature="IDENTIFIER()",
            hint="name the table, such as catalog.database.table",
        )
    return tuple(str(each) for each in jvm.items(relation.multipartIdentifier())), alias


def _delete_statement(
    spark: SparkSession, plan: Java, table: tuple[str, ...], alias: str | None
) -> DeleteStatement:
    condition = plan.condition()
    if class_name(condition) == "Literal" and condition.value() is True:
        return DeleteStatement((), None)
    qualifier = table if alias is None else (alias,)
    subqueries = "org.apache.spark.sql.catalyst.expressions.SubqueryExpression"
    has_subquery = jvm.java_class(spark, subqueries).hasSubquery(condition)
    plain = rebuild(spark, condition, partial(_unqualified, spark, qualifier))
    column = column_of(spark, condition if plain is None else plain)
    return DeleteStatement(qualifier if has_subquery else (), column)


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
_ANALYSIS: Final = "org.apache.spark.sql.catalyst.analysis"
_NAMES: Final = {"DeleteFromTable": "DELETE", "UpdateTable": "UPDATE", "MergeIntoTable": "MERGE"}


@explained_call()
def sql(
    spark: SparkSession,
    statement: str,
    args: dict[str, Any] | list[Any] | None = None,
    *,
    key: str | Sequence[str] | None = None,
) -> KeyDeleteReport | PositionDeleteReport | WriteReport | DataFrame:
    """Carry out a statement of delvec's; hand a query and any other statement to Spark.

        delvec.sql(spark, "DELETE FROM lake.db.orders WHERE order_id IN (100, 200, 300)")
        delvec.sql(spark, "DELETE FROM lake.db.orders.branch_audit WHERE amount < 0")
        delvec.sql(spark, "UPDATE delta.`/lake/orders` SET amount = 0 WHERE id = :id", {"id": 7})
        delvec.sql(spark, "OPTIMIZE delta.`/lake/orders`").show()

    It needs no open door: `enable_sql` is for queries of Delta tables, INSERT and DDL. Carried out
    are DELETE of Delta and Iceberg tables, UPDATE and MERGE of Delta tables, and the statements
    that Spark has no grammar for, see docs/sql.md. An Iceberg table is named as in its catalog,
    with `.branch_<name>` behind it for a branch; a Delta table by its path or its name. UPDATE and
    MERGE of Iceberg tables are refused, since Spark would not write them as delvec does: call
    `spark.sql` if that is wanted.

    Args:
        spark: The session.
        statement: One statement.
        args: The values of its parameters, as of `spark.sql`: by name for `:name`, or a list for
            `?`.
        key: The columns of the key of an Iceberg table, see `IcebergTable.delete`.

    Returns:
        The report of a DELETE, UPDATE or MERGE; the rows of any other statement.

    Raises:
        InvalidArgumentError: The statement cannot be parsed or resolved.
        TableNotFoundError: The table is neither an Iceberg table nor a Delta table.
        UnsupportedFeatureError: It is an UPDATE or MERGE of an Iceberg table, or a change of rows
            after WITH.
    """
    if not hasattr(spark, "createDataFrame"):
        raise InvalidArgumentError(
            f"sql() takes a Spark session and a statement, not {describe_value(spark)}",
            hint="start a session by delvec.session()",
        )
    jvm.require_running(spark, "sql()")
    jvm.activate(spark)
    command = utilities.statement(spark, statement)
    if command is not None:
        if args:
            raise UnsupportedFeatureError(
                f"{command.title} takes no parameters",
                feature="args",
                hint="write the values into the statement, as literals",
            )
        return spark.createDataFrame(command.carry_out(), command.schema)
    with translate_errors("of the statement"):
        plan = jvm.session_of(spark).sessionState().sqlParser().parsePlan(statement)
    kind = class_name(plan)
    if kind == "UnresolvedWith" and class_name(plan.child()) in _NAMES:
        name = _NAMES[class_name(plan.child())]
        raise UnsupportedFeatureError(
            f"{name} after WITH is not carried out",
            feature=f"WITH ... {name}",
            hint="write the query as a subquery: WHERE id IN (SELECT ...)",
        )
    if kind in _NAMES:
        return _change(spark, _bound(spark, plan, args) if args else plan, key)
    return spark.sql(statement, args) if args else spark.sql(statement)


def _change(
    spark: SparkSession, plan: Java, key: str | Sequence[str] | None
) -> KeyDeleteReport | PositionDeleteReport | WriteReport:
    kind = class_name(plan)
    parts, alias = _target(plan)
    name = ".".join(map(quote_if_needed, parts))
    by_path = len(parts) == 2 and parts[0].lower() == "delta"
    iceberg = None if by_path else _iceberg_table(spark, parts)
    if iceberg is not None:
        if kind != "DeleteFromTable":
            raise UnsupportedFeatureError(
                f"sql() carries out DELETE of Iceberg tables, not {_NAMES[kind]}",
                feature=_NAMES[kind],
                hint="call IcebergTable.upsert(); spark.sql(...) runs it by Spark's own means",
            )
        row_changes.require_condition(alias)
        table, branch = iceberg
        found = _delete_statement(spark, plan, parts, alias)
        condition = Condition(found.condition, found.qualifier)
        return delete_where(table, condition, key=key, branch=branch)
    change = row_changes.change_of(spark, plan)
    if change is None:
        raise TableNotFoundError(
            f"{name} is neither a table of an Iceberg catalog nor a Delta table",
            table=name,
            hint="name an Iceberg table as catalog.database.table, a Delta table as delta.`/path`",
        )
    if key is not None:
        raise InvalidArgumentError(
            f"a key is for Iceberg tables, and {name} is a Delta table",
            hint="omit it: rows of Delta tables are deleted by position",
        )
    with translate_errors("of the statement"):
        return change.carry_out()


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
